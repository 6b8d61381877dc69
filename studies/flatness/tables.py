"""Tables from the rows of all networks: rank correlations as in Table 1, and how good predictions of the gap are."""

from __future__ import annotations

from collections.abc import Collection
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from studies.common.kendall import Interval, with_interval

from .adding import conditional, granulated
from .measures import CLUSTER, GAPS, KEY, LEARNED, MEASURES, PREDICTIONS, Measure

if TYPE_CHECKING:
    import pandas as pd


def joined(table: pd.DataFrame) -> pd.DataFrame:
    """One row a network of the grid: failed estimates left out, its cross-validation and all predictions beside it."""
    grid = table[table["part"] == "grid"].dropna(axis=1, how="all").reset_index(drop=True)
    for name in [column for column in grid if f"{column}_verdict" in grid]:
        grid[name] = grid[name].where(grid[f"{name}_verdict"] != "failed")
    folds = table[table["part"] == "folds"]
    if len(folds):
        names = [name for name in folds if str(name).startswith("cv_")]
        key = [name for name in KEY if name in table]
        grid = grid.drop(columns=[name for name in names if name in grid]).merge(
            folds[[*key, *names]], on=key, how="left"
        )
    return predicted(grid)


def finished(grid: pd.DataFrame) -> pd.DataFrame:
    """The networks that did not diverge."""
    return grid[grid["outcome"] == "finished"]


def predicted(grid: pd.DataFrame) -> pd.DataFrame:
    """The grid with predictions of the gap, and n times those that Table 1 ranks."""
    n = grid["samples"]
    predictions = {
        "eq8_test": grid["trace_ratio_test"] * grid["soft_rank_test"] / n,
        "eq6_test": grid["trace_ratio_test"] / n,
        "eq7_test": grid["trace_ratio_test"] * grid["thomas_rank_test"] / n,
        **{
            f"eq8_{name}_test": grid["trace_ratio_test"] * grid[f"soft_rank_{name}_test"] / n
            for name in ("kfac", "ekfac", "diagonal")
        },
        "eq8_train": grid["trace_ratio_train"] * grid["soft_rank_train"] / n,
        "rank_train": grid["soft_rank_train"] / n,
        "mixed": grid["trace_ratio_test"] * grid["soft_rank_train"] / n,
        "n_tic_train": grid["tic_train"] * n,
        "n_eq8_train": grid["trace_ratio_train"] * grid["soft_rank_train"],
        "less_decay": -grid["decay"],
        "less_loss_train": -grid["loss_train"],
    }
    if "margin_train" in grid:
        predictions["less_margin_train"] = -grid["margin_train"]
    if "fluctuation" in grid:
        predictions |= {
            "fluctuation_gap": 2 * grid["fluctuation"] / n,
            "llc_gap": 2 * grid["llc_bayes"] / n,
            "waic_gap": grid["waic"] - grid["loss_train"],
            "wbic_gap": grid["wbic"] / n - grid["loss_train"],
        }
    return grid.assign(**predictions)


def scopes(grid: pd.DataFrame) -> dict[str, Any]:
    """Parts of the grid on which correlations are taken, by name: which rows they hold."""
    everything = np.ones(len(grid), dtype=bool)
    learned = (grid["accuracy_train"] > LEARNED).to_numpy()
    settled = (grid["decrement_train"] <= 0.1 * grid["tic_train"].abs()).to_numpy()
    parts = {
        "all": everything,
        "paper's part": (
            (grid["lr"] == grid["lr"].max()) & (grid["batch_size"] == grid["batch_size"].max())
        ).to_numpy(),
        "learned": learned,
        "settled": settled,
        "learned and settled": learned & settled,
    }
    if "cv_gap" in grid:
        parts["cross-validated"] = grid["cv_gap"].notna().to_numpy()
    return parts


