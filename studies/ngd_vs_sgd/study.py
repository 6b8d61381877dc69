"""The study as `basinscope study` runs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from basinscope.runs.results import Results
from basinscope.runs.scratch import Scratch
from basinscope.runs.study import Finding, Result, Study
from studies.common.files import csv_files, readme

from .claims import claims
from .figures import draw
from .jobs import Training, cost, jobs, together
from .measuring import run_alone
from .populations import run_branches, run_population
from .report import page
from .settings import SCALES, NgdVsSgdSettings
from .tables import tables


class NgdVsSgd(Study):
    """Figures 1–8 of Saghir et al., and each comparison measured four ways."""

    name = "ngd-vs-sgd"
    title = "Does natural gradient find less degenerate solutions than SGD?"
    version = 3
    Settings = NgdVsSgdSettings
    Job = Training
    scales: Mapping[str, Mapping[str, Any]] = SCALES
    gpus = 1.0

    def jobs(self, settings: NgdVsSgdSettings) -> Iterator[Training]:
        return jobs(settings)

    def group_key(self, job: Training) -> Any:
        return together(job)

    def cost(self, job: Training) -> float:
        return cost(job)

    def run(self, job: Training, scratch: Scratch) -> Result:
        return Result(run_alone(job, scratch.folder))

    def run_group(self, jobs: Sequence[Training], scratch: Scratch) -> Sequence[Result]:
        return run_branches(jobs) if jobs[0].part == "branches" else run_population(jobs)

    def report(self, results: Results, folder: Path) -> Sequence[Path]:
        """Tables, the figures that decide, every claim with its numbers, and `README.md` with the answer."""
        made = tables(results.table)
        answers = claims(made)
        files = csv_files({**made, "claims": answers}, folder) + draw(results.table, made, folder)
        return [*files, readme(page(results.table, made, answers, results.provenance()), folder)]

    def findings(self, results: Results) -> Sequence[Finding]:
        """The paper's claims, each with what the paper's own measurement and the better ones make of it."""
        listed = []
        table = claims(tables(results.table))
        for (claim, source), rows in table.groupby(["claim", "paper"], sort=False):
            decided = [row for row in rows.to_dict("records") if row["holds"] in ("yes", "no")]
            agreeing = sum(row["holds"] == "yes" for row in decided)
            verdict: Literal["ok", "doubtful", "failed"] = (
                "ok" if decided and agreeing == len(decided) else "doubtful" if agreeing else "failed"
            )
            ours = f"holds in {agreeing} of {len(decided)} measurements that decide it."
            shown = [
                {name: row[name] for name in ("measurement", "holds", "numbers")} for row in rows.to_dict("records")
            ]
            listed.append(Finding(str(claim), str(source), ours, verdict, shown))
        return listed


STUDY = NgdVsSgd()
