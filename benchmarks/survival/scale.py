"""Ten thousand jobs that do nothing: what running, resuming and asking cost."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from basinscope.runs.driver import run
from basinscope.runs.executors.local import Local
from basinscope.runs.sweep import Sweep

_PROGRAM = [sys.executable, "-c", "from basinscope.cli import main; main()", "study"]


def nothing(seed: int) -> dict[str, Any]:
    """A job without work: all its time is overhead."""
    return {"value": seed}


STUDY = Sweep("nothing", nothing, {"grid": {"seed": list(range(10_000))}})
REFERENCE = f"{Path(__file__)}:STUDY"


@dataclass(frozen=True)
class Scale:
    """Seconds: per job with local workers (passing, and of all processors), and of commands on a full store."""

    jobs: int
    wall_per_job: float
    cpu_per_job: float
    status: float
    resume: float
    table: float


def measured(folder: Path, jobs: int, workers: int) -> Scale:
    """Run the jobs on local workers, then time the commands as a user would, start of Python included."""
    settings = {"grid": {"seed": list(range(jobs))}}
    before, started = _cpu(), time.perf_counter()
    summary = run(REFERENCE, folder, settings=settings, on=Local(workers), progress=False)
    wall, cpu = time.perf_counter() - started, _cpu() - before
    assert summary.complete, summary
    choice = ["-s", f"grid.seed={settings['grid']['seed']}"]
    return Scale(
        jobs,
        wall / jobs,
        cpu / jobs,
        _timed("status", "--store", str(folder)),
        _timed("run", REFERENCE, "--store", str(folder), *choice),
        _timed("report", REFERENCE, "--store", str(folder), "--out", str(folder.with_name("out"))),
    )


def _timed(*arguments: str) -> float:
    """The least of five times: what else runs on the machine can only add to it."""
    times = []
    for _ in range(5):
        started = time.perf_counter()
        subprocess.run([*_PROGRAM, *arguments], check=True, capture_output=True)
        times.append(time.perf_counter() - started)
    return min(times)


def _cpu() -> float:
    return sum(
        used.ru_utime + used.ru_stime
        for used in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )
