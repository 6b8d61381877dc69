"""Entropy-SGD beside SGD: at the end of training, and where both have the same training loss."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from basinscope.errors import InputError
from studies.common.matching import at_one_loss
from studies.common.statistics import welch

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]
KINDS = ("entropy-sgd", "sgd")
MEASURED = ("llc_paper", "llc", "train_loss", "test_loss", "test_accuracy")


def members(rows: pd.DataFrame) -> list[Row]:
    """Every network at every moment."""
    names = ("optimizer", "seed", "epoch", "outcome", "parameters", "train_loss", "train_accuracy", "test_loss",
            "test_accuracy", "llc_paper", "llc_paper_stderr", "llc_paper_verdict", "llc", "llc_stderr",
            "llc_verdict")  # fmt: skip
    return [{name: row.get(name) for name in names} for row in rows.to_dict("records")]


def comparisons(rows: pd.DataFrame) -> list[Row]:
    """Entropy-SGD less SGD by Welch's test, for every measurement at the end and at equal loss.

    For the second, of two networks of one seed the faster one is taken where it had the loss that the slower one ended
    with, interpolated between its moments in the logarithm of the loss. Failed estimates are left out.
    """
    ends = rows[rows["epoch"] == rows["epoch"].max()]
    moments = {"end": tuple(ends[ends["optimizer"] == kind] for kind in KINDS), "equal loss": at_equal_loss(rows)}
    return [
        {"moment": moment, "measurement": name, **_compared(*(_finite(group, name) for group in pair))}
        for moment, pair in moments.items()
        for name in MEASURED
        if all(name in group and group[name].notna().any() for group in pair)
    ]


def at_equal_loss(rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The networks of either optimizer, seed by seed, where both had the same training loss."""
    import pandas as pd

    sound = rows[(rows["outcome"] == "finished") & (rows["llc_paper_verdict"] == "ok")]
    known = sound.assign(log_loss=np.log(sound["train_loss"])).sort_values("epoch")
    pairs = []
    for _, pair in known.groupby("seed"):
        runs = [pair[pair["optimizer"] == kind] for kind in KINDS]
        if all(len(run) > 1 for run in runs) and (both := at_one_loss(runs[0], runs[1], "log_loss")) is not None:
            pairs.append(both)
    # λ̂ that was calibrated at the end alone is none of another moment
    sides = ([{**both[side], "train_loss": math.exp(both[side]["log_loss"])} for both in pairs] for side in (0, 1))
    first, second = (pd.DataFrame(side).drop(columns="llc", errors="ignore") for side in sides)
    return first, second


def _finite(table: pd.DataFrame, name: str) -> list[float]:
    verdict = f"{name}_verdict"
    sound = table[table[verdict] != "failed"] if verdict in table else table
    return [float(value) for value in sound[name] if math.isfinite(value)]


def _compared(first: list[float], second: list[float]) -> Row:
    try:
        test = welch(first, second)
    except InputError:
        means = [math.fsum(values) / len(values) if values else math.nan for values in (first, second)]
        return {"entropy_sgd": means[0], "sgd": means[1], "difference": means[0] - means[1],
                "seeds": min(len(first), len(second))}  # fmt: skip
    return {
        "entropy_sgd": test.first, "entropy_sgd_stderr": test.first_stderr, "sgd": test.second,
        "sgd_stderr": test.second_stderr, "difference": test.difference, "low": test.low, "high": test.high,
        "p": test.p, "effect": test.effect, "seeds": min(test.counts),
    }  # fmt: skip
