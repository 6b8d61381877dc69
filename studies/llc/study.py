"""The study as `basinscope study` runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from basinscope.runs.results import Results
from basinscope.runs.scratch import Scratch
from basinscope.runs.study import Finding, Result, Study
from studies.common.files import csv_files, readme

from . import atlas, beyond, costs, entropy, resolution, truth
from .figures import draw
from .jobs import Descent, Follow, Ladder, Map, Timing, Truth, cost, jobs, together
from .report import page
from .settings import SCALES, LlcSettings
from .tables import tables, targets

Row = dict[str, Any]
ALONE: dict[str, Callable[[Any], list[Row]]] = {
    "truth": truth.run, "resolution": resolution.run, "atlas": atlas.run, "cost": costs.run,
}  # fmt: skip


class Llc(Study):
    """The experiments of Lau et al. (2023) with known answers beside them, and others that it only mentions."""

    name = "llc"
    title = "The learning coefficient from toy models to transformers"
    Settings = LlcSettings
    Job = Truth | Ladder | Map | Descent | Follow | Timing
    scales: Mapping[str, Mapping[str, Any]] = SCALES
    gpus = 1.0

    def jobs(self, settings: LlcSettings) -> Iterator[Any]:
        return jobs(settings)

    def group_key(self, job: Any) -> Any:
        return together(job)

    def cost(self, job: Any) -> float:
        return cost(job)

    def run(self, job: Any, scratch: Scratch) -> Result:
        return Result(beyond.run(job, scratch.folder) if job.part == "beyond" else ALONE[job.part](job))

    def run_group(self, jobs: Sequence[Any], scratch: Scratch) -> Sequence[Result]:
        return [Result(rows) for rows in entropy.run(jobs, scratch.folder)]

    def report(self, results: Results, folder: Path) -> Sequence[Path]:
        """A table and figures for each part, and `README.md` with the targets and whether they are met."""
        made = tables(results.table)
        files = csv_files(made, folder) + draw(results.table, made, folder)
        return [*files, readme(page(made, results.provenance()), folder)]

    def findings(self, results: Results) -> Sequence[Finding]:
        """The targets, each with what was found."""
        table = targets(tables(results.table))
        return [
            Finding(row["target"], row["wanted"], row["found"], "ok" if row["met"] == "yes" else "doubtful", [])
            for row in table.to_dict("records")
        ]


STUDY = Llc()
