"""Studies of a few milliseconds per job, for the tests of runs: sound ones, and some that misbehave."""

import os
import signal
import sys
import time
from pathlib import Path

import fsspec
import numpy as np
from fsspec.implementations.local import LocalFileSystem

from basinscope.runs.scratch import Unfinished
from basinscope.runs.study import Job, Result, Settings, Study
from basinscope.runs.sweep import Sweep


class Orbit(Job):
    seed: int
    steps: int = 500
    pause: float = 0.0


class OrbitSettings(Settings):
    count: int = 64
    steps: int = 500
    pause: float = 0.0


class Orbits(Study):
    """Chaotic orbits: a last bit that differs anywhere shows in the table."""

    name = "orbits"
    title = "Chaotic orbits"
    Settings = OrbitSettings
    Job = Orbit
    scales = {"smoke": {"count": 8}, "paper": {}}  # noqa: RUF012

    def jobs(self, settings):
        return [Orbit(seed=seed, steps=settings.steps, pause=settings.pause) for seed in range(settings.count)]

    def run(self, job, scratch):
        value = np.random.default_rng(job.seed).uniform()
        orbit = np.empty(job.steps)
        for step in range(job.steps):
            orbit[step] = value = 3.99 * value * (1 - value)
        time.sleep(job.pause)
        middle = job.steps // 2
        rows = [
            {"step": step, "value": float(orbit[step]), "mean": float(orbit[:step].mean())} for step in (middle, -1)
        ]
        return Result(rows, {"orbit": orbit})


class Mortal(Orbits):
    """Orbits, one of which takes its worker down the first time that the folder named by `FELL_ONCE` sees it."""

    name = "mortal"

    def run(self, job, scratch):
        folder = os.environ.get("FELL_ONCE")
        if folder and job.seed == 20 and not list(Path(folder).iterdir()):
            (Path(folder) / str(os.getpid())).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().run(job, scratch)


class Bird(Job):
    shape: str
    seed: int


class Flocks(Study):
    """Populations whose results depend on all members, as the last bits of batched training do."""

    name = "flocks"
    Job = Bird

    def jobs(self, settings):
        return [Bird(shape=shape, seed=seed) for seed in range(6) for shape in ("small", "large")] + [
            Bird(shape="lonely", seed=0)
        ]

    def group_key(self, job):
        return None if job.shape == "lonely" else (job.shape, job.seed // 4)

    def run(self, job, scratch):
        return {"company": 1, "sum": job.seed}

    def run_group(self, jobs, scratch):
        assert len({job.shape for job in jobs}) == 1
        return [{"company": len(jobs), "sum": sum(job.seed for job in jobs)} for _ in jobs]

    def cost(self, job):
        return 3.0 if job.shape == "large" else 1.0


class Caravans(Flocks):
    """Populations that hand out members two by two; after some stages the time is up, and the next run goes on."""

    name = "caravans"
    stages = 1000

    def run_group(self, jobs, scratch):
        state = scratch.load()
        start = 0 if state is None else int(state["start"])
        for first in range(start, len(jobs), 2):
            if scratch.seconds_left < 0 or self.stages == 0:
                raise Unfinished
            self.stages -= 1
            scratch.save({"start": np.int64(first + 2)})
            places = [place for place in (first, first + 1) if place in scratch.wanted]
            yield {place: {"company": len(jobs), "order": place, "resumed_at": start} for place in places}


class BrokenFlocks(Flocks):
    """Populations that fail as a whole because of one member, and one that reports its own failure."""

    name = "broken-flocks"

    def run_group(self, jobs, scratch):
        if any(job.seed == 5 for job in jobs):
            raise ArithmeticError("bird 5 cannot fly")
        return [ValueError("bird 1 is ill") if job.seed == 1 else {"company": len(jobs)} for job in jobs]


def trouble(kind: str, seed: int = 0):
    """Jobs that fail in various ways."""
    if kind == "raise":
        raise ZeroDivisionError("never works")
    if kind == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind == "die":
        os._exit(9)
    if kind == "exit":
        sys.exit(7)
    if kind == "column":
        return {"seed": 1}
    if kind == "object":
        return {"value": object()}
    if kind == "mixed":
        return Result([{"value": 1}, {"value": "text"}])
    if kind == "empty":
        return Result([])
    if kind == "number":
        return 3
    if kind == "noisy":
        print("printed by a job")
    return {"value": float(seed)}


def once(marker: str, seed: int):
    """Takes its worker down the first time it is run."""
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"value": seed}


def random_numbers(seed: int):
    """Uses the global random state, as code that was written elsewhere may."""
    return {"value": float(np.random.uniform())}  # noqa: NPY002


class Climb(Job):
    target: int


class Climbs(Study):
    """Saves its partial work and is interrupted once on the way."""

    name = "climbs"
    Job = Climb

    def jobs(self, settings):
        return [Climb(target=6)]

    def run(self, job, scratch):
        state = scratch.load()
        height = 0 if state is None else int(state["height"])
        (scratch.folder / "checkpoint").write_text(str(height))
        for step in range(height, job.target):
            scratch.save({"height": np.int64(step + 1)})
            if step == 3 and state is None:
                raise KeyboardInterrupt
        return {"resumed_at": height}


class SharedSystem(LocalFileSystem):
    """A disk that passes for object storage: all code for remote stores runs, in several processes."""

    protocol = "shared"

    @classmethod
    def _strip_protocol(cls, path):
        return LocalFileSystem._strip_protocol(str(path).removeprefix("shared://"))

    def pipe_file(self, path, value, mode="overwrite", **options):
        self.makedirs(os.path.dirname(path), exist_ok=True)
        super().pipe_file(path, value, mode=mode, **options)

    def mv(self, path1, path2, **options):
        self.makedirs(os.path.dirname(path2), exist_ok=True)
        super().mv(path1, path2, **options)


fsspec.register_implementation("shared", SharedSystem, clobber=True)


def placed(seed: int):
    """Which GPUs a job may see."""
    return {"visible": os.environ.get("CUDA_VISIBLE_DEVICES", "")}


ORBITS = Orbits()
MORTAL = Mortal()
FLOCKS = Flocks()
CARAVANS = Caravans()
BROKEN_FLOCKS = BrokenFlocks()
CLIMBS = Climbs()
TROUBLE = Sweep("trouble", trouble, {"grid": {"kind": ["fine"], "seed": [0, 1, 2]}})
ONCE = Sweep("once", once)
PLACED = Sweep("placed", placed, {"grid": {"seed": [0, 1, 2, 3]}})
RANDOM = Sweep("random", random_numbers, {"grid": {"seed": [0, 1, 2]}})

CURVATURES = [0.5, 1.0, 2.0, 4.0]


def chain_part(part: int, seed: int = 0):
    """Two chains of a measurement that is spread over workers."""
    import torch

    import basinscope as bs
    from basins import quadratic
    from basinscope.runs.chains import part_result, part_seed

    land = quadratic(CURVATURES, dtype=torch.float64)
    return part_result(
        bs.llc(land, sampler="sgld", gamma=1.0, chains=2, draws=512, seed=part_seed(seed, part), progress=False)
    )


CHAINS = Sweep("chains", chain_part, {"grid": {"part": [0, 1]}})
