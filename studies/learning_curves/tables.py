"""Means over data sets with their errors: one row for every model, size and quantity."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from studies.common.integration.cases import CASES

COLUMNS = ["model", "n", "quantity", "mean", "stderr", "data_sets"]

SUM, TRAINED = "n(Bg+Cv)", "n(Bg+Bt)+V"
EACH: Mapping[str, Callable[[pd.DataFrame], Any]] = {
    SUM: lambda t: t["Bg"] + t["Cv"],
    TRAINED: lambda t: t["Bg"] + t["Bt"] + t["V"],
    "nBg": lambda t: t["Bg"],
    "nBt": lambda t: t["Bt"],
    "nCv": lambda t: t["Cv"],
    "nGg": lambda t: t["Gg"],
    "nGt": lambda t: t["Gt"],
    "V": lambda t: t["V"],
}  # the table has n times every error
SHAPES: Mapping[str, Callable[[pd.DataFrame], float]] = {
    "sd(nBg)": lambda t: float(t["Bg"].std()),
    "sd(nCv)": lambda t: float(t["Cv"].std()),
    "sd(nBg)/sd(nCv)": lambda t: float(t["Bg"].std() / t["Cv"].std()),
    "corr(Bg,Cv)": lambda t: float(t["Bg"].corr(t["Cv"])),
}


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Every quantity at β = 1."""
    rows = []
    for (model, n), part in table[table["beta"] == 1].groupby(["model", "samples"], sort=False):
        statistics = {name: _mean(of(part)) for name, of in EACH.items()}
        statistics |= {name: _jackknifed(part, of) for name, of in SHAPES.items()}
        rows += [[model, n, name, *values, len(part)] for name, values in statistics.items()]
    return pd.DataFrame(rows, columns=COLUMNS)


def temperatures(table: pd.DataFrame) -> pd.DataFrame:
    """The two sums that tend to 2λ/β, where other temperatures were taken."""
    rows = []
    several = table.groupby(["model", "samples"])["beta"].transform("nunique") > 1
    for (model, n, beta), part in table[several].groupby(["model", "samples", "beta"], sort=False):
        sums = {
            "n(Bg+Cv)-(β-1)V": part["Bg"] + part["Cv"] - (beta - 1) * part["V"],
            TRAINED: part["Bg"] + part["Bt"] + part["V"],
            "βV/2": beta * part["V"] / 2,
        }
        rows += [[model, n, beta, name, *_mean(values), len(part)] for name, values in sums.items()]
    return pd.DataFrame(rows, columns=[*COLUMNS[:2], "beta", *COLUMNS[2:]])


def exact(model: str) -> float:
    """λ of a model."""
    return float(CASES[model].planted.coefficient[0])


def value(made: pd.DataFrame, model: str, n: int, quantity: str) -> tuple[float, float]:
    """Mean and standard error of one quantity."""
    row = made[(made["model"] == model) & (made["n"] == n) & (made["quantity"] == quantity)].iloc[0]
    return float(row["mean"]), float(row["stderr"])


def _mean(values: pd.Series) -> tuple[float, float]:
    return float(values.mean()), float(values.std() / np.sqrt(len(values)))


def _jackknifed(part: pd.DataFrame, of: Callable[[pd.DataFrame], float]) -> tuple[float, float]:
    """A statistic of the data sets, with the jackknife's standard error."""
    without = np.array([of(part.drop(index=each)) for each in part.index])
    return of(part), float(np.sqrt((len(part) - 1) * without.var()))
