"""How large steps and batches of minibatch chains are: those that go furthest for what they cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor

from .kernels import LeimkuhlerMatthews
from .runs import Run
from .target import Target

LARGEST_STEP = 0.25  # whitened curvature is at most 1 at w*, so Langevin steps are stable up to 4 there
TOLERATED_BIAS = 0.2  # of the largest step size, as predicted from its noise; beyond twice that the line is not trusted
SMALLEST = 1e-6  # steps below that do not keep chains alive that larger ones lose
PERIODS = 10.0  # in which chains with momentum are to relax their slowest mode
WORTH = 2.0  # how much further another pace must go to start again with it
ENOUGH = 1.5  # how much further larger batches must go to be taken
LEAST = 0.05  # of the mean at the smallest step, that is taken to be no bias
SURE = 2.0  # standard errors of a bias that is seen


class Pace(NamedTuple):
    """How chains go.

    Attributes:
        batch: samples of a batch.
        size: the largest step ε_c.
        stable: ε of that step without its momentum, at most.
        price: of a step of all chains.
        noisy: whether gradients are.
    """

    batch: int
    size: float
    stable: float
    price: float
    noisy: bool = True

    @property
    def speed(self) -> float:
        """How fast slow modes relax, for the price."""
        return self.size / self.price

    @property
    def persistence(self) -> float:
        """The part of the momentum that a step keeps."""
        ratio = max(1.0, self.size / self.stable)
        return (ratio - 1) / (ratio + 1)

    def kernel(self, fractions: Tensor) -> LeimkuhlerMatthews:
        """Steps that spread as those of the sizes `size·fractions` do, by momentum where that is more than is stable.

        All have the same momentum, so that both biases, of noise ∝ ε_c and of discretization ∝ ε, are linear in the
        fractions. Without noise they have the same friction instead: slow modes of smaller steps then relax more slowly
        only as their root, and discretization is all the bias there is.
        """
        kept = self.persistence if self.noisy else self.persistence ** fractions.sqrt()
        return LeimkuhlerMatthews(min(self.size, self.stable) * fractions, kept)

    def relaxation(self, fraction: float, curvature: float) -> float:
        """Steps of that fraction in which a mode relaxes."""
        return 1 / (self.size * (fraction if self.noisy else math.sqrt(fraction)) * curvature)


def slowest_mode(target: Target) -> float:
    """The least whitened curvature there may be."""
    return min(1.0, target.gamma * target.whitening.rest**2)


def largest_step(target: Target, stable: float, steps: float) -> float:
    """ε_c of steps of ε = `stable` with as much momentum as damps the slowest mode critically, or the slowest of those
    that so many steps can relax.

    Where steps must be smaller than the known curvature says, that is not what chains meet, and slow modes may be as
    much slower.
    """
    h = math.sqrt(stable)
    slowest = slowest_mode(target) * min(1.0, stable / LARGEST_STEP)
    slow = min(1.0, max(math.sqrt(slowest), PERIODS / (h * max(1.0, steps))))
    kept = math.exp(-2 * h * slow)
    return stable * (1 + kept) / (1 - kept)


def seen_steps(runs: Sequence[Run]) -> tuple[float, float]:
    """Between which sizes the step lies whose bias is `TOLERATED_BIAS`, by the chains' own means."""
    (high, high_error, _), (low, low_error, _) = (run.plain() for run in (runs[0], runs[-1]))
    finest = runs[-1].step_size
    way, error = runs[0].step_size - finest, SURE * math.hypot(high_error, low_error)

    def tolerable(slope: float) -> float:
        if slope <= 0:
            return math.inf
        return TOLERATED_BIAS * max(low - finest * slope, LEAST * abs(low)) / slope

    return tolerable((high - low + error) / way), tolerable((high - low - error) / way)


class Pacing:
    """Which batch and step to take, by what is known of noise.

    Args:
        target: the posterior.
        price: of a step on so many samples of so many chains.
        batch_size: samples of a batch, at least.
        grows: whether there may be more.
        chains, budget: as for `go_on`.
    """

    def __init__(
        self,
        target: Target,
        price: Callable[[int, int], float],
        batch_size: int,
        grows: bool,
        chains: int,
        budget: float,
    ) -> None:
        self._target = target
        self._price = price
        self.go_on(chains, budget)
        self._least = batch_size
        self._n = target.losses.land.n
        self._batches = [batch_size]
        while grows and 4 * self._batches[-1] < self._n:
            self._batches.append(2 * self._batches[-1])
        if grows and self._batches[-1] < self._n:
            self._batches.append(self._n)
        self._stable = LARGEST_STEP
        # Tolerable steps with batches of the least size: by the noise of gradients, and by what chains have shown.
        self._foreseen = math.inf
        self._seen = (0.0, math.inf)
        self._most = math.inf  # what proved too large, halved, whatever else is known

    def go_on(self, chains: int, budget: float) -> None:
        """Take note of how many chains there are now, and what they may spend."""
        self._chains = chains
        self._budget = budget

    def noise(self, trace: float, energy: float, now: Pace | None = None, fraction: float = 0.0) -> None:
        """Take note of gradient noise where chains, with a fraction of the present step, have that nβ·excess."""
        lift = trace / 8
        if lift > 0 and (now is None or now.batch < self._n):
            size, batch = (0.0, self._least) if now is None else (fraction * now.size, now.batch)
            self._foreseen = TOLERATED_BIAS * max(energy - lift * size, 0.25) / lift * self._least / batch

    def seen(self, between: tuple[float, float], now: Pace) -> None:
        """Take note of what the chains themselves tell of tolerable steps."""
        if now.batch < self._n:
            self._seen = (between[0] * self._least / now.batch, between[1] * self._least / now.batch)

    def lost(self, now: Pace, times: float) -> None:
        """Take note that present steps lose chains: so many times smaller ones may not."""
        self._stable = min(now.size, self._stable) / times
        if not now.persistence:
            self._tolerate(now, now.size / times)

    def bent(self, now: Pace) -> None:
        """Take note that the bias of present steps is no straight line: half of them may have one."""
        if now.batch < self._n:
            self._tolerate(now, now.size / 2)
        else:
            self._stable = min(now.size, self._stable) / 2

    def _tolerate(self, now: Pace, size: float) -> None:
        self._most = size * self._least / now.batch
        self._seen = (0.0, math.inf)

    def best(self) -> Pace:
        """What goes furthest for its price; of near equals the smallest batch."""
        found = [self._pace(batch) for batch in self._batches]
        most = max(pace.speed for pace in found)
        return next(pace for pace in found if ENOUGH * pace.speed >= most)

    def better(self, now: Pace, foreseen: bool = False) -> Pace | None:
        """What to start again with, if anything: where chains show the present step to be much too large, or where
        another pace is much faster. Where they cannot show it, what is `foreseen` counts."""
        best = self.best()
        tolerable = self._foreseen if foreseen else self._seen[1]
        too_large = now.batch < self._n and WORTH * tolerable * now.batch / self._least < now.size
        return best if too_large or best.speed > WORTH * now.speed else None

    def _pace(self, batch: int) -> Pace:
        size = self._largest(batch)
        if batch < self._n:
            low, high = self._seen
            size = min(size, min(self._most, max(low, min(high, self._foreseen))) * batch / self._least)
        return Pace(batch, max(size, SMALLEST), self._stable, self._price(batch, self._chains), batch < self._n)

    def _largest(self, batch: int) -> float:
        return largest_step(self._target, self._stable, self._budget / self._price(batch, self._chains))
