"""Two samples compared, many comparisons corrected, two series compared in time: pure functions of plain numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from basinscope.errors import InputError


@dataclass(frozen=True)
class Comparison:
    """Two samples beside each other.

    Attributes:
        first, second: their means.
        first_stderr, second_stderr: standard errors of the means.
        difference: first − second.
        low, high: ends of the 95 % interval of the difference.
        t, freedom, p: Welch's statistic, its degrees of freedom, and the two-sided p-value.
        effect: Hedges' g, the difference in standard deviations.
        counts: sizes of the samples.
    """

    first: float
    second: float
    first_stderr: float
    second_stderr: float
    difference: float
    low: float
    high: float
    t: float
    freedom: float
    p: float
    effect: float
    counts: tuple[int, int]


def welch(first: Sequence[float], second: Sequence[float]) -> Comparison:
    """Welch's t-test: t = (x̄ − ȳ)/√(s_x²/m + s_y²/n), with the degrees of freedom of Welch and Satterthwaite.

    Hedges' g is (x̄ − ȳ)/s · (1 − 3/(4(m + n) − 9)) with the pooled standard deviation s.

    Examples:
        >>> test = welch([5.0, 6.0, 7.0], [1.0, 2.0, 3.0])
        >>> round(test.t, 4), test.freedom, round(test.p, 4), round(test.effect, 2)
        (4.899, 4.0, 0.008, 3.2)
    """
    from scipy import stats

    x, y = _sample(first), _sample(second)
    parts = float(x.var(ddof=1)) / len(x), float(y.var(ddof=1)) / len(y)
    difference, error = float(x.mean() - y.mean()), math.sqrt(sum(parts))
    pooled = math.sqrt(((len(x) - 1) * x.var(ddof=1) + (len(y) - 1) * y.var(ddof=1)) / (len(x) + len(y) - 2))
    if error == 0:
        raise InputError(
            "neither sample varies at all, so that no test can compare them: expected repetitions with other seeds"
        )
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / (len(x) - 1) + parts[1] ** 2 / (len(y) - 1))
    half = float(stats.t.ppf(0.975, freedom)) * error
    return Comparison(
        first=float(x.mean()),
        second=float(y.mean()),
        first_stderr=math.sqrt(parts[0]),
        second_stderr=math.sqrt(parts[1]),
        difference=difference,
        low=difference - half,
        high=difference + half,
        t=difference / error,
        freedom=freedom,
        p=float(2 * stats.t.sf(abs(difference) / error, freedom)),
        effect=difference / pooled * (1 - 3 / (4 * (len(x) + len(y)) - 9)),
        counts=(len(x), len(y)),
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: p₍ᵢ₎ ↦ max_{j ≤ i} min(1, (m − j + 1) p₍ⱼ₎), which bounds the chance of any false rejection.

    Examples:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    bad = [p for p in p_values if not 0 <= p <= 1]
    if bad:
        raise InputError(f"p-values must lie in [0, 1], got {bad[0]!r}")
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's ρ: the correlation of the ranks, ties sharing theirs; NaN where one of the two never changes.

    Examples:
        >>> rank_correlation([1.0, 2.0, 3.0, 4.0], [10.0, 20.0, 40.0, 30.0])
        0.8
    """
    x, y = _pairs(first, second)
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan
    ranks = [_ranks(each) - (len(x) + 1) / 2 for each in (x, y)]
    return float((ranks[0] * ranks[1]).sum() / math.sqrt((ranks[0] ** 2).sum() * (ranks[1] ** 2).sum()))


def turning_point(times: Sequence[float], values: Sequence[float]) -> float:
    """When a series is lowest and afterwards only higher; NaN where it falls to the very end.

    Examples:
        >>> turning_point([0, 1, 2, 3], [3.0, 1.0, 2.0, 4.0]), turning_point([0, 1], [2.0, 1.0])
        (1.0, nan)
    """
    when, what = _pairs(times, values)
    if not len(what):
        return math.nan
    place = int(what.argmin())
    return math.nan if place == len(what) - 1 else float(when[place])


def lag(times: Sequence[float], leader: Sequence[float], follower: Sequence[float]) -> float:
    """How much later the follower turns than the leader; NaN where one of them never does.

    Examples:
        >>> lag([0, 1, 2, 3], [2.0, 1.0, 2.0, 3.0], [3.0, 2.0, 1.0, 2.0])
        1.0
    """
    return turning_point(times, follower) - turning_point(times, leader)


def _sample(values: Sequence[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or len(sample) < 2 or not np.isfinite(sample).all():
        raise InputError(f"a sample must hold at least two finite numbers, got {list(values)!r:.80}")
    return sample


def _pairs(first: Sequence[float], second: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Both series where both are known."""
    x, y = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if x.shape != y.shape or x.ndim != 1:
        raise InputError(f"two series must be equally long, got {x.shape} and {y.shape}")
    known = np.isfinite(x) & np.isfinite(y)
    return x[known], y[known]


def _ranks(values: np.ndarray) -> np.ndarray:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[place]
