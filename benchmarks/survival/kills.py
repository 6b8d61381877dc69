"""Disturb a study at random moments, above all by killing a worker, the driver or everything; start it again, and see
what is left."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import weather
from .faults import DELETED, FAULTS, Scene, plain_rights
from .orbits import LOG

VICTIMS = ("a worker", "the driver", "everything")
STUDY = f"{Path(__file__).with_name('orbits.py')}:STUDY"
_PATIENCE = 5.0  # seconds, on average, to wait until jobs run: some kills meet a driver that is only starting
_LONGEST = 120.0  # seconds that a driver may take to end once it must
_PROGRAM = [sys.executable, "-c", "from basinscope.cli import main; main()", "study"]


@dataclass
class Attack:
    """What happened to one study.

    Attributes:
        strikes: how often each kind of fault struck.
        begun: how often a job was begun, all starts of the driver together.
        in_flight: jobs that the faults may have cost: one for a worker, one per worker for the others; where the store
            was deleted, all that had been begun.
        starts: of the driver.
        orphans: worker processes that outlived their driver by more than the grace they were given.
        digest: of the final table's bytes.
        complaints: what went wrong.
    """

    strikes: Counter[str] = field(default_factory=Counter)
    begun: int = 0
    in_flight: int = 0
    starts: int = 0
    orphans: int = 0
    digest: str = ""
    complaints: list[str] = field(default_factory=list)


def undisturbed(folder: Path, settings: Sequence[str]) -> str:
    """The digest of the table of a run in one process that nobody disturbs."""
    subprocess.run(_command(folder, settings, "--on", "here"), check=True, capture_output=True)
    return _digest(folder, settings)


@dataclass(frozen=True)
class Strike:
    """A fault as the seed has it: all that chance decides is drawn before anything is waited for.

    Attributes:
        fault: a kind of victim to kill, or a name among `FAULTS`.
        patience: seconds to wait until a job has begun.
        pause: seconds after that.
        place: of the worker among those that live, in [0, 1).
    """

    fault: str
    patience: float
    pause: float
    place: float


def strikes(seed: int, faults: Sequence[str] = VICTIMS) -> Iterator[Strike]:
    """The faults of a seed, without end.

    Examples:
        >>> [strike.fault for strike, _ in zip(strikes(0), range(3))]
        ['the driver', 'everything', 'the driver']
    """
    rng = random.Random(seed)
    while True:
        yield Strike(rng.choice(faults), rng.expovariate(1 / _PATIENCE), rng.uniform(0, 1), rng.random())


def attacked(
    folder: Path, settings: Sequence[str], *, number: int, seed: int, workers: int = 2, grace: float = 2.0,
    faults: Sequence[str] = VICTIMS, on: str = "local",
) -> Attack:  # fmt: skip
    """Run a study with at most so many faults on the way, then to its end.

    Args:
        folder, settings: where, and changes to the study's settings.
        number: most of the faults; a run that ends sooner gets fewer.
        seed: of the faults.
        workers: of each run.
        grace: seconds that workers may outlive their driver.
        faults: the kinds to choose from.
        on: where the study computes.
    """
    computing = ("--on", on) if on == "here" else ("--on", on, "--workers", str(workers))
    with tempfile.NamedTemporaryFile() as log, tempfile.TemporaryDirectory() as signs:
        siege = _Siege(folder, _command(folder, settings, *computing), workers, grace, Path(log.name), Path(signs))
        planned = strikes(seed, faults)
        while not siege.round(planned, number) and siege.attack.starts < 2 * number + 10:
            pass
        siege.attack.begun = siege.begun()
    siege.attack.digest = _digest(folder, settings)
    return siege.attack


@dataclass
class _Siege:
    """A study that is disturbed: its store, the command that runs it, and what is known of its processes."""

    store: Path
    command: Sequence[str]
    workers: int
    grace: float
    log: Path
    signs: Path
    attack: Attack = field(default_factory=Attack)

    def round(self, planned: Iterator[Strike], number: int) -> bool:
        """Start the driver and disturb it until it ends; whether the study is done then."""
        self.attack.starts += 1
        environment = os.environ | {LOG: str(self.log), weather.FOLDER: str(self.signs)}
        command = [*plain_rights(), *self.command]
        driver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, text=True)
        scene, before, fatal = Scene(self.store, self.signs, driver), self.begun(), ""
        while not fatal and self.attack.strikes.total() < number and driver.poll() is None:
            strike = next(planned)
            self._await(strike, driver, before)
            if driver.poll() is not None:
                break
            if strike.fault in VICTIMS:
                self._kill(strike, driver)
            else:
                fatal = self._disturb(strike.fault, scene)
        try:
            told, _ = driver.communicate(timeout=_LONGEST)
        except subprocess.TimeoutExpired:
            driver.kill()
            told, _ = driver.communicate()
            self.attack.complaints.append(f"it did not end within {_LONGEST:g} s of {fatal or 'its last fault'}")
        if fatal:
            FAULTS[fatal].end(scene)
        self.attack.complaints += _wrong(driver.returncode, told, fatal)
        return driver.returncode == 0 and fatal != DELETED

    def begun(self) -> int:
        """How many jobs were begun so far."""
        return self.log.read_text().count("\n")

    def _await(self, strike: Strike, driver: subprocess.Popen[str], before: int) -> None:
        """Wait until a job of this round has begun, kills only so long, and the strike's pause."""
        until = time.monotonic() + (strike.patience if strike.fault in VICTIMS else _LONGEST)
        while time.monotonic() < until and self.begun() == before and driver.poll() is None:
            time.sleep(0.01)
        time.sleep(strike.pause)

    def _disturb(self, name: str, scene: Scene) -> str:
        """Let a fault begin; its name if the driver must end of it, nothing if the fault has passed."""
        fault = FAULTS[name]
        self.attack.strikes[name] += 1
        fault.begin(scene)
        if fault.code is None:
            fault.end(scene)
            return ""
        self.attack.in_flight += self.begun() if name == DELETED else self.workers
        return name

    def _kill(self, strike: Strike, driver: subprocess.Popen[str]) -> None:
        """Kill the victim, if it still lives."""
        victim, crew = strike.fault, children(driver.pid)
        at_work = [process for process in self._workers() if process != driver.pid]
        if victim == "a worker" and not at_work:
            return
        one = at_work[int(strike.place * len(at_work)) :][:1]
        targets = {"a worker": one, "the driver": [driver.pid], "everything": [driver.pid, *crew]}
        for target in targets[victim]:
            try:
                os.kill(target, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.attack.strikes[victim] += 1
        self.attack.in_flight += 1 if victim == "a worker" else self.workers
        if victim != "a worker":
            driver.wait()
            deadline = time.monotonic() + self.grace
            while any(map(_alive, crew)) and time.monotonic() < deadline:
                time.sleep(0.01)
            self.attack.orphans += sum(map(_alive, crew))

    def _workers(self) -> list[int]:
        """Living processes that have begun a job."""
        return [process for process in {int(line.split()[1]) for line in self._lines()} if _alive(process)]

    def _lines(self) -> list[str]:
        return [line for line in self.log.read_text().splitlines() if len(line.split()) == 2]


def _wrong(code: int, told: str, fatal: str) -> list[str]:
    """What is wrong with how a driver ended: of itself, by a kill, or of a fault that it must name."""
    wrong = [f"it says {word!r}: {told[-1500:]}" for word in ("damaged", "Traceback") if word in told]
    if not fatal:
        return wrong + ([f"it ended with {code}: {told[-500:]}"] if code > 0 else [])
    fault = FAULTS[fatal]
    if code < 0 and "jobs stored" in told:
        return wrong  # it had said how it ended, and was about to leave
    if code and (code != fault.code or fault.words not in told):
        wrong.append(f"of {fatal!r} it ended with {code}, not {fault.code}: {told[-500:]}")
    return wrong


def children(process: int) -> list[int]:
    """Processes started by another one."""
    told = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True)
    return [int(each) for each in told.stdout.split()]


def _alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _command(folder: Path, settings: Sequence[str], *options: str) -> list[str]:
    changes = [part for each in settings for part in ("-s", each)]
    return [*_PROGRAM, "run", STUDY, "--store", str(folder), *changes, *options]


def _digest(folder: Path, settings: Sequence[str]) -> str:
    changes = [part for each in settings for part in ("-s", each)]
    out = folder.with_name(f"{folder.name}-out")
    command = [*_PROGRAM, "report", STUDY, "--store", str(folder), "--out", str(out), *changes]
    subprocess.run(command, check=True, capture_output=True)
    return hashlib.sha256((out / "table.parquet").read_bytes()).hexdigest()
