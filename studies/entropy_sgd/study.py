"""Entropy-SGD, settled: the published protocol at three lengths beside the calibrated basin at two resolutions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from basinscope.runs.results import Results
from basinscope.runs.scratch import Scratch, Unfinished
from basinscope.runs.study import Job, Result, Settings, Study
from studies.common.classifiers import images, standardized
from studies.common.keeping import one_by_one
from studies.common.pages import scale_of

from .measuring import Training, calibrated, networks, published

OPTIMIZERS = ("entropy-sgd", "sgd")
_FEW = 20.0  # seconds below which nothing new is begun


class EntropySettings(Settings):
    """Settings of the study.

    Attributes:
        data: of images; inputs are standardized.
        widths: of the hidden layers.
        samples: to train on, 0 for all.
        seeds: networks of each optimizer.
        together: networks that are trained and sampled as one job.
        epochs, train_batch, lr, inner_steps: of both optimizers, as for the study `llc`.
        lengths: of the published chains.
        step_size, chains, batch: of the published chains.
        gammas: of the calibrated λ̂; the first is that of the published chains too.
        budget: nominal seconds of each calibrated λ̂.
    """

    data: str = "mnist"
    widths: tuple[int, ...] = (1024, 1024)
    samples: int = 0
    seeds: int = 15
    together: int = 15
    epochs: int = 200
    train_batch: int = 512
    lr: float = 0.01
    inner_steps: int = 5
    lengths: tuple[int, ...] = (400, 4000, 40_000)
    step_size: float = 1e-5
    chains: int = 2
    batch: int = 512
    gammas: tuple[float, ...] = (100.0, 350.0)
    budget: float = 5.0


class Networks(Job):
    """Networks of one optimizer, trained as one population."""

    optimizer: str
    first: int
    count: int
    data: str
    widths: tuple[int, ...]
    samples: int
    epochs: int
    train_batch: int
    lr: float
    inner_steps: int
    lengths: tuple[int, ...]
    step_size: float
    chains: int
    batch: int
    gammas: tuple[float, ...]
    budget: float


class EntropyStudy(Study):
    """λ̂ of networks that Entropy-SGD and SGD train."""

    name = "entropy-sgd"
    title = "Entropy-SGD against SGD: what of the published difference of λ̂ is resolution, length, and step size"
    Settings = EntropySettings
    Job = Networks
    stops_in_time = True
    gpus = 1.0
    scales: Mapping[str, Mapping[str, Any]] = {
        "smoke": {
            "data": "digits", "widths": [8], "samples": 200, "seeds": 2, "together": 2, "epochs": 2, "train_batch": 32,
            "lengths": [40, 80], "chains": 2, "batch": 32, "step_size": 1e-4, "budget": 0.3,
        },
        "digits": {
            "data": "digits", "widths": [32], "samples": 1000, "seeds": 16, "together": 16, "train_batch": 64,
            "lr": 0.02, "batch": 64, "budget": 1.2,
        },
        "paper": {},
    }  # fmt: skip

    def jobs(self, settings: EntropySettings) -> Iterator[Networks]:
        s = settings
        for optimizer in OPTIMIZERS:
            for first in range(0, s.seeds, s.together):
                yield Networks(
                    optimizer=optimizer, first=first, count=min(s.together, s.seeds - first), data=s.data,
                    widths=s.widths, samples=s.samples, epochs=s.epochs, train_batch=s.train_batch, lr=s.lr,
                    inner_steps=s.inner_steps, lengths=s.lengths, step_size=s.step_size, chains=s.chains,
                    batch=s.batch, gammas=s.gammas, budget=s.budget,
                )  # fmt: skip

    def run(self, job: Networks, scratch: Scratch) -> Result:
        """The networks are trained anew by a job that goes on after a stop: that takes less than what it has kept."""
        found = networks(trainings(job), job.epochs, standardized(images(job.data, job.samples)))
        lands = [land for land, _ in found]

        def measured(name: str) -> list[dict[str, Any]]:
            """Of all networks by chains of one length, or of one network at one γ."""
            if scratch.seconds_left < _FEW:
                raise Unfinished
            kind, _, number = name.partition(" ")
            if kind == "sgld":
                return published(
                    lands, job.lengths, gamma=job.gammas[0], step_size=job.step_size, chains=job.chains,
                    batch=job.batch, seed=job.first,
                )  # fmt: skip
            place = int(number)
            return [calibrated(lands[place], gamma, job.budget, job.first + place) for gamma in job.gammas]

        names = ["sgld", *(f"calibrated {place}" for place in range(job.count))]
        chains, *each = one_by_one(names, measured, scratch.folder / "measured.json")
        return Result(
            [
                {**facts, **by_chains, **{name: value for row in both for name, value in row.items()}}
                for (_, facts), by_chains, both in zip(found, chains, each, strict=True)
            ]
        )

    def report(self, results: Results, folder: Path) -> Sequence[Path]:
        """`networks.csv`, `comparison.csv`, a figure and `README.md`."""
        from .report import write

        return write(results.table, {**results.provenance(), "scale": scale_of(self, results.settings)}, folder)


def trainings(job: Networks) -> list[Training]:
    """Of the networks of a job, each from its own seed."""
    return [
        Training(job.optimizer, seed, job.widths, job.train_batch, job.lr, job.inner_steps)
        for seed in range(job.first, job.first + job.count)
    ]


STUDY = EntropyStudy()
