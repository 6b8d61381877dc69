"""The study as `basinscope study` runs it: settings, jobs and populations are those of the plan."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ...errors import BasinscopeError
from ...runs.results import Results
from ...runs.study import Finding, Job
from ..declared import PlannedStudy, csv_files, model_of, readme
from . import plan
from .arms import select
from .criterion import criterion_table
from .figures import draw
from .page import page
from .running import run_unit
from .tables import finished, joined, kendall_table, tables


class Flatness(PlannedStudy, plan=plan):
    """Table 1 and figures 1–7 of paper 004, the learning coefficient beside them."""

    title = "Does flatness tell how well a network generalizes?"
    Job = model_of(plan.Network, "FlatnessJob", Job)
    population = 1000
    gpus = 1.0

    def rows(self, unit: Sequence[Any], folder: Path) -> Sequence[Sequence[Mapping[str, Any]]]:
        found = {job: rows for part in run_unit(unit, unit, folder) for job, rows in part}
        if len(found) < len(unit):
            raise BasinscopeError(f"{len(unit) - len(found)} networks of {plan.label(unit)} were not measured")
        return [found[job] for job in unit]

    def report(self, results: Results, folder: Path) -> Sequence[Path]:
        """`networks.parquet` with the networks of all arms, the tables of the first arm and the criterion of all as
        CSV, the figures, and `README.md`."""
        everything, networks = joined(results.table), folder / "networks.parquet"
        everything.to_parquet(networks, index=False)
        arms = {name: select(everything, name) for name in results.settings.arms}
        made = tables(next(iter(arms.values())))
        made["criterion"] = criterion_table(arms)
        others = {name: table for name, table in made.items() if name != "networks"}
        files = [networks, *csv_files(others, folder), *draw(made, folder)]
        return [*files, readme(page(made, results.provenance()), folder)]

    def findings(self, results: Results) -> Sequence[Finding]:
        """Table 1, the paper's τ beside ours."""
        main = select(results.table, results.settings.arms[0])
        table = kendall_table(finished(joined(main)), only=["all"])
        own = table[(table["way"] == "as printed") & (table["against"] == "held out")]
        beside = table[(table["way"] == "as printed") & (table["against"] == "test set")].set_index("measure")["tau"]
        rows = [
            {**{name: row[name] for name in ("label", "paper", "tau", "low", "high")}, "test": beside[row["measure"]]}
            for row in own.to_dict("records")
            if row["paper"] == row["paper"]
        ]
        order = [row["tau"] for row in rows]
        ranks = own.set_index("measure")["tau"]
        soft, trace, norm = (float(ranks.get(f"{name}_train", math.nan)) for name in ("soft_rank", "trace_f", "norm_f"))
        verdict: Literal["ok", "doubtful", "failed"] = "ok" if order and soft == max(order) else "doubtful"
        verdict = verdict if soft > trace else "failed"
        return [
            Finding(
                "The soft rank orders networks by their gap, trace and norm do not",
                "τ = 0.84 (soft rank), 0.28 (trace), 0.08 (norm): Table 1",
                f"τ = {soft:.2f} (soft rank), {trace:.2f} (trace), {norm:.2f} (norm) over "
                f"{int(own['networks'].max()) if len(own) else 0} networks, the gap on samples held out from the "
                f"training file; {float(beside.get('soft_rank_train', math.nan)):.2f} (soft rank) with "
                "that on the test sets",
                verdict,
                rows,
            )
        ]


STUDY = Flatness()
