"""Which criterion chooses best: WBIC, free energy, WAIC, leave-one-out, BIC, AIC and TIC under one fixed prior."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from basinscope.runs.results import Results
from basinscope.runs.scratch import Scratch
from basinscope.runs.study import Job, Result, Settings, Study

from .scoring import row
from .truths import SIZES, TRUTHS

Name = Literal["regular", "singular-ranks", "singular-tanh", "singular-mixture", "unrealizable"]


class SelectionSettings(Settings):
    """Which truths and sizes, and how often.

    Attributes:
        truths: which.
        samples: sizes n of the data.
        data_sets: of each size.
        gamma: precision γ of the prior N(0, 1/γ) of every weight of every candidate.
        particles: of the sampler of ranks; all else is integrated.
        repeats: independent samplers, whose differences tell the Monte Carlo error.
    """

    truths: tuple[Name, ...] = ("regular", "singular-ranks", "singular-tanh", "singular-mixture", "unrealizable")
    samples: tuple[int, ...] = (50, 200, 800)
    data_sets: int = 50
    gamma: float = 1.0
    particles: int = 500
    repeats: int = 2


class Choice(Job):
    """One data set and all candidates; particles and repeats are 0 where nothing is sampled."""

    truth: Name
    samples: int
    gamma: float
    particles: int
    repeats: int
    seed: int


class Selection(Study):
    """Every criterion chooses a size; the Bayes prediction of the chosen candidate is scored on the truth."""

    name = "wbic-selection"
    title = "Which criterion chooses the model that predicts best, and which one the true model"
    version = 3
    Settings = SelectionSettings
    Job = Choice
    scales: Mapping[str, Mapping[str, Any]] = {
        "smoke": {"samples": [50], "data_sets": 4, "particles": 100},
        "paper": {},
    }

    def jobs(self, settings: SelectionSettings) -> Iterator[Choice]:
        for truth in settings.truths:
            sampled = truth == "singular-ranks"
            for samples in settings.samples:
                for seed in range(settings.data_sets):
                    yield Choice(
                        truth=truth,
                        samples=samples,
                        gamma=settings.gamma,
                        particles=settings.particles if sampled else 0,
                        repeats=settings.repeats if sampled else 0,
                        seed=seed,
                    )

    def cost(self, job: Choice) -> float:
        return 1.0 if job.particles else 0.1

    def run(self, job: Choice, scratch: Scratch) -> Result:
        truth = TRUTHS[job.truth]
        return Result([
            {"size": size, **row(truth, size, job.samples, job.gamma, job.particles, job.repeats, job.seed)}
            for size in SIZES
        ])  # fmt: skip

    def report(self, results: Results, folder: Path) -> Sequence[Path]:
        """`choices.csv`, a figure and `README.md`."""
        from .report import write

        return write(results.table, results.provenance(), folder)


STUDY = Selection()
