"""Tables of the results, part by part."""

from __future__ import annotations

import numpy as np
import pandas as pd

from .bounds import CONCAVE
from .penalised import price

MEASURED = ["loss_train", "loss_held", "loss_test", "gap", "accuracy", "soft_rank", "norm", "spent"]
SLACK = 1e-9  # relative, of sums of eigenvalues


def tables(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Limits, bounds and trainings."""
    return {"limits": limits(table), "bounds": bounds(table), "penalty": penalty(table)}


def limits(table: pd.DataFrame) -> pd.DataFrame:
    """What was seen of each regression beside its limits, all times n."""
    rows = table[table["part"] == "limits"]
    columns = ["model", "scale", "decay", "samples", "sets", "soft_rank", "corrected", "uncalibrated"]
    for name in ("gap", "distance", "prediction"):
        columns += [name, f"{name}_seen", f"{name}_stderr"]
    return rows[[*columns, "distance_bound", "prediction_bound"]].reset_index(drop=True)


def bounds(table: pd.DataFrame) -> pd.DataFrame:
    """For each function and stand-in: of how many networks it bounds the whole, and by how much it is too large."""
    rows = table[table["part"] == "bounds"]
    made = []
    for (function, metric, name), own in rows.groupby(["function", "metric", "stand_in"], sort=False):
        ratio = own["value"] / own["whole"]
        made.append({
            "function": function, "concave": function in CONCAVE, "metric": metric, "stand_in": name,
            "networks": len(own), "below": int((ratio < 1 - SLACK).sum()), "least": ratio.min(),
            "median": ratio.median(), "most": ratio.max(),
        })  # fmt: skip
    return pd.DataFrame(made)


def penalty(table: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds of each training, with standard errors, and the strength that held-out images choose."""
    rows = table[table["part"] == "penalised"]
    made = []
    for (arm, strength), own in rows.groupby(["arm", "strength"], sort=False):
        row = {"arm": arm, "strength": strength, "seeds": len(own), "steps": int(own["gradients"].iloc[0] / price(arm))}
        for name in MEASURED:
            row |= {name: own[name].mean(), f"{name}_stderr": own[name].std() / np.sqrt(len(own))}
        made.append(row)
    found = pd.DataFrame(made)
    found["chosen"] = found["loss_held"] == found.groupby("arm")["loss_held"].transform("min")
    return found


def apart(table: pd.DataFrame, first: tuple[str, float], second: tuple[str, float], name: str) -> tuple[float, float]:
    """Mean and standard error of a quantity of the first arm less that of the second, seed by seed."""
    rows = table[table["part"] == "penalised"].set_index(["arm", "strength", "seed"])[name].sort_index()
    difference = rows.loc[first] - rows.loc[second]
    return float(difference.mean()), float(difference.std() / np.sqrt(len(difference)))
