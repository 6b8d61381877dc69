"""How long a study will still take, with an interval instead of a promise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..progress import duration

_LEAST = 3  # finished units before anything is said
_PLAYS = 200
_WIDEST = 2.0  # standard deviation of the logarithm beyond which a few units say nothing of the mean
_PLAYED = 300  # units before the end that are played one by one


@dataclass(frozen=True)
class Forecast:
    """Seconds left: the expected number, and bounds that hold nine times in ten."""

    expected: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{duration(self.expected)} left ({duration(self.low)} – {duration(self.high)})"


def forecast(finished: Sequence[tuple[float, float]], remaining: Sequence[float], workers: int) -> Forecast | None:
    """Time left from the units finished so far; None while fewer than three are.

    The rest is played through many times: workers take units in their order, each of cost c lasting c·r with log r
    normal. Its variance s² is drawn as (m−1)s²/χ²_(m−1) and its mean from N(mean, s²/m) anew in every play, from the
    m units finished: the interval covers what is to come and how little is known of it. Told are the median and the
    5 % and 95 % points.

    Args:
        finished: seconds and cost of each finished unit.
        remaining: costs of the units not finished, in the order in which they will be taken.
        workers: how many run at once.

    Examples:
        >>> print(forecast([(2.0, 1.0)] * 10, [1.0] * 30, workers=2))
        30 s left (30 s – 30 s)
        >>> forecast([(2.0, 1.0)], [1.0], workers=1) is None
        True
    """
    if not remaining:
        return Forecast(0.0, 0.0, 0.0)
    if len(finished) < _LEAST:
        return None
    rng = np.random.default_rng(0)
    logs = np.log([max(seconds, 1e-6) / cost for seconds, cost in finished])
    many = len(logs)
    sigma = np.minimum(logs.std(ddof=1) * np.sqrt((many - 1) / rng.chisquare(many - 1, _PLAYS)), _WIDEST)
    centre = logs.mean() + sigma / np.sqrt(many) * rng.standard_normal(_PLAYS)
    bulk, last = np.array(remaining[:-_PLAYED]), np.array(remaining[-_PLAYED:])
    # What comes long before the end keeps all workers busy: only its sum matters.
    mean = np.exp(centre + sigma**2 / 2)
    free = np.repeat((mean * bulk.sum() / workers)[:, None], workers, axis=1)
    plays = np.arange(_PLAYS)
    for cost in last:
        free[plays, free.argmin(1)] += cost * np.exp(centre + sigma * rng.standard_normal(_PLAYS))
    low, expected, high = np.quantile(free.max(1), (0.05, 0.5, 0.95))
    return Forecast(float(expected), float(low), float(high))
