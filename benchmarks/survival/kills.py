"""Kill a worker, the driver or everything at random moments, start again, and see what is left."""

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

from .orbits import LOG

VICTIMS = ("a worker", "the driver", "everything")
STUDY = f"{Path(__file__).with_name('orbits.py')}:STUDY"
_PATIENCE = 5.0  # seconds, on average, to wait until jobs run: some kills meet a driver that is only starting
_PROGRAM = [sys.executable, "-c", "from basinscope.cli import main; main()", "study"]


@dataclass
class Attack:
    """What happened to one study.

    Attributes:
        kills: how often each kind of victim was killed.
        begun: how often a job was begun, all starts of the driver together.
        in_flight: jobs that the kills may have cost: one for a worker, one per worker for the others.
        starts: of the driver.
        orphans: worker processes that outlived their driver by more than the grace they were given.
        digest: of the final table's bytes.
        complaints: what went wrong.
    """

    kills: Counter[str] = field(default_factory=Counter)
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
    """A kill as the seed has it: all that chance decides is drawn before anything is waited for.

    Attributes:
        victim: which kind.
        patience: seconds to wait until a job has begun.
        pause: seconds after that.
        place: of the worker among those that live, in [0, 1).
    """

    victim: str
    patience: float
    pause: float
    place: float


def strikes(seed: int) -> Iterator[Strike]:
    """The kills of a seed, without end.

    Examples:
        >>> [strike.victim for strike, _ in zip(strikes(0), range(3))]
        ['the driver', 'everything', 'the driver']
    """
    rng = random.Random(seed)
    while True:
        yield Strike(rng.choice(VICTIMS), rng.expovariate(1 / _PATIENCE), rng.uniform(0, 1), rng.random())


def attacked(
    folder: Path, settings: Sequence[str], *, kills: int, seed: int, workers: int = 2, grace: float = 2.0
) -> Attack:
    """Run a study with at most `kills` kills on the way, then to its end.

    Args:
        folder, settings: where, and changes to the study's settings.
        kills: most of them; a run that ends sooner gets fewer.
        seed: of the kills.
        workers: of each run.
        grace: seconds that workers may outlive their driver.
    """
    planned = strikes(seed)
    attack = Attack()
    with tempfile.NamedTemporaryFile() as log:
        environment = os.environ | {LOG: log.name}
        while True:
            attack.starts += 1
            driver = subprocess.Popen(
                _command(folder, settings, "--workers", str(workers)),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                text=True,
            )
            before = _begun(log.name)
            while attack.kills.total() < kills and driver.poll() is None:
                strike = next(planned)
                until = time.monotonic() + strike.patience
                while time.monotonic() < until and _begun(log.name) == before and driver.poll() is None:
                    time.sleep(0.01)
                time.sleep(strike.pause)
                _carry_out(strike, attack, driver, workers, grace)
            told, _ = driver.communicate(timeout=120)
            if driver.returncode >= 0:
                break
        if driver.returncode != 0:
            attack.complaints.append(f"the last run ended with {driver.returncode}: {told[-500:]}")
        if "damaged" in told:
            attack.complaints.append(told)
        attack.begun = _begun(log.name)
    attack.digest = _digest(folder, settings)
    return attack


def _carry_out(strike: Strike, attack: Attack, driver: subprocess.Popen[str], workers: int, grace: float) -> None:
    """Kill the victim, if it still lives."""
    victim, crew = strike.victim, children(driver.pid)
    if driver.poll() is not None or (victim == "a worker" and not crew):
        return
    one = crew[int(strike.place * len(crew)) :][:1]
    targets = {"a worker": one, "the driver": [driver.pid], "everything": [driver.pid, *crew]}
    for target in targets[victim]:
        try:
            os.kill(target, signal.SIGKILL)
        except ProcessLookupError:
            continue
    attack.kills[victim] += 1
    attack.in_flight += 1 if victim == "a worker" else workers
    if victim != "a worker":
        driver.wait()
        deadline = time.monotonic() + grace
        while any(map(_alive, crew)) and time.monotonic() < deadline:
            time.sleep(0.01)
        attack.orphans += sum(map(_alive, crew))


def _begun(log: str) -> int:
    """How many jobs were begun so far."""
    return len(Path(log).read_text().split())


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
