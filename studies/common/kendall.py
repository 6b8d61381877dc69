"""Rank correlations with intervals: pure functions of plain numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from basinscope.errors import InputError

Array = NDArray[np.float64]

REPETITIONS = 500
_QUICK = 200  # repetitions for each of many windows
LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A value with the ends of its bootstrap interval, and from how many networks."""

    value: float
    low: float
    high: float
    count: int


def kendall(first: ArrayLike, second: ArrayLike, weights: Array | None = None) -> Array:
    """Kendall's τ_b = Σ s_ij / √(Σ [x_i ≠ x_j] Σ [y_i ≠ y_j]) over pairs, s_ij = sign((x_i − x_j)(y_i − y_j)).

    Args:
        first, second: x and y.
        weights: how often each pair of values counts, (R, m): one τ for each of R rows, as a bootstrap draws them.

    Returns:
        (R,), or (1,) without weights; NaN where all x or all y are equal.

    Examples:
        >>> kendall([1, 2, 3, 4], [1, 3, 2, 4])
        array([0.66666667])
        >>> kendall([1, 2, 3], [2, 1, 3], np.array([[1.0, 1.0, 1.0], [1.0, 0.0, 2.0]])).round(3)
        array([0.333, 1.   ])
    """
    x, y = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if x.shape != y.shape or x.ndim != 1 or not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise InputError(f"two equally long rows of finite numbers are needed, got shapes {x.shape} and {y.shape}")
    counts = np.ones((1, len(x))) if weights is None else np.asarray(weights, dtype=np.float64)
    signs = [np.sign(np.subtract.outer(each, each)).astype(np.float32) for each in (x, y)]
    agreeing = ((counts.astype(np.float32) @ (signs[0] * signs[1])) * counts).sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(agreeing / np.sqrt(_apart(x, counts) * _apart(y, counts)), dtype=np.float64)


def _apart(values: Array, counts: Array) -> Array:
    """Σ w_i w_j [x_i ≠ x_j] = (Σ w)² − Σ (Σ w over a tie)²."""
    _, place = np.unique(values, return_inverse=True)
    ties = np.zeros((place.max() + 1 if len(place) else 0, len(counts)))
    np.add.at(ties, place, counts.T)
    return np.asarray(counts.sum(1) ** 2 - np.square(ties).sum(0))


def resampled(clusters: Sequence[Any], repetitions: int = REPETITIONS, seed: int = 0) -> Array:
    """How often each row counts when whole clusters are drawn with replacement, (repetitions, rows).

    Examples:
        >>> drawn = resampled(["a", "a", "b"], repetitions=3)
        >>> bool((drawn[:, 0] == drawn[:, 1]).all()), (drawn[:, 0] + drawn[:, 2]).tolist()
        (True, [2.0, 2.0, 2.0])
    """
    names = list(dict.fromkeys(clusters))
    place = {name: number for number, name in enumerate(names)}
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), size=repetitions)
    return counts[:, [place[name] for name in clusters]].astype(np.float64)


def with_interval(
    first: ArrayLike,
    second: ArrayLike,
    clusters: Sequence[Any],
    within: Sequence[Any] | None = None,
    repetitions: int = REPETITIONS,
) -> Interval:
    """τ with its 95 % percentile interval over clusters; with `within`, the mean of the τ of each group.

    Only pairs of finite numbers count. Fewer than three of them give NaN.

    Examples:
        >>> tau = with_interval(range(10), range(10), range(10))
        >>> tau.value, tau.low, tau.high, tau.count
        (1.0, 1.0, 1.0, 10)
    """
    x, y = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    known = np.flatnonzero(np.isfinite(x) & np.isfinite(y)).tolist()
    if len(known) < 3:
        return Interval(float("nan"), float("nan"), float("nan"), len(known))
    weights = resampled([clusters[i] for i in known], repetitions)
    groups = [known] if within is None else _groups([within[i] for i in known], known)
    position = {i: number for number, i in enumerate(known)}
    values, draws = [], []
    for group in groups:
        if len(group) >= 3:
            counts = weights[:, [position[i] for i in group]]
            values.append(kendall(x[group], y[group])[0])
            draws.append(kendall(x[group], y[group], counts))
    if not values:
        return Interval(float("nan"), float("nan"), float("nan"), len(known))
    spread = _mean(np.array(draws))
    ends = np.nanquantile(spread, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) if np.isfinite(spread).any() else [np.nan] * 2
    return Interval(float(_mean(np.array(values)[:, None])[0]), float(ends[0]), float(ends[1]), len(known))


def _mean(values: Array) -> Array:
    """The mean over rows of what is known."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, values, 0).sum(0) / known.sum(0))


def _groups(names: Sequence[Any], places: Sequence[int]) -> list[list[int]]:
    by_name: dict[Any, list[int]] = {}
    for name, place in zip(names, places, strict=True):
        by_name.setdefault(name, []).append(place)
    return list(by_name.values())


def windows(
    along: ArrayLike,
    first: ArrayLike,
    second: ArrayLike,
    clusters: Sequence[Any],
    share: float = 0.5,
    steps: int = 25,
) -> list[tuple[float, Interval]]:
    """τ of those rows whose `along` lies in a window that holds a share of all rows: the window's median, and τ.

    Examples:
        >>> taus = windows([1, 2, 3, 4, 5, 6], [1, 2, 3, 3, 2, 1], [1, 2, 3, 4, 5, 6], range(6), steps=2)
        >>> [(place, tau.value) for place, tau in taus]
        [(2.0, 1.0), (5.0, -1.0)]
    """
    by, x, y = (np.asarray(values, dtype=np.float64) for values in (along, first, second))
    known = np.flatnonzero(np.isfinite(by) & np.isfinite(x) & np.isfinite(y))
    order = known[np.argsort(by[known], kind="stable")]
    size = max(3, round(share * len(order)))
    if len(order) < size:
        return []
    starts = np.unique(np.linspace(0, len(order) - size, steps).round().astype(int))
    taus = []
    for start in starts:
        window = order[start : start + size]
        tau = with_interval(x[window], y[window], [clusters[i] for i in window.tolist()], repetitions=_QUICK)
        taus.append((float(np.median(by[window])), tau))
    return taus
