"""What a sampler hands back, and the rules by which it decides that it has sampled enough."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from .diagnostics import Summary, summarize
from .target import Target
from .trace import Trace


@dataclass(frozen=True)
class Run:
    """Chains of one sampler at one setting."""

    target: Target
    trace: Trace
    alive: NDArray[np.bool_]
    position: Tensor  # where the chains ended, whitened (C, d)
    step_size: float
    settings: Mapping[str, float | int | str] = field(default_factory=dict)
    interrupted: bool = False
    exhausted: bool = False  # the budget ended before the standard error target was met
    discard: float = 0.5  # fraction of the run that is burn-in

    def summary(self, name: str = "excess") -> Summary:
        """Mean, standard error, ESS and R̂ of a statistic over the living chains, without burn-in."""
        blocks = self.trace.values(name, discard=self.discard, chains=self.alive)
        squares = (
            self.trace.values("excess_squared", discard=self.discard, chains=self.alive)
            if name == "excess"
            else blocks**2
        )
        return summarize(blocks, squares, self.trace.width)

    def drift(self) -> float:
        """Mean excess loss of the last quarter of the run less that of the quarter before it."""
        kept = self.trace.values("excess", discard=self.discard, chains=self.alive)
        middle = kept.shape[1] // 2
        return float(kept[:, middle:].mean() - kept[:, :middle].mean())


def converged(run: Run, rtol: float) -> bool:
    """Whether the mean excess loss is known to `rtol` and no longer moves.

    Large networks need few draws for a small standard error, too few for R̂ to come near 1 by itself; for them a
    drift between the last two quarters below half the tolerance serves.
    """
    if run.alive.sum() < 2:
        return False
    summary = run.summary()
    if not np.isfinite(summary.stderr) or summary.mean <= 0:
        return False
    tolerance = rtol * summary.mean
    still = abs(run.drift()) <= max(0.5 * tolerance, 3 * np.sqrt(2) * summary.stderr)
    return bool(summary.stderr <= tolerance and still and (summary.rhat <= 1.02 or summary.stderr <= 0.5 * tolerance))
