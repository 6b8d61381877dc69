"""The study as `basinscope study` runs it: settings, jobs and populations are those of the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ...runs import study as base
from ...runs.results import Results
from ...runs.scratch import Scratch
from ...runs.study import Finding, Result, Study
from ..declared import model_of
from . import plan
from .figures import draw
from .page import page
from .running import run_unit
from .tables import claims, tables

NgdSettings: Any = model_of(plan.Plan, "NgdSettings", base.Settings)
NgdJob: Any = model_of(plan.Training, "NgdJob", base.Job)


class NgdVsSgd(Study):
    """Figures 1–8 of papers 000/001, and each comparison measured four ways."""

    name = plan.NAME
    version = plan.VERSION
    title = "Does natural gradient find less degenerate solutions than SGD?"
    Settings = NgdSettings
    Job = NgdJob
    scales: Mapping[str, Mapping[str, Any]] = plan.SCALES
    gpus = 1.0

    def jobs(self, settings: Any) -> Iterator[Any]:
        for job in plan.jobs(plan.Plan(**settings.model_dump())):
            yield NgdJob(**job.config())

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
        """A table and a figure for each part, the table of claims, and `README.md` with what survives."""
        made = tables(results.table)
        written = []
        for name, table in made.items():
            written.append(folder / f"{name}.csv")
            table.to_csv(written[-1], index=False, float_format="%.6g")
        written += draw(results.table, made, folder)
        written.append(folder / "README.md")
        written[-1].write_text(page(results.table, made, results.provenance()))
        return written

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
