"""What a run is to reach, and what it may take."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..progress import Report, duration
from .clock import Clock, NominalClock
from .equilibrium import Mean

_BLOCKS = 100  # that the budget is cut into at least: so often the clock is asked
_INSTANT = 1e-9  # seconds


@dataclass(frozen=True)
class Goal:
    """When to stop.

    Attributes:
        rtol: wanted standard error relative to the mean.
        seed: of all random numbers.
        clock: says how much time is left.
        report: progress.
        draws: of each chain, instead of a tolerance.
        discard: fraction of the draws that is burn-in.
    """

    rtol: float
    seed: int
    clock: Clock
    report: Report
    draws: int | None = None
    discard: float = 0.5

    def block(self, price: float, most: int) -> int:
        """Steps of that price to take before the clock is asked again, at most so many."""
        return max(1, min(most, int(self.clock.seconds / _BLOCKS / max(price, _INSTANT))))

    def tell(self, left: float, phase: str, scale: float = 1.0, mean: Mean | None = None) -> None:
        """Report progress: the phase, the mean so far times `scale` with its error, and the time left."""
        value = "" if mean is None else f", λ̂ {scale * mean.value:.4g} ± {scale * mean.stderr:.2g}"
        share = 1.0 if self.clock.seconds <= 0 else 1 - left / self.clock.seconds
        self.report(min(1.0, max(0.0, share)), f"{phase}{value}, at most {duration(max(0.0, left))} left")


def unlimited(seed: int, draws: int) -> Goal:
    """So many draws, all of which count, whatever they cost.

    Examples:
        >>> unlimited(0, 100).block(price=0.0, most=64)
        64
    """
    return Goal(math.inf, seed, NominalClock(1.0), lambda fraction, text: None, draws, discard=0.0)
