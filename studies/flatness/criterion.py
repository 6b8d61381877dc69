"""How near an arm comes to the paper: the criterion, fixed before the arms were run.

An arm reproduces Table 1 of "Flatness After All?" as far as the root of the mean square of τ − τ* over the eight
measures of that table is small: τ* is the paper's Kendall coefficient, τ ours between the measure on training data,
just as it is (not divided by n), and the gap on the complete official test set, over all networks of the arm that did
not diverge, whether they learned anything or not. Its interval is that of a bootstrap over settings (networks that
differ in batch size and learning rate alone count as one), the same draws for all eight.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from studies.common.kendall import LEVEL, REPETITIONS, Array, Interval, kendall, resampled

from .measures import CLUSTER, MEASURES
from .tables import finished, scopes

if TYPE_CHECKING:
    import pandas as pd

PAPER = {measure.column: measure.paper for measure in MEASURES if measure.paper is not None}


def distance(grid: pd.DataFrame, gap: str = "gap", repetitions: int = REPETITIONS) -> Interval:
    """√(⅛ Σ (τ − τ*)²) over the paper's eight measures, with its 95 % percentile interval.

    Networks without all eight and a gap do not count; NaN with fewer than three networks, or where all gaps or all
    values of a measure are equal.
    """
    columns = [*PAPER, gap]
    sound = grid[np.isfinite(grid[columns].to_numpy(dtype=float)).all(1)]
    if len(sound) < 3:
        return Interval(float("nan"), float("nan"), float("nan"), len(sound))
    clusters = list(sound[list(CLUSTER)].itertuples(index=False, name=None))
    draws = np.concatenate([np.ones((1, len(sound))), resampled(clusters, repetitions)])  # the first: as they are
    target = sound[gap].to_numpy(dtype=float)
    apart = [kendall(sound[name].to_numpy(dtype=float), target, draws) - tau for name, tau in PAPER.items()]
    distances: Array = np.sqrt(np.mean(np.square(apart), axis=0))
    spread = distances[1:][np.isfinite(distances[1:])]
    low, high = np.quantile(spread, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) if len(spread) else (np.nan, np.nan)
    return Interval(float(distances[0]), float(low), float(high), len(sound))


def criterion_table(arms: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The criterion of every arm, by name with its networks; its eight τ; and how many networks diverged, learned
    nothing, and are at a minimum (a Newton step would gain less than a twentieth of the predicted gap: `decrement`,
    twice that, is less than a tenth of it)."""
    import pandas as pd

    rows = []
    for name, networks in arms.items():
        grid = finished(networks)
        interval, parts = distance(grid), scopes(grid)
        gap = grid["gap"].to_numpy(dtype=float)
        rows.append(
            {
                "arm": name, "distance": interval.value, "low": interval.low, "high": interval.high,
                "networks": interval.count, "diverged": len(networks) - len(grid),
                "learned": int(parts["learned"].sum()), "at_minimum": int(parts["settled"].sum()),
                **{column: float(kendall(grid[column].to_numpy(dtype=float), gap)[0]) for column in PAPER},
            }
        )  # fmt: skip
    return pd.DataFrame(rows)
