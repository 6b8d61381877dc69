"""Null directions of trained networks beside λ̂, and λ̂ beside test loss through the interpolation threshold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from basinscope.runs.results import Results
from basinscope.runs.scratch import Scratch
from basinscope.runs.study import Job, Result, Settings, Study

from .measuring import census, descent


class TrainedSettings(Settings):
    """Settings of the study.

    Attributes:
        architectures: widths of the hidden layers of the census.
        census_seeds: networks of each.
        census_steps: of Adam on all digits.
        census_samples, census_budget: digits on which the census takes λ̂, and nominal seconds for it.
        nbeta: at which the census takes λ̂.
        widths: of the hidden layer through the interpolation threshold.
        samples, noise: digits to learn from, and the share of labels drawn at random.
        seeds: networks of each width, each on data of its own.
        steps: of Adam on these.
        gamma: γ of their λ̂, of the order of d/‖w*‖²: a weaker one lets chains forget the network.
        budget: nominal seconds of λ̂ of each of these.
    """

    architectures: tuple[tuple[int, ...], ...] = ((4,), (8,), (16,), (4, 4), (6, 6), (8, 8), (6, 6, 6))
    census_seeds: int = 3
    census_steps: int = 400
    census_samples: int = 400
    census_budget: float = 60.0
    nbeta: float = 1e4
    widths: tuple[int, ...] = (2, 4, 6, 8, 10, 12, 13, 14, 16, 18, 21, 26, 40, 80, 160)
    samples: int = 100
    noise: float = 0.2
    seeds: int = 10
    steps: int = 6000
    gamma: float = 100.0
    budget: float = 4.0


class Census(Job):
    """A trained classifier."""

    architecture: tuple[int, ...]
    steps: int
    samples: int
    nbeta: float
    budget: float
    seed: int
    part: Literal["census"] = "census"


class Width(Job):
    """A network of one width on few samples."""

    width: int
    samples: int
    noise: float
    steps: int
    gamma: float
    budget: float
    seed: int
    part: Literal["descent"] = "descent"


class TrainedNetworks(Study):
    """Networks on the digits."""

    name = "trained-networks"
    title = "Null directions and double descent of ReLU networks on the digits"
    Settings = TrainedSettings
    Job = Census | Width
    scales: Mapping[str, Mapping[str, Any]] = {
        "smoke": {
            "architectures": [[4]], "census_seeds": 1, "census_steps": 50,
            "census_budget": 0.5, "widths": [2, 8], "seeds": 1, "samples": 40,
            "steps": 200, "budget": 0.5,
        },
        "paper": {},
    }  # fmt: skip

    def jobs(self, settings: TrainedSettings) -> Iterator[Census | Width]:
        s = settings
        for width in s.widths:
            for seed in range(s.seeds):
                yield Width(
                    width=width, samples=s.samples, noise=s.noise, steps=s.steps, gamma=s.gamma, budget=s.budget,
                    seed=seed,
                )  # fmt: skip
        for architecture in s.architectures:
            for seed in range(s.census_seeds):
                yield Census(
                    architecture=architecture, steps=s.census_steps, samples=s.census_samples, nbeta=s.nbeta,
                    budget=s.census_budget, seed=seed,
                )  # fmt: skip

    def run(self, job: Census | Width, scratch: Scratch) -> Result:
        if isinstance(job, Census):
            return Result([census(job.architecture, job.steps, job.samples, job.nbeta, job.budget, job.seed)])
        return Result([descent(job.width, job.samples, job.noise, job.steps, job.gamma, job.budget, job.seed)])

    def report(self, results: Results, folder: Path) -> Sequence[Path]:
        """`census.csv`, `descent.csv`, a figure and `README.md`."""
        from .report import write

        return write(results.table, results.provenance(), folder)


STUDY = TrainedNetworks()
