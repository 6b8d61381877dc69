"""The study as `basinscope study` runs it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from basinscope.runs.results import Results
from basinscope.runs.scratch import Scratch
from basinscope.runs.study import Finding, Result, Study
from studies.common.files import csv_files, readme

from .arms import select
from .criterion import criterion_table
from .figures import draw
from .jobs import Network, cost, jobs, together
from .measuring import run_population
from .report import page
from .settings import SCALES, FlatnessSettings
from .tables import finished, joined, kendall_table, tables


class Flatness(Study):
    """Table 1 and figures 1–7 of Shoham et al., the learning coefficient beside them."""

    name = "flatness"
    title = "Does flatness tell how well a network generalizes?"
    version = 3
    Settings = FlatnessSettings
    Job = Network
    scales: Mapping[str, Mapping[str, Any]] = SCALES
    stops_in_time = True
    gpus = 1.0

    def jobs(self, settings: FlatnessSettings) -> Iterator[Network]:
        return jobs(settings)

    def group_key(self, job: Network) -> Any:
        return together(job)

    def cost(self, job: Network) -> float:
        return cost(job)

    def run_group(self, jobs: Sequence[Network], scratch: Scratch) -> Iterator[Mapping[int, Result]]:
        return run_population(jobs, scratch)

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
        taus = table[(table["way"] == "as printed") & (table["against"] == "held out")]
        beside = table[(table["way"] == "as printed") & (table["against"] == "test set")].set_index("measure")["tau"]
        rows = [
            {**{name: row[name] for name in ("label", "paper", "tau", "low", "high")}, "test": beside[row["measure"]]}
            for row in taus.to_dict("records")
            if row["paper"] == row["paper"]
        ]
        order = [row["tau"] for row in rows]
        ranks = taus.set_index("measure")["tau"]
        soft, trace, norm = (float(ranks.get(f"{name}_train", math.nan)) for name in ("soft_rank", "trace_f", "norm_f"))
        verdict: Literal["ok", "doubtful", "failed"] = "ok" if order and soft == max(order) else "doubtful"
        verdict = verdict if soft > trace else "failed"
        return [
            Finding(
                "The soft rank orders networks by their gap, trace and norm do not",
                "τ = 0.84 (soft rank), 0.28 (trace), 0.08 (norm): Table 1",
                f"τ = {soft:.2f} (soft rank), {trace:.2f} (trace), {norm:.2f} (norm) over "
                f"{int(taus['networks'].max()) if len(taus) else 0} networks, the gap on samples held out from the "
                f"training file; {float(beside.get('soft_rank_train', math.nan)):.2f} (soft rank) with "
                "that on the test sets",
                verdict,
                rows,
            )
        ]


STUDY = Flatness()
