"""What a worker is asked to do, and what it answers. Needs the standard library only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parents[1]
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Job:
    """An estimate of λ: of which problem, and with which settings, named as `bs.llc` names them."""

    problem: str  # path
    settings: dict[str, Any] = field(default_factory=dict)
    warm: bool = False  # run once, briefly, before the clock starts


@dataclass
class Result:
    """What came out and what it took."""

    value: float = float("nan")
    cpu: float = float("nan")
    wall: float = float("nan")
    draws: int = 0  # over all chains
    remark: str = ""
    details: dict[str, Any] = field(default_factory=dict)


@contextmanager
def timed(result: Result) -> Iterator[None]:
    """CPU and wall seconds of the block."""
    cpu, wall = time.process_time(), time.perf_counter()
    try:
        yield
    finally:
        result.cpu, result.wall = time.process_time() - cpu, time.perf_counter() - wall


def run(python: str | Path, worker: str, jobs: list[Job]) -> list[Result]:
    """Do the jobs, one after another on one thread, in a process of the given environment."""
    environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(BENCHMARKS), "PYTHONWARNINGS": "ignore"}
    process = subprocess.run(
        [python, "-m", worker],
        input=json.dumps([asdict(job) for job in jobs]),
        env=environment,
        capture_output=True,
        text=True,
    )
    if process.returncode:
        raise RuntimeError(f"{worker} failed:\n{process.stderr[-2000:]}")
    return [Result(**entry) for entry in json.loads(process.stdout.splitlines()[-1])]


def serve(estimate: Callable[[Job, Result], None]) -> None:
    """A worker's main loop: read jobs, answer with results; a crash is a result with a remark."""
    answer, sys.stdout = sys.stdout, sys.stderr  # whatever libraries print stays out of the answer
    results = []
    for entry in json.load(sys.stdin):
        job, result = Job(**entry), Result()
        try:
            if job.warm:
                estimate(Job(job.problem, {**job.settings, "draws": 20}), Result())
            estimate(job, result)
        except Exception as problem:  # the peer's failure is the finding
            result.remark = f"{type(problem).__name__}: {problem}"[:200]
        results.append(asdict(result))
    print(json.dumps(results), file=answer)
