"""Slopes of every model and method, and how far samplers are from integration of the same posteriors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from basinscope.measures.temperature import pooled
from studies.common.planted import PLANTED

from .cases import NETWORKS, coefficient, title

METHODS = {"exact": "integration", "engine": "engine", "nuts": "NUTS"}


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """A row for each model and method: the pooled slope beside λ, and the worst of the lines and chains."""
    rows: list[dict[str, Any]] = []
    for (model, method), part in table.groupby(["model", "method"], sort=False):
        first = part.groupby("seed").first()
        slopes = first["slope"].to_numpy()
        if method == "exact":
            value, stderr = float(slopes.mean()), float(slopes.std(ddof=1) / math.sqrt(len(slopes)))
        else:
            value, stderr, _ = pooled(slopes, first["slope_stderr"].to_numpy())
        exact = coefficient(str(model))
        apart = deviations(table, str(model), str(method))
        rows.append(
            {
                "model": model, "title": title(str(model)), "parameters": parameters(str(model)),
                "n": int(part["samples"].iloc[0]), "method": method, "data_sets": len(first), "llc": value,
                "stderr": stderr, "exact": math.nan if exact is None else float(exact[0]),
                "multiplicity": math.nan if exact is None else exact[1], "least_r_squared": first["r_squared"].min(),
                "rhat": part["rhat"].max() if method != "exact" else math.nan,
                "divergences": part["divergences"].sum() if method != "exact" else math.nan,
                "means_off": math.nan if method == "exact" else math.sqrt(float((apart**2).mean())),
                "slope_off": slope_deviation(table, str(model), str(method)),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def deviations(table: pd.DataFrame, model: str, method: str) -> np.ndarray:
    """Means of a sampler less those of integration on the same data, in standard errors of both."""
    pair = _paired(table, model, method)
    gap = pair["mean"] - pair["mean_exact"]
    return (gap / np.hypot(pair["stderr"], pair["stderr_exact"])).to_numpy()


def slope_deviation(table: pd.DataFrame, model: str, method: str) -> float:
    """The same of the slopes, the largest of all data sets."""
    if method == "exact":
        return math.nan
    pair = _paired(table, model, method).groupby("seed").first()
    gap = pair["slope"] - pair["slope_exact"]
    return float((gap / np.hypot(pair["slope_stderr"], pair["slope_stderr_exact"])).abs().max())


def _paired(table: pd.DataFrame, model: str, method: str) -> pd.DataFrame:
    here = table[table["model"] == model].assign(step=lambda rows: (rows["beta"] * 1e9).round())
    columns = ["seed", "step", "mean", "stderr", "slope", "slope_stderr"]
    mine, exact = (here[here["method"] == name][columns] for name in (method, "exact"))
    return mine.merge(exact, on=["seed", "step"], suffixes=("", "_exact"))


def parameters(model: str) -> int:
    """Number of weights."""
    if model in NETWORKS:
        return NETWORKS[model].parameters
    return PLANTED[model].draw(10, 0).dimension
