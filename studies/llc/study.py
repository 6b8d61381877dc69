"""The study as `basinscope study` runs it: settings, jobs and populations are those of the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from basinscope.runs.results import Results
from basinscope.runs.study import Finding, Job
from studies.common.declared import PlannedStudy, csv_files, model_of, readme

from . import plan
from .figures import draw
from .page import page
from .running import run_unit
from .tables import tables, targets

_JOBS: dict[str, Any] = {part: model_of(kind, f"Llc{kind.__name__}", Job) for part, kind in plan.KINDS.items()}
_TRUTH, _RESOLUTION, _ATLAS, _ENTROPY, _BEYOND, _COST = (_JOBS[part] for part in plan.PARTS)
LlcJob: Any = _TRUTH | _RESOLUTION | _ATLAS | _ENTROPY | _BEYOND | _COST


class Llc(PlannedStudy, plan=plan):
    """The experiments of paper 003 with known answers beside them, and others that it only mentions."""

    title = "The learning coefficient from toy models to transformers"
    Job = LlcJob
    population = 128
    gpus = 1.0

    def rows(self, unit: Sequence[Any], folder: Path) -> Sequence[Sequence[Mapping[str, Any]]]:
        return run_unit(unit, folder)

    def report(self, results: Results, folder: Path) -> Sequence[Path]:
        """A table and figures for each part, and `README.md` with the targets and whether they are met."""
        made = tables(results.table)
        files = csv_files(made, folder) + draw(results.table, made, folder)
        return [*files, readme(page(made, results.provenance()), folder)]

    def findings(self, results: Results) -> Sequence[Finding]:
        """The targets, each with what was found."""
        judged = targets(tables(results.table))
        return [
            Finding(row["target"], row["wanted"], row["found"], "ok" if row["met"] == "yes" else "doubtful", [])
            for row in judged.to_dict("records")
        ]


STUDY = Llc()
