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
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .orbits import LOG

VICTIMS = ("a worker", "the driver", "everything")
STUDY = f"{Path(__file__).with_name('orbits.py')}:STUDY"
_BUSY = 0.998  # chance, every 10 ms, to wait until jobs run: some kills meet a driver that is only starting
_PROGRAM = [sys.executable, "-c", "from basinscope.cli import main; main()", "study"]


@dataclass
class Attack:
    """What happened to one study.

    Attributes:
        kills: how often each kind of victim was killed.
        begun: how often a job was begun, all starts of the driver together.
        in_flight: jobs that the kills may have cost: one for a worker, one per worker for the others.
        starts: of the driver.
        orphans: worker processes that outlived their driver by two seconds.
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


def attacked(folder: Path, settings: Sequence[str], *, kills: int, seed: int, workers: int = 2) -> Attack:
    """Run a study with at most `kills` kills on the way, then to its end."""
    rng = random.Random(seed)
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
                while rng.random() < _BUSY and _begun(log.name) == before and driver.poll() is None:
                    time.sleep(0.01)
                time.sleep(rng.uniform(0, 1))
                _strike(attack, driver, rng.choice(VICTIMS), rng, workers)
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


def _strike(attack: Attack, driver: subprocess.Popen[str], victim: str, rng: random.Random, workers: int) -> None:
    """Kill the victim, if it still lives."""
    crew = children(driver.pid)
    if driver.poll() is not None or (victim == "a worker" and not crew):
        return
    targets = {"a worker": crew and [rng.choice(crew)], "the driver": [driver.pid], "everything": [driver.pid, *crew]}
    for target in targets[victim]:
        try:
            os.kill(target, signal.SIGKILL)
        except ProcessLookupError:
            continue
    attack.kills[victim] += 1
    attack.in_flight += 1 if victim == "a worker" else workers
    if victim != "a worker":
        driver.wait()
        deadline = time.monotonic() + 2
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
