"""Stages of a training: where a curve over time breaks into pieces, with intervals for where."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..checks import whole
from ..errors import InputError

Array = NDArray[np.float64]

_SHORTEST = 3  # points of a stage
_RESAMPLED = 200
_PRICE, _POWER = 0.299, 2.1  # of a number more in the fit (Liu, Wu and Zidek 1997)


@dataclass(frozen=True)
class Boundary:
    """Where one stage ends and the next begins.

    Attributes:
        at: the time, between the last point of one stage and the first of the next.
        low, high: ends of its interval.
        support: in how many of the resampled curves as many stages are found.
    """

    at: float
    low: float
    high: float
    support: float


def stages(
    times: Sequence[float], values: Sequence[float], *, most: int = 6, level: float = 0.9, seed: int = 0
) -> list[Boundary]:
    """The boundaries between the straight pieces of a curve over the logarithm of time.

    For every number of pieces up to `most` the best fit by straight lines, each free of the others and of at least
    three points, is found by dynamic programming. The number of pieces is the one with the least
    K log(RSS/(K − p)) + 0.299 p (log K)^2.1, where K counts points and p two numbers for each piece and one for each
    boundary (Liu, Wu and Zidek 1997). Schwarz's p log K alone finds boundaries in noise, as each is the best of many
    places. Intervals are those of the boundaries of curves made of the fit and of its residuals drawn anew.

    Args:
        times: above zero, in order.
        values: of the curve.
        most: pieces.
        level: of the intervals.
        seed: of the residuals.

    Examples:
        >>> times = [2.0**k for k in range(24)]
        >>> wiggle = [0.02 * (-1) ** k for k in range(24)]
        >>> curve = [(5.0 if k < 12 else 9.0 - 0.1 * k) + wiggle[k] for k in range(24)]
        >>> [round(math.log2(found.at), 1) for found in stages(times, curve)]
        [11.5]
    """
    x, y = np.log(np.asarray(times, dtype=np.float64)), np.asarray(values, dtype=np.float64)
    if x.shape != y.shape or x.ndim != 1 or not np.isfinite(x).all() or (np.diff(x) <= 0).any():
        raise InputError(f"times must be positive and rise, one for each value, got {list(times)!r:.80}")
    known = np.isfinite(y)
    x, y = x[known], y[known]
    if len(x) < 2 * _SHORTEST:
        return []
    count = _pieces(_costs(x, y), len(x), whole("most", most, 1))
    ends = _ends(_costs(x, y), len(x), count)
    if not ends:
        return []
    fit = _fit(x, y, ends)
    rng = np.random.default_rng(seed)
    left = y - fit
    boundaries, same = [], 0
    for _ in range(_RESAMPLED):
        again = fit + rng.choice(left, len(left)) * math.sqrt(len(x) / max(1, len(x) - 2 * count))
        costs = _costs(x, again)
        boundaries.append([_between(x, end) for end in _ends(costs, len(x), count)])
        same += _pieces(costs, len(x), most) == count
    tail = (1 - level) / 2
    low, high = np.quantile(np.array(boundaries), [tail, 1 - tail], axis=0)
    return [
        Boundary(math.exp(_between(x, end)), math.exp(low[place]), math.exp(high[place]), same / _RESAMPLED)
        for place, end in enumerate(ends)
    ]


def _between(x: Array, end: int) -> float:
    """Half way between the last point of a piece and the next one."""
    return float(x[end - 1] + x[end]) / 2


def _costs(x: Array, y: Array) -> Array:
    """RSS of the straight line through points i … j − 1, in (i, j); infinite where they are too few."""
    count = len(x)

    def sums(values: Array) -> Array:
        total = np.concatenate([[0.0], np.cumsum(values)])
        return np.asarray(total[None, :] - total[:, None], dtype=np.float64)

    x, y = x - x.mean(), y - y.mean()
    number = np.maximum(1.0, sums(np.ones(count)))
    sx, sy, sxx, sxy, syy = sums(x), sums(y), sums(x * x), sums(x * y), sums(y * y)
    spread = np.maximum(1e-300, sxx - sx**2 / number)
    rss = syy - sy**2 / number - (sxy - sx * sy / number) ** 2 / spread
    size = np.arange(count + 1)[None, :] - np.arange(count + 1)[:, None]
    return np.where(size >= _SHORTEST, np.maximum(rss, 0.0), math.inf)


def _best(costs: Array, points: int, most: int) -> tuple[list[float], list[list[int]]]:
    """The least RSS with 1, 2, … pieces, and where these end before the last."""
    least, paths = [costs[0]], [np.zeros(points + 1, dtype=int)]
    for _ in range(1, most):
        sums = least[-1][:, None] + costs
        paths.append(sums.argmin(0))
        least.append(sums.min(0))
    ends = []
    for pieces in range(most):
        place, own = points, []
        for level in range(pieces, 0, -1):
            place = int(paths[level][place])
            own.append(place)
        ends.append(own[::-1])
    return [float(row[points]) for row in least], ends


def _pieces(costs: Array, points: int, most: int) -> int:
    least, _ = _best(costs, points, min(most, points // _SHORTEST))
    floor = 1e-12 * max(least[0], 1e-300)

    def score(pieces: int, rss: float) -> float:
        numbers = 3 * pieces - 1
        if numbers >= points or not math.isfinite(rss):
            return math.inf
        return points * math.log(max(rss, floor) / (points - numbers)) + _PRICE * numbers * math.log(points) ** _POWER

    return int(np.argmin([score(pieces, rss) for pieces, rss in enumerate(least, 1)])) + 1


def _ends(costs: Array, points: int, pieces: int) -> list[int]:
    return _best(costs, points, pieces)[1][pieces - 1]


def _fit(x: Array, y: Array, ends: Sequence[int]) -> Array:
    """The lines, at every point."""
    pieces = []
    for start, stop in zip([0, *ends], [*ends, len(x)], strict=True):
        slope, height = np.polyfit(x[start:stop], y[start:stop], 1)
        pieces.append(slope * x[start:stop] + height)
    return np.concatenate(pieces)