def kendall_table(grid: pd.DataFrame, only: Collection[str] | None = None) -> pd.DataFrame:
    """Table 1 and more: τ of every measure with either gap, a row for each scope and way to compare sizes of data.

    `as printed` compares the measure itself across all sizes n, `per sample` its n-th part, `within` is the mean of
    the τ within each data set and size, where 1/n makes no difference. `only` names the scopes; all of them if None.
    """
    import pandas as pd

    rows = []
    for scope, chosen in scopes(grid).items():
        networks = grid[chosen]
        if only is not None and scope not in only:
            continue
        for measure, against in product(MEASURES, GAPS):
            if measure.column in networks and len(networks) >= 3:
                for way, tau in _ways(networks, measure, GAPS[against]):
                    rows.append(_row(measure, tau, scope=scope, against=against, way=way))
    return pd.DataFrame(rows)


def _ways(grid: pd.DataFrame, measure: Measure, against: str) -> list[tuple[str, Interval]]:
    clusters = list(grid[list(CLUSTER)].itertuples(index=False, name=None))
    gap, values = grid[against].to_numpy(), grid[measure.column].to_numpy(dtype=float)
    cells = list(zip(grid["data"], grid["samples"], strict=True))
    taus = [("as printed", with_interval(values, gap, clusters))]
    if measure.per_sample:
        taus.append(("per sample", with_interval(values / grid["samples"].to_numpy(), gap, clusters)))
    return [*taus, ("within", with_interval(values, gap, clusters, cells))]


def _row(measure: Measure, tau: Interval, **where: Any) -> dict[str, Any]:
    return {
        "measure": measure.column, "label": measure.label, "kind": measure.kind, **where, "tau": tau.value,
        "low": tau.low, "high": tau.high, "networks": tau.count, "paper": measure.paper,
    }  # fmt: skip


def cell_table(grid: pd.DataFrame) -> pd.DataFrame:
    """τ of every measure with either gap within each data set and size: which predicts best where."""
    import pandas as pd

    rows = []
    for (data, samples), cell in grid.groupby(["data", "samples"], sort=False):
        clusters = list(cell[list(CLUSTER)].itertuples(index=False, name=None))
        for measure, against in product(MEASURES, GAPS):
            if measure.column in cell and cell[measure.column].notna().sum() >= 3:
                values, gap = cell[measure.column].to_numpy(dtype=float), cell[GAPS[against]].to_numpy()
                tau = with_interval(values, gap, clusters)
                rows.append(_row(measure, tau, data=data, samples=samples, against=against))
    return pd.DataFrame(rows)


def prediction_table(grid: pd.DataFrame) -> pd.DataFrame:
    """How near every prediction comes to either gap: the median of |log₁₀(prediction/gap)|, the median of the factor
    itself, the share of networks within a factor of two, and τ."""
    import pandas as pd

    rows = []
    for (name, label), (against, gap) in product(PREDICTIONS.items(), GAPS.items()):
        if name not in grid:
            continue
        known = grid[np.isfinite(grid[name]) & np.isfinite(grid[gap])]
        usable = known[(known[name] > 0) & (known[gap] > 0)]
        if len(known) < 3 or not len(usable):
            continue
        logs = np.log10(usable[name].to_numpy() / usable[gap].to_numpy())
        clusters = list(known[list(CLUSTER)].itertuples(index=False, name=None))
        tau = with_interval(known[name].to_numpy(), known[gap].to_numpy(), clusters)
        rows.append(
            {
                "prediction": name, "label": label, "against": against, "factor": 10 ** float(np.median(logs)),
                "error": float(np.median(np.abs(logs))), "within_two": float((np.abs(logs) < np.log10(2)).mean()),
                "tau": tau.value, "low": tau.low, "high": tau.high, "networks": len(known),
                "without_sign": len(known) - len(usable),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def tables(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """All tables by the name of their file; `networks` has every network of the grid."""
    grid = joined(table)
    sound = finished(grid)
    return {
        "networks": grid,
        "kendall": kendall_table(sound),
        "cells": cell_table(sound),
        "predictions": prediction_table(sound),
        "granulated": granulated(sound),
        "conditional": conditional(sound),
    }
