"""The study as `basinscope study` runs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from basinscope.runs.results import Results
from basinscope.runs.scratch import Scratch
from basinscope.runs.study import Job, Result, Settings, Study

from . import measuring
from .chains import DEFECTS


class InfluenceSettings(Settings):
    """Settings of the study.

    Attributes:
        regressions: samples of the linear regressions whose influences are known.
        data: sets of images that are trained on again and again, and whose labels are made wrong.
        samples, queries: of each.
        subsets: random halves of the samples that are trained on.
        decay, steps: of every training.
        damping: γ of chains, as a multiple of nβ·decay.
        dampings: the same of EK-FAC.
        draws: of 32 chains.
        share: of wrong labels.
        duplicates: images that the kernel sees twice; 0 leaves it out.
        widths: of the transformers whose heads are told apart.
        head_draws, head_samples, head_steps: of these.
        nbeta, gamma: the resolution at which they are.
        kinds: defects of chains.
        sound, defective: runs of sound chains, and of those with each defect.
        seeds: repetitions of everything on images.
    """

    regressions: tuple[int, ...] = (500,)
    data: tuple[str, ...] = ("digits", "mnist")
    samples: int = 300
    queries: int = 60
    subsets: int = 32
    decay: float = 3e-3
    steps: int = 400
    damping: float = 10.0
    dampings: tuple[float, ...] = (1.0, 10.0)
    draws: int = 250
    share: float = 0.1
    duplicates: int = 12
    widths: tuple[int, ...] = (32,)
    head_draws: int = 80
    head_samples: int = 24
    head_steps: int = 1000
    nbeta: float = 10.0
    gamma: float = 100.0
    kinds: tuple[str, ...] = ("sound", *DEFECTS)
    sound: int = 20
    defective: int = 5
    seeds: int = 1


class Regression(Job):
    """Influence on a regression, beside the exact one."""

    samples: int
    draws: int
    seed: int
    part: Literal["regression"] = "regression"


class Retraining(Job):
    """Influence beside trainings on half of the data."""

    data: str
    samples: int
    queries: int
    subsets: int
    decay: float
    steps: int
    damping: float
    dampings: tuple[float, ...]
    draws: int
    seed: int
    part: Literal["retraining"] = "retraining"


class Mislabelled(Job):
    """Wrong labels found by self-influence."""

    data: str
    samples: int
    share: float
    decay: float
    steps: int
    damping: float
    draws: int
    seed: int
    part: Literal["mislabelled"] = "mislabelled"


class Kernel(Job):
    """The kernel of losses of digits, some of them twice."""

    samples: int
    duplicates: int
    decay: float
    steps: int
    damping: float
    draws: int
    seed: int
    part: Literal["kernel"] = "kernel"


class Heads(Job):
    """Susceptibilities of the heads of a transformer."""

    width: int
    samples: int
    steps: int
    nbeta: float
    gamma: float
    draws: int
    seed: int
    part: Literal["heads"] = "heads"


class Audited(Job):
    """What the auditor says of chains of one kind."""

    kind: str
    runs: int
    part: Literal["audit"] = "audit"


AnyJob = Regression | Retraining | Mislabelled | Kernel | Heads | Audited


class Influence(Study):
    """Covariances over the posterior beside exact values, retraining, and other ways; the auditor on known chains."""

    name = "influence"
    title = "What chains know besides λ̂: influence, kernels, susceptibilities and the auditor, each beside the truth"
    Settings = InfluenceSettings
    Job = AnyJob
    scales: Mapping[str, Mapping[str, Any]] = {
        "smoke": {
            "regressions": [60], "data": ["digits"], "samples": 60, "queries": 8, "subsets": 4, "steps": 40,
            "dampings": [10.0], "draws": 20, "duplicates": 4, "widths": [8], "head_draws": 16, "head_samples": 8,
            "head_steps": 20, "kinds": ["sound", "step-size bias"], "sound": 2, "defective": 1,
        },
        "paper": {},
    }  # fmt: skip

    def jobs(self, settings: InfluenceSettings) -> Iterator[AnyJob]:
        s = settings
        for kind in s.kinds:
            yield Audited(kind=kind, runs=s.sound if kind == "sound" else s.defective)
        for samples in s.regressions:
            yield Regression(samples=samples, draws=s.draws, seed=0)
        trained: dict[str, Any] = {
            "samples": s.samples, "decay": s.decay, "steps": s.steps, "damping": s.damping, "draws": s.draws
        }  # fmt: skip
        for data in s.data:
            for seed in range(s.seeds):
                yield Retraining(
                    data=data, queries=s.queries, subsets=s.subsets, dampings=s.dampings, seed=seed, **trained
                )
                yield Mislabelled(data=data, share=s.share, seed=seed, **trained)
        if s.duplicates:
            yield Kernel(duplicates=s.duplicates, seed=0, **trained)
        for width in s.widths:
            yield Heads(
                width=width, samples=s.head_samples, steps=s.head_steps, nbeta=s.nbeta, gamma=s.gamma,
                draws=s.head_draws, seed=0,
            )  # fmt: skip

    def run(self, job: AnyJob, scratch: Scratch) -> Result:
        if isinstance(job, Audited):
            return Result(measuring.audited(job.kind, job.runs, 0))
        if isinstance(job, Regression):
            return Result(measuring.regression(job.samples, 5, 50, job.draws, job.seed))
        if isinstance(job, Retraining):
            return Result(measuring.retraining(
                job.data, job.samples, job.queries, job.subsets, job.decay, job.steps, job.damping, job.dampings,
                job.draws, job.seed,
            ))  # fmt: skip
        if isinstance(job, Mislabelled):
            return Result(measuring.mislabelled(
                job.data, job.samples, job.share, job.decay, job.steps, job.damping, job.draws, job.seed
            ))  # fmt: skip
        if isinstance(job, Kernel):
            return Result(measuring.kernel(
                job.samples, job.duplicates, job.decay, job.steps, job.damping, job.draws, job.seed
            ))  # fmt: skip
        return Result(measuring.heads(
            job.width, 4, job.samples, job.steps, job.nbeta, job.gamma, 8, job.draws, 1.0, job.seed
        ))  # fmt: skip

    def report(self, results: Results, folder: Path) -> Sequence[Path]:
        """A table for each part, two figures and `README.md`."""
        from .report import write

        return write(results.table, results.provenance(), folder)


STUDY = Influence()
