"""Tables from the rows of all networks: rank correlations as in Table 1, and how good predictions of the gap are."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from studies.common.kendall import Interval, with_interval

if TYPE_CHECKING:
    import pandas as pd

KEY = ("inputs", "schedule", "architecture", "data", "samples", "decay", "batch_size", "lr")
CLUSTER = ("architecture", "data", "samples", "decay")  # networks that differ in batch size and rate alone are alike
GAPS = {"test set": "gap", "held out": "gap_held"}  # the loss on either less that on the training samples
LEARNED = 0.2  # accuracy on the training set above which a network of ten classes has learned anything


@dataclass(frozen=True)
class Measure:
    """A measure of complexity.

    Attributes:
        column: where the joint table has it.
        label: what it is called.
        paper: τ in the paper's Table 1, if it is there.
        kind: `curvature`, `cheap` (stand-ins for F), `gradients`, `sampling`, `held out` or `plain`.
        per_sample: whether it is n times something that a gap is compared with, so that its n-th part counts too.
    """

    column: str
    label: str
    paper: float | None
    kind: str
    per_sample: bool = True


MEASURES = (
    Measure("soft_rank_train", "rank_λ(F)", 0.84, "curvature"),
    Measure("log_det_train", "½ log det(F/λ + I)", 0.82, "curvature"),
    Measure("soft_rank_kfac_train", "rank_λ(F), KFAC", 0.78, "cheap"),
    Measure("log_det_kfac_train", "½ log det, KFAC", 0.76, "cheap"),
    Measure("log_det_diagonal_train", "½ log det, diagonal", 0.72, "cheap"),
    Measure("soft_rank_diagonal_train", "rank_λ(F), diagonal", 0.68, "cheap"),
    Measure("trace_f_train", "Tr F", 0.28, "curvature"),
    Measure("norm_f_train", "‖F‖₂", 0.08, "curvature"),
    Measure("soft_rank_ekfac_train", "rank_λ(F), EKFAC", None, "cheap"),
    Measure("log_det_ekfac_train", "½ log det, EKFAC", None, "cheap"),
    Measure("soft_rank_2_train", "rank_λ⁽²⁾(F)", None, "curvature"),
    Measure("n_tic_train", "TIC, training data", None, "gradients"),
    Measure("n_eq8_train", "(Tr C/Tr F) rank_λ(F), training data", None, "gradients"),
    Measure("trace_c_train", "Tr C", None, "gradients"),
    Measure("trace_ratio_train", "Tr C/Tr F, training data", None, "gradients"),
    Measure("llc", "λ̂ (β = 1/log n)", None, "sampling"),
    Measure("llc_bayes", "λ̂ (β = 1)", None, "sampling"),
    Measure("half_soft_rank_llc", "½ rank at λ̂'s resolution", None, "curvature"),
    Measure("fluctuation", "ν̂", None, "sampling"),
    Measure("wbic_gap", "WBIC/n − training loss", None, "sampling", per_sample=False),
    Measure("waic_gap", "WAIC − training loss", None, "sampling", per_sample=False),
    Measure("cv_gap", "cross-validation", None, "held out", per_sample=False),
    Measure("loss_train", "training loss", None, "plain", per_sample=False),
    Measure("weight_norm", "‖θ‖", None, "plain", per_sample=False),
)

# Predictions of the gap itself, 1/n included, by the column of the joint table.
PREDICTIONS = {
    "eq8_test": "(1/n)(Tr C/Tr F) rank_λ(F), test data",
    "tic_test": "TIC, test data",
    "thomas_tic_test": "(1/n) Tr C F⁺, truncated, test data",
    "eq6_test": "(1/n) Tr C/Tr F, test data",
    "eq7_test": "(1/n)(Tr C/Tr F) rank(F), test data",
    "eq8_kfac_test": "KFAC, test data",
    "eq8_ekfac_test": "EKFAC, test data",
    "eq8_diagonal_test": "diagonal, test data",
    "eq8_train": "(1/n)(Tr C/Tr F) rank_λ(F), training data",
    "rank_train": "(1/n) rank_λ(F), training data",
    "mixed": "(1/n)(Tr C/Tr F, test) rank_λ(F, train)",
    "tic_train": "TIC, training data",
    "fluctuation_gap": "2ν̂/n",
    "llc_gap": "2λ̂/n (β = 1)",
    "waic_gap": "WAIC − training loss",
    "cv_gap": "cross-validation",
}


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
    }
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
    }
