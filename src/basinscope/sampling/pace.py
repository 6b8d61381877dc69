"""How large steps and batches of minibatch chains are: those that go furthest in the time they take."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor

from .kernels import LeimkuhlerMatthews
from .target import Target

MAX_STABLE_STEP = 0.25  # whitened curvature is at most 1 at w*, so Langevin steps are stable up to 4 there
MAX_LIFT = 0.1  # of the largest step, by which its noise may lift λ̂, as a share of λ̂
MIN_ENERGY = 0.25  # λ̂ that a lift is compared with, at least
MIN_STEP = 1e-6  # steps below that do not keep chains alive that larger ones lose
PERIODS = 10.0  # in which chains with momentum are to relax their slowest mode
MIN_GAIN_OF_BATCH = 1.5  # how much further larger batches must go to be taken


class Pace(NamedTuple):
    """How chains go.

    Attributes:
        batch: samples of a batch.
        size: the largest step ε_c.
        stable: ε of that step without its momentum, at most.
        price: seconds of a step of all chains.
        noisy: whether gradients come from minibatches.
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
        persistence = self.persistence if self.noisy else self.persistence ** fractions.sqrt()
        return LeimkuhlerMatthews(min(self.size, self.stable) * fractions, persistence)

    def relaxation(self, fraction: float, curvature: float) -> float:
        """Steps of that fraction in which a mode relaxes."""
        return 1 / (self.size * (fraction if self.noisy else math.sqrt(fraction)) * curvature)


class Noise(NamedTuple):
    """What makes steps on minibatches biased: a step ε on m samples lifts nβ·excess by about ε·`each`/(8m).

    Attributes:
        each: the trace of the covariance of one sample's whitened gradient of U.
        energy: nβ·excess without that lift.
    """

    each: float
    energy: float

    def tolerable(self, batch: int) -> float:
        """The step on so many samples whose lift is `MAX_LIFT` of λ̂."""
        return 8 * batch * MAX_LIFT * max(self.energy, MIN_ENERGY) / self.each if self.each > 0 else math.inf


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
    slowest = slowest_mode(target) * min(1.0, stable / MAX_STABLE_STEP)
    slow = min(1.0, max(math.sqrt(slowest), PERIODS / (h * max(1.0, steps))))
    persistence = math.exp(-2 * h * slow)
    return stable * (1 + persistence) / (1 - persistence)


def batches(least: int, n: int, grows: bool) -> list[int]:
    """The sizes that batches of `least` samples may have: twice as many again and again, at last all n.

    Examples:
        >>> batches(100, 500, grows=True), batches(100, 500, grows=False)
        ([100, 200, 500], [100])
    """
    sizes = [least]
    while grows and 4 * sizes[-1] < n:
        sizes.append(2 * sizes[-1])
    return [*sizes, n] if grows and sizes[-1] < n else sizes


def fastest(
    target: Target, noise: Noise, sizes: Sequence[int], stable: float, seconds: float, price: Callable[[int], float]
) -> Pace:
    """What goes furthest for its price; of near equals the smallest batch.

    Args:
        target: the posterior.
        noise: of its gradients.
        sizes: of batches, from the smallest on.
        stable: the largest ε without momentum.
        seconds: that there are.
        price: of a step on so many samples.
    """

    def pace(batch: int) -> Pace:
        noisy = batch < target.losses.land.n
        size = largest_step(target, stable, seconds / price(batch))
        size = min(size, noise.tolerable(batch)) if noisy else size
        return Pace(batch, max(size, MIN_STEP), stable, price(batch), noisy)

    paces = [pace(batch) for batch in sizes]
    most = max(each.speed for each in paces)
    return next(each for each in paces if MIN_GAIN_OF_BATCH * each.speed >= most)
