"""The study as `basinscope study` runs it: settings, jobs and populations are those of the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from basinscope.runs.results import Results
from basinscope.runs.study import Finding, Job
from studies.common.declared import PlannedStudy, model_of
from studies.common.files import csv_files, readme

from . import plan
from .figures import draw
from .page import page
from .running import run_unit
from .tables import claims, tables


class NgdVsSgd(PlannedStudy, plan=plan):
    """Figures 1–8 of papers 000/001, and each comparison measured four ways."""

    title = "Does natural gradient find less degenerate solutions than SGD?"
    Job = model_of(plan.Training, "NgdJob", Job)
    gpus = 1.0

    def rows(self, unit: Sequence[Any], folder: Path) -> Sequence[Sequence[Mapping[str, Any]]]:
        return run_unit(unit, folder)

    def report(self, results: Results, folder: Path) -> Sequence[Path]:
        """A table and a figure for each part, the table of claims, and `README.md` with what survives."""
        made = tables(results.table)
        files = csv_files(made, folder) + draw(results.table, made, folder)
        return [*files, readme(page(results.table, made, results.provenance()), folder)]

    def findings(self, results: Results) -> Sequence[Finding]:
        """The paper's claims, each with what the paper's own measurement and the better ones make of it."""
        found = []
        table = claims(tables(results.table))
        for (claim, source), rows in table.groupby(["claim", "paper"], sort=False):
            held = [row for row in rows.to_dict("records") if row["holds"] in ("yes", "no")]
            agreeing = sum(row["holds"] == "yes" for row in held)
            verdict: Literal["ok", "doubtful", "failed"] = (
                "ok" if held and agreeing == len(held) else "doubtful" if agreeing else "failed"
            )
            ours = f"holds in {agreeing} of {len(held)} measurements that decide it."
            shown = [
                {name: row[name] for name in ("measurement", "holds", "numbers")} for row in rows.to_dict("records")
            ]
            found.append(Finding(str(claim), str(source), ours, verdict, shown))
        return found


STUDY = NgdVsSgd()
