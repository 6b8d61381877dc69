"""The study as `basinscope study` runs it: settings, jobs and populations are those of the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ...runs import study as base
from ...runs.results import Results
from ...runs.scratch import Scratch
from ...runs.study import Finding, Result, Study
from ..declared import model_of
from . import plan
from .figures import draw
from .page import page
from .running import run_unit
from .tables import tables, targets

NAME = "llc"


LlcSettings: Any = model_of(plan.Plan, "LlcSettings", base.Settings)
_JOBS: dict[str, Any] = {part: model_of(kind, f"Llc{kind.__name__}", base.Job) for part, kind in plan.KINDS.items()}
_TRUTH, _RESOLUTION, _ATLAS, _ENTROPY, _BEYOND, _COST = (_JOBS[part] for part in plan.PARTS)
LlcJob: Any = Annotated[
    _TRUTH | _RESOLUTION | _ATLAS | _ENTROPY | _BEYOND | _COST, Field(discriminator="part")
]  # fmt: skip


class Llc(Study):
    """The experiments of paper 003 with known answers beside them, and others that it only mentions."""

    name = NAME
    title = "The learning coefficient from toy models to transformers"
    Settings = LlcSettings
    Job = LlcJob
    scales: Mapping[str, Mapping[str, Any]] = plan.SCALES
    population = 128
    gpus = 1.0

    def jobs(self, settings: Any) -> Iterator[Any]:
        for job in plan.jobs(plan.Plan(**settings.model_dump())):
            yield _JOBS[job.part](**job.config())

    def group_key(self, job: Any) -> Any:
        return plan.together(plan.job_of(job.config()))

    def cost(self, job: Any) -> float:
        return plan.cost(plan.job_of(job.config()))

    def run(self, job: Any, scratch: Scratch) -> Result:
        return self.run_group([job], scratch)[0]

    def run_group(self, jobs: Sequence[Any], scratch: Scratch) -> Sequence[Result]:
        found = run_unit([plan.job_of(job.config()) for job in jobs], scratch.folder)
        return [Result(rows) for rows in found]

    def report(self, results: Results, folder: Path) -> Sequence[Path]:
        """A table and figures for each part, and `README.md` with the targets and whether they are met."""
        made = tables(results.table)
        written = []
        for name, table in made.items():
            written.append(folder / f"{name}.csv")
            table.to_csv(written[-1], index=False, float_format="%.6g")
        written += draw(results.table, made, folder)
        written.append(folder / "README.md")
        written[-1].write_text(page(made, results.provenance()))
        return written

    def findings(self, results: Results) -> Sequence[Finding]:
        """The targets, each with what was found."""
        judged = targets(tables(results.table))
        return [
            Finding(row["target"], row["wanted"], row["found"], "ok" if row["met"] == "yes" else "doubtful", [])
            for row in judged.to_dict("records")
        ]


STUDY = Llc()
