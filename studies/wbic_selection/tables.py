"""What the choices of every criterion cost, and how often they are the true size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from .truths import SIZES, TRUTHS

CRITERIA = {
    "wbic": "WBIC", "free_energy": "free energy", "waic": "WAIC", "loo": "LOO", "tic": "TIC", "aic": "AIC",
    "bic": "BIC",
}  # fmt: skip
LARGEST = "largest"
SAMPLED = ("wbic", "free_energy", "waic", "loo")


def choices(table: pd.DataFrame) -> pd.DataFrame:
    """Per truth, n and criterion: regret, sizes chosen, and the Monte Carlo error beside differences.

    `regret` is n times the Bayes error of the chosen candidate less that of the best candidate for the same data, and
    `regret_of_chance` that of a random choice. Shares are of data sets.
    """
    rows: list[dict[str, Any]] = []
    for (name, n), part in table.groupby(["truth", "samples"], sort=False):
        errors = wide(part, "error")
        best = errors.min(axis=1)
        for criterion in [*CRITERIA, LARGEST]:
            picked = _picked(part, criterion)
            regret = errors[np.arange(len(errors)), picked] - best
            rows.append(
                {"truth": name, "n": n, "criterion": criterion, "data_sets": len(errors)}
                | {"regret": regret.mean(), "regret_stderr": regret.std(ddof=1) / np.sqrt(len(regret))}
                | {"regret_of_chance": (errors.mean(axis=1) - best).mean()}
                | _sizes(np.array(SIZES)[picked], TRUTHS[name].size)
                | {"error_beside_difference": _precision(part, criterion)}
            )
    return pd.DataFrame(rows)


def wide(part: pd.DataFrame, column: str) -> np.ndarray:
    """A column as (data sets, sizes)."""
    return part.pivot(index="seed", columns="size", values=column).to_numpy()


def compared(table: pd.DataFrame, one: str, other: str) -> tuple[float, float]:
    """Mean of one criterion's regret less another's over all data sets, and its standard error."""
    differences = []
    for _, part in table.groupby(["truth", "samples"], sort=False):
        errors = wide(part, "error")
        rows = np.arange(len(errors))
        differences.append(errors[rows, _picked(part, one)] - errors[rows, _picked(part, other)])
    together = np.concatenate(differences)
    return float(together.mean()), float(together.std(ddof=1) / np.sqrt(len(together)))


def _picked(part: pd.DataFrame, criterion: str) -> np.ndarray:
    if criterion == LARGEST:
        return np.full(part["seed"].nunique(), len(SIZES) - 1)
    return wide(part, criterion).argmin(axis=1)


def _sizes(picked: np.ndarray, true: int | None) -> dict[str, float]:
    shares = {f"size_{size}": float((picked == size).mean()) for size in SIZES}
    if true is None:
        return {"true_size": np.nan, "too_small": np.nan, "too_large": np.nan, **shares}
    return {
        "true_size": float((picked == true).mean()),
        "too_small": float((picked < true).mean()),
        "too_large": float((picked > true).mean()),
        **shares,
    }


def _precision(part: pd.DataFrame, criterion: str) -> float:
    """Monte Carlo error of the least value less the next one, over that difference: the median over data sets."""
    if criterion not in SAMPLED:
        return 0.0
    errors, values = wide(part, f"{criterion}_stderr"), wide(part, criterion)
    rows, order = np.arange(len(values)), values.argsort(axis=1)
    least, second = order[:, 0], order[:, 1]
    difference = values[rows, second] - values[rows, least]
    return float(np.median(np.hypot(errors[rows, least], errors[rows, second]) / difference))
