"""A study whose every bit counts, and which leaves a trace of each time that a job is begun."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from basinscope.runs.scratch import Scratch
from basinscope.runs.study import Job, Result, Settings, Study

sys.path.insert(0, str(Path(__file__).parents[1]))
from survival import weather

LOG = "SURVIVAL_LOG"  # environment variable: a file that gets a line per job begun: which one, and by which process


class OrbitSettings(Settings):
    """How many orbits, how long, and how many seconds a job sleeps beside computing."""

    count: int = 64
    steps: int = 1000
    pause: float = 0.1


class Orbit(Job):
    """A chaotic orbit: a last bit that differs anywhere shows everywhere."""

    seed: int
    steps: int
    pause: float


class Orbits(Study):
    """Logistic maps from random starts."""

    name = "orbits"
    title = "Chaotic orbits"
    Settings = OrbitSettings
    Job = Orbit

    def jobs(self, settings: OrbitSettings) -> Iterator[Orbit]:
        for seed in range(settings.count):
            yield Orbit(seed=seed, steps=settings.steps, pause=settings.pause)

    def run(self, job: Orbit, scratch: Scratch) -> Result:
        if LOG in os.environ:
            with open(os.environ[LOG], "ab", buffering=0) as log:
                log.write(f"{job.seed} {os.getpid()}\n".encode())
        value = np.random.default_rng(job.seed).uniform()
        orbit = np.empty(job.steps)
        for step in range(job.steps):
            orbit[step] = value = 3.99 * value * (1 - value)
        time.sleep(job.pause)
        return Result([{"last": float(value), "mean": float(orbit.mean())}], {"orbit": orbit})


STUDY = Orbits()
weather.install()
