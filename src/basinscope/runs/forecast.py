"""How long a study will still take, with an interval instead of a promise."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_LEAST = 3  # finished units before anything is said
_WIDTH = 1.645  # 90 % of a normal distribution


@dataclass(frozen=True)
class Forecast:
    """Seconds left: the expected number, and bounds that hold nine times in ten."""

    expected: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{spoken(self.expected)} left ({spoken(self.low)} – {spoken(self.high)})"


def forecast(finished: Sequence[tuple[float, float]], remaining: Sequence[float], workers: int) -> Forecast | None:
    """Time left from the units finished so far; None while fewer than three are.

    With seconds per cost r_i = t_i/c_i of mean r and variance s² over m finished units, W workers and costs c_j left,
    T = r Σc_j/W and Var T = (s²/W²)(Σc_j² + (Σc_j)²/m): the spread of what is to come, and how little is known of r.
    A last unit cannot be split: T is at least r max c_j.

    Args:
        finished: seconds and cost of each finished unit.
        remaining: costs of the units not finished, running ones included.
        workers: how many run at once.

    Examples:
        >>> print(forecast([(2.0, 1.0)] * 10, [1.0] * 30, workers=2))
        30 s left (30 s – 30 s)
        >>> forecast([(2.0, 1.0)], [1.0], workers=1) is None
        True
    """
    if len(finished) < _LEAST or not remaining:
        return None if remaining else Forecast(0.0, 0.0, 0.0)
    rates = [seconds / cost for seconds, cost in finished]
    rate, spread = statistics.fmean(rates), statistics.stdev(rates)
    total, busy = sum(remaining), min(workers, len(remaining))
    expected = rate * max(total / busy, max(remaining))
    squares = sum(cost**2 for cost in remaining)
    error = spread / busy * math.sqrt(squares + total**2 / len(rates))
    return Forecast(expected, max(expected - _WIDTH * error, 0.0), expected + _WIDTH * error)


def spoken(seconds: float) -> str:
    """A duration in words.

    Examples:
        >>> spoken(42), spoken(754), spoken(9000), spoken(400000)
        ('42 s', '13 min', '2.5 h', '4.6 days')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172800 else f"{seconds / 86400:.1f} days"
