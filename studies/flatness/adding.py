"""What a measure knows of the gap that the settings of training do not: correlations with settings held fixed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from studies.common.kendall import LEVEL, REPETITIONS, Array, kendall, with_interval

from .measures import BASELINES, CLUSTER, GAPS, KEY, LEARNED, MEASURES, Measure

if TYPE_CHECKING:
    import pandas as pd

AXES = ("decay", "samples", "architecture", "data", "lr", "batch_size")  # what one setting is varied at a time
FIXED = ((), ("data",), ("data", "samples"), ("data", "samples", "decay"), ("data", "samples", "decay", "architecture"))
NAMES = {
    "decay": "weight decay", "samples": "n", "architecture": "architecture", "data": "data set",
    "lr": "learning rate", "batch_size": "batch size",
}  # fmt: skip
COMPARED = tuple(measure for measure in MEASURES if measure.paper is not None or measure.column in BASELINES)


def granulated(grid: pd.DataFrame) -> pd.DataFrame:
    """τ of each measure over networks that differ in one setting alone, as Jiang et al. (2020) take it.

    https://arxiv.org/abs/1912.02178. For an axis it is the mean of τ over all groups of networks that share every other
    setting; `mean` is the mean over the axes. Intervals are percentiles of a bootstrap over groups. Sizes of data are
    compared by measures divided by n.
    """
    import pandas as pd

    rows = []
    for measure, against in product(COMPARED, GAPS):
        if measure.column not in grid:
            continue
        values = _per_sample(grid, measure)
        gap = grid[GAPS[against]].to_numpy(dtype=float)
        draws = []
        for axis in AXES:
            others = [name for name in KEY if name in grid and name != axis]
            taus = group_taus(values, gap, list(grid[others].itertuples(index=False, name=None)))
            tau, spread = _bootstrap(taus)
            draws.append((tau, spread))
            rows.append(_row(measure, against, axis, tau, spread, len(taus)))
        if all(np.isfinite(tau) for tau, _ in draws):  # a mean over other axes could not be compared
            mean = float(np.mean([tau for tau, _ in draws]))
            spread = np.mean([spread for _, spread in draws], axis=0)
            rows.append(_row(measure, against, "mean", mean, spread, len(draws)))
    return pd.DataFrame(rows)


def group_taus(values: Array, gap: Array, groups: Sequence[Any]) -> Array:
    """τ of every group with two different values and gaps at least, in the order in which groups are met.

    Examples:
        >>> group_taus(np.array([1.0, 2, 3, 5, 4]), np.array([1.0, 2, 3, 1, 2]), ["a", "a", "a", "b", "b"])
        array([ 1., -1.])
    """
    members: dict[Any, list[int]] = {}
    for place, group in enumerate(groups):
        if np.isfinite(values[place]) and np.isfinite(gap[place]):
            members.setdefault(group, []).append(place)
    taus = np.array([kendall(values[places], gap[places])[0] for places in members.values() if len(places) > 1])
    return taus[np.isfinite(taus)]


def conditional(grid: pd.DataFrame) -> pd.DataFrame:
    """τ of each measure within groups of networks that share more and more settings, of all networks and of those that
    learned anything.

    Intervals are of a bootstrap over settings, and over the groups where these are settings themselves.
    """
    import pandas as pd

    rows = []
    for scope, networks in (("all", grid), ("learned", grid[grid["accuracy_train"] > LEARNED])):
        clusters = list(networks[list(CLUSTER)].itertuples(index=False, name=None))
        for measure, against, fixed in product(COMPARED, GAPS, FIXED):
            if measure.column not in networks or len(networks) < 3:
                continue
            values, gap = _per_sample(networks, measure), networks[GAPS[against]].to_numpy(dtype=float)
            cells = list(networks[list(fixed)].itertuples(index=False, name=None)) if fixed else None
            if cells is not None and "decay" in fixed:
                tau, spread = _bootstrap(group_taus(values, gap, cells))
                ends, count = _interval(spread), int((np.isfinite(values) & np.isfinite(gap)).sum())
            else:
                whole = with_interval(values, gap, clusters, cells)
                tau, ends, count = whole.value, (whole.low, whole.high), whole.count
            rows.append({
                "measure": measure.column, "label": measure.label, "scope": scope, "against": against,
                "fixed": ", ".join(NAMES[name] for name in fixed) or "nothing", "tau": tau, "low": ends[0],
                "high": ends[1], "networks": count,
            })  # fmt: skip
    return pd.DataFrame(rows)


def _per_sample(grid: pd.DataFrame, measure: Measure) -> Array:
    values = grid[measure.column].to_numpy(dtype=float)
    return values / grid["samples"].to_numpy() if measure.per_sample else values


def _bootstrap(taus: Array, seed: int = 0) -> tuple[float, Array]:
    """The mean over groups, and the means of groups drawn with replacement; NaN without any."""
    if not len(taus):
        return float("nan"), np.full(REPETITIONS, np.nan)
    drawn = np.random.default_rng(seed).integers(0, len(taus), size=(REPETITIONS, len(taus)))
    return float(taus.mean()), taus[drawn].mean(1)


def _row(measure: Measure, against: str, axis: str, tau: float, spread: Array, groups: int) -> dict[str, Any]:
    low, high = _interval(spread)
    return {
        "measure": measure.column, "label": measure.label, "against": against, "axis": axis, "tau": tau, "low": low,
        "high": high, "groups": groups,
    }  # fmt: skip


def _interval(spread: Array) -> tuple[float, float]:
    if not np.isfinite(spread).all():
        return float("nan"), float("nan")
    low, high = np.quantile(spread, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
