"""λ̂ through the training of small transformers, with everything else that changes, and the stages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from basinscope.landscape import watanabe_nbeta
from basinscope.runs.results import Results
from basinscope.runs.scratch import Scratch
from basinscope.runs.study import Job, Result, Settings, Study
from studies.common.checkpoints import checkpoints, moments
from studies.common.measuring import device
from studies.common.pages import scale_of

from .growing import budget, developed, digest
from .tasks import regression_task, text_task


class DevelopmentSettings(Settings):
    """Settings of the study.

    Attributes:
        tasks: `text`, `regression`.
        seeds: of each.
        checkpoints: of a training, at equal ratios of steps; of the first ones some fall together.
        text_steps, regression_steps: of the trainings.
        batch, regression_batch, rate: of Adam.
        megabytes: of text.
        vocabulary, context, width, heads: of the transformer that reads text: two layers of attention alone.
        sequences: of text on which everything is measured, and of the regression.
        regression_tasks: sequences to train on, each with a w of its own.
        dimension, examples: of the regression.
        regression_layers, regression_width, regression_heads: of its transformer.
        parts: kinds of parts with a λ̂ of their own.
        parts_every: so many checkpoints, counted back from the last.
        sampler: of all λ̂.
        draws, chains, sampled: steps of a chain, how many there are, and sequences of a batch, of text and of the
            regression; 0 for what the budget affords.
        budget: nominal seconds of the network, and of all parts of a kind, at a checkpoint.
        rtol: wanted standard error of each λ̂.
    """

    tasks: tuple[str, ...] = ("text", "regression")
    seeds: tuple[int, ...] = (0, 1)
    checkpoints: int = 46
    text_steps: int = 12_000
    regression_steps: int = 20_000
    batch: int = 64
    regression_batch: int = 256
    rate: float = 1e-3
    megabytes: float = 25.0
    vocabulary: int = 1024
    context: int = 128
    width: int = 512
    heads: int = 8
    sequences: tuple[int, int] = (512, 4096)
    regression_tasks: int = 262_144
    dimension: int = 4
    examples: int = 8
    regression_layers: int = 2
    regression_width: int = 64
    regression_heads: int = 4
    parts: tuple[str, ...] = ("layer", "head")
    parts_every: int = 12
    sampler: str = "lean"
    draws: tuple[int, int] = (80, 120)
    chains: tuple[int, int] = (4, 4)
    sampled: tuple[int, int] = (16, 128)
    budget: float = 60.0
    rtol: float = 0.05


class OnText(Job):
    """A transformer that learns real text."""

    seed: int
    moments: tuple[int, ...]
    batch: int
    rate: float
    megabytes: float
    vocabulary: int
    context: int
    width: int
    heads: int
    sequences: int
    parts: tuple[str, ...]
    parts_every: int
    sampler: str
    draws: int
    chains: int
    sampled: int
    budget: float
    rtol: float
    task: Literal["text"] = "text"


class OnRegression(Job):
    """A transformer that learns linear regression in context."""

    seed: int
    moments: tuple[int, ...]
    batch: int
    rate: float
    tasks: int
    dimension: int
    examples: int
    layers: int
    width: int
    heads: int
    sequences: int
    parts: tuple[str, ...]
    parts_every: int
    sampler: str
    draws: int
    chains: int
    sampled: int
    budget: float
    rtol: float
    task: Literal["regression"] = "regression"


class DevelopmentStudy(Study):
    """Transformers growing up."""

    name = "development"
    title = "Transformers growing up: on text, and on linear regression in context"
    Settings = DevelopmentSettings
    Job = OnText | OnRegression
    stops_in_time = True
    gpus = 1.0
    scales: Mapping[str, Mapping[str, Any]] = {
        "smoke": {
            "seeds": [0], "checkpoints": 3, "text_steps": 20, "regression_steps": 20, "batch": 8, "megabytes": 0.05,
            "vocabulary": 256, "context": 16, "width": 8, "heads": 2, "sequences": [16, 32], "regression_tasks": 64,
            "dimension": 2, "examples": 8, "regression_width": 8, "regression_heads": 2, "regression_batch": 8,
            "parts": [], "sampler": "auto", "draws": [0, 0], "chains": [0, 0], "sampled": [0, 0], "budget": 1.0,
            "rtol": 0.5,
        },
        "small": {
            "text_steps": 20_000, "regression_steps": 20_000, "batch": 32, "megabytes": 3.4, "vocabulary": 512,
            "context": 64, "width": 64, "heads": 4, "sequences": [128, 512], "regression_tasks": 32_768,
            "regression_width": 32, "regression_heads": 2, "regression_batch": 32, "parts": [], "sampler": "auto",
            "draws": [0, 0], "chains": [0, 0], "sampled": [0, 0], "budget": 2.0, "rtol": 0.1,
        },
        "paper": {},
    }  # fmt: skip

    def jobs(self, settings: DevelopmentSettings) -> Iterator[OnText | OnRegression]:
        s = settings

        def of(place: int) -> dict[str, Any]:
            """What both tasks have, the first one's or the second's."""
            return {
                "batch": (s.batch, s.regression_batch)[place], "rate": s.rate, "sequences": s.sequences[place],
                "parts": s.parts, "parts_every": s.parts_every, "sampler": s.sampler, "draws": s.draws[place],
                "chains": s.chains[place], "sampled": s.sampled[place], "budget": s.budget, "rtol": s.rtol,
            }  # fmt: skip

        for seed in s.seeds:
            if "text" in s.tasks:
                yield OnText(
                    seed=seed, moments=moments(s.text_steps, s.checkpoints), megabytes=s.megabytes,
                    vocabulary=s.vocabulary, context=s.context, width=s.width, heads=s.heads, **of(0),
                )  # fmt: skip
            if "regression" in s.tasks:
                yield OnRegression(
                    seed=seed, moments=moments(s.regression_steps, s.checkpoints), tasks=s.regression_tasks,
                    dimension=s.dimension, examples=s.examples, layers=s.regression_layers,
                    width=s.regression_width, heads=s.regression_heads, **of(1),
                )  # fmt: skip

    def run(self, job: OnText | OnRegression, scratch: Scratch) -> Result:
        if isinstance(job, OnText):
            task = text_task(
                job.seed, megabytes=job.megabytes, vocabulary=job.vocabulary, context=job.context, width=job.width,
                heads=job.heads,
            )  # fmt: skip
        else:
            task = regression_task(
                job.seed, tasks=job.tasks, dimension=job.dimension, examples=job.examples, layers=job.layers,
                width=job.width, heads=job.heads,
            )  # fmt: skip
        data, positions = digest(task), task.y.shape[1]
        folder = checkpoints(
            task.network.to(device()), (task.x, task.y), task.loss, job.moments, rate=job.rate, batch=job.batch,
            seed=job.seed, scratch=scratch,
        )  # fmt: skip
        how: dict[str, Any] = {
            "nbeta": watanabe_nbeta(job.sequences) / positions, "sampler": job.sampler, "draws": job.draws or None,
            "chains": job.chains or None, "batch_size": job.sampled or None, "budget": budget(job.budget),
            "rtol": job.rtol, "seed": 0,
        }  # fmt: skip
        result = developed(task, folder, job.sequences, job.parts, job.parts_every, how, scratch)
        table = result.to_dataframe().to_dict("records")
        rows = [{name: value for name, value in row.items() if value == value} for row in table]  # without NaN
        for row in rows:
            row |= {name: row[name] / positions for name in ("loss", "loss_stderr") if name in row}
        shared: dict[str, Any] = {
            "data": data,
            **{f"share{axis + 1}": share for axis, share in enumerate(result.shares)},
        }
        ends = [
            {"curve": name, "end": each.at, "end_low": each.low, "end_high": each.high, "support": each.support}
            for name, own in result.boundaries.items()
            for each in own
        ]
        return Result([{"kind": "checkpoint", **shared, **row} for row in rows]
                      + [{"kind": "stage", **shared, **row} for row in ends])  # fmt: skip

    def report(self, results: Results, folder: Path) -> Sequence[Path]:
        """`checkpoints.csv`, `stages.csv`, a figure for each task and `README.md`."""
        from .report import write

        return write(results.table, {**results.provenance(), "scale": scale_of(self, results.settings)}, folder)


STUDY = DevelopmentStudy()
