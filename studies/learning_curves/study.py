"""How fast do singular models learn: n times the Bayes and Gibbs errors beside λ and ν, and cross-validation.

Watanabe's Theorem 2 at inverse temperature β, with λ the learning coefficient and ν the singular fluctuation:

    nE[Bg] → (λ − ν)/β + ν       nE[Gg] → λ/β + ν       n(Bg + Bt) + V → 2λ/β in the mean
    nE[Bt] → (λ − ν)/β − ν       nE[Gt] → λ/β − ν       n(Bg + Cv) − (β − 1)V → 2λ/β for every data set
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from basinscope.runs.results import Results
from basinscope.runs.scratch import Scratch
from basinscope.runs.study import Job, Result, Settings, Study
from studies.common.integration.cases import CASES

from .measuring import errors

Model = Literal["mixture", "tanh", "reduced-rank"]

FIRST_SEED = 10_000


class CurveSettings(Settings):
    """Which models and sizes, and how often.

    Attributes:
        models: which.
        samples: sizes n of the data.
        tempered_samples: those of them at which other temperatures are taken as well.
        betas: the other inverse temperatures.
        data_sets: of each size.
    """

    models: tuple[Model, ...] = ("mixture", "tanh", "reduced-rank")
    samples: tuple[int, ...] = (50, 100, 200, 400, 800, 1600, 3200)
    tempered_samples: tuple[int, ...] = (50, 200, 800)
    betas: tuple[float, ...] = (0.5, 2.0)
    data_sets: int = 40


class Posteriors(Job):
    """One data set and its posteriors at some inverse temperatures."""

    model: Model
    samples: int
    betas: tuple[float, ...]
    seed: int


class LearningCurves(Study):
    """Bayes, Gibbs and leave-one-out errors, relative to the truth, over n, by exact integration."""

    name = "learning-curves"
    title = "n times the generalization error beside λ, and its anti-correlation with leave-one-out"
    version = 2
    Settings = CurveSettings
    Job = Posteriors
    scales: Mapping[str, Mapping[str, Any]] = {
        "smoke": {"samples": [50, 100, 200], "tempered_samples": [100], "data_sets": 6},
        "paper": {},
    }

    def jobs(self, settings: CurveSettings) -> Iterator[Posteriors]:
        for model in settings.models:
            for samples in settings.samples:
                others = settings.betas if samples in settings.tempered_samples else ()
                for seed in range(settings.data_sets):
                    yield Posteriors(model=model, samples=samples, betas=(1.0, *others), seed=seed)

    def cost(self, job: Posteriors) -> float:
        return len(job.betas) * (1 + job.samples / 400) * (0.1 if job.model == "mixture" else 1)

    def run(self, job: Posteriors, scratch: Scratch) -> Result:
        case = CASES[job.model]
        x, y = case.draw(job.samples, FIRST_SEED + job.seed)
        return Result([{"beta": beta, **errors(case, x, y, beta)} for beta in job.betas])

    def report(self, results: Results, folder: Path) -> Sequence[Path]:
        """`summary.csv` at β = 1, `temperatures.csv` at others, two figures and `README.md`."""
        from .report import write

        return write(results.table, results.provenance(), folder)


STUDY = LearningCurves()
