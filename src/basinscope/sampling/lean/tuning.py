"""What a lean walk finds out first: how stiff each tensor is, how noisy its gradient, and how far to step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ...samples import Samples
from .noise import CounterNoise
from .walk import LeanWalk
from .weights import Step, Weights

STABLE = 0.4  # ε of the larger step times the largest whitened curvature; on quadratics steps are exact up to 4
MAX_LIFT = 0.1  # of λ̂, by which the noise of its gradients may lift chains of the larger step
RELAX = 4.0  # ε_c K P γ of the slowest mode, from which on chains of K steps count as having reached a γ
FRACTIONS = (1.0, 0.5)  # of the larger step; chains of a smaller one take as many more steps
_PERIODS = 10.0  # of the slowest mode that momentum is to damp critically, in a run
PRODUCTS = 8  # of power iterations
SAFETY = 1.2  # for what power iterations have not seen yet
NUDGE = 1e-2  # relative length of the first displacement, more than bfloat16 rounds away
_SOFTEST, _STIFFEST = 1.0, 1e-3  # scales P of the softest and stiffest tensors
_NEGLIGIBLE = 0.01  # share of the parameters whose tensors may be slower than a run can reach
Array = NDArray[np.float64]


def scales_of(stiffness: Sequence[float], sizes: Sequence[int]) -> list[float]:
    """P of each tensor, constant within it: smaller where it is stiffer than most parameters are.

    `stiffness` is the root mean square of the rows of the Hessian that belong to a tensor, the equilibration of
    Dauphin et al. (2015, https://arxiv.org/abs/1502.04390), or the root of the mean second moment of its gradients as
    an optimizer keeps it. Softer tensors are not stepped further: gradient noise would lift them, and one γ for all
    makes them wait for the slowest anyway.

    Examples:
        >>> scales_of([1.0, 8.0, 0.1], [100, 1, 1])
        [1.0, 0.125, 1.0]
    """
    order = np.argsort(stiffness)
    middle = np.searchsorted(np.cumsum(np.asarray(sizes)[order]), 0.5 * sum(sizes))
    usual = max(float(stiffness[order[middle]]), 1e-300)
    return [min(_SOFTEST, max(_STIFFEST, usual / value)) if value > 0 else _SOFTEST for value in stiffness]


@torch.no_grad()
def equilibration(walk: LeanWalk, batch: Samples, noise: CounterNoise) -> list[float]:
    """The root mean square of the Hessian's rows, tensor by tensor, from one product with a random vector."""
    weights = walk.weights
    length = NUDGE * _root_mean_square(weights)
    for number, star in enumerate(weights.star()):
        weights.aim(number, noise.fill(torch.empty_like(star, dtype=torch.float32), 0, number), length)
    _slope_across(walk, batch)
    squares = torch.zeros(len(weights.names), dtype=torch.float64)
    for number, gradient in walk.passes.held():
        squares[number] = float(gradient.square().sum(dtype=torch.float64))
    walk.passes.forget()
    means = weights.summed(squares) / torch.tensor(weights.sizes)
    return [float(mean) / (2 * length) for mean in means.sqrt()]


@torch.no_grad()
def stiffest(walk: LeanWalk, batch: Samples, scales: Sequence[float], noise: CounterNoise) -> float:
    """The largest eigenvalue, by modulus, of P^½ (nβH) P^½ on a batch, from power iterations by finite differences.

    The displacement is that of a thermal fluctuation in the stiffest direction, so that what is measured is the
    curvature that chains meet.
    """
    weights = walk.weights
    length = NUDGE * _root_mean_square(weights) * math.sqrt(sum(weights.sizes))
    value, norm = 0.0, torch.zeros((), dtype=torch.float64)
    for number, star in enumerate(weights.star()):
        direction = noise.fill(torch.empty_like(star, dtype=torch.float32), 1, number)
        norm += direction.square().sum(dtype=torch.float64).cpu()
        weights.aim(number, direction, length * math.sqrt(scales[number] / sum(weights.sizes)))
    length *= math.sqrt(float(weights.summed(norm)) / sum(weights.sizes))
    for _ in range(PRODUCTS):
        _slope_across(walk, batch)
        gradients = dict(walk.passes.held())
        squares = sum(scales[i] * float(gradients[i].square().sum(dtype=torch.float64)) for i in gradients)
        square = float(weights.summed(torch.tensor(squares, dtype=torch.float64)))
        if not 0 < square < math.inf:
            break
        value = math.sqrt(square) / (2 * length)
        length = min(length, 1 / math.sqrt(value)) if value > 0 else length
        for number in range(len(weights.names)):
            if number in gradients:
                weights.aim(number, gradients[number], length * scales[number] / math.sqrt(square))
        walk.passes.forget()
    walk.passes.forget()
    weights.restore()
    return SAFETY * value


def _root_mean_square(weights: Weights) -> float:
    """Of w*; 1 where that has no scale."""
    squares = sum(float(star.square().sum(dtype=torch.float64)) for star in weights.star())
    square = float(weights.summed(torch.tensor(squares, dtype=torch.float64)))
    return math.sqrt(square / sum(weights.sizes)) if square > 0 else 1.0


def _slope_across(walk: LeanWalk, batch: Samples) -> None:
    """Leave on the leaves nβ(∇L(w* + δ) − ∇L(w* − δ)), the weights at w* − δ."""
    scale = walk.nbeta / batch.n
    walk.passes.gradient(batch, scale)
    walk.weights.mirror()
    walk.passes.gradient(batch, -scale)


@dataclass(frozen=True)
class LeanPace:
    """How chains go.

    Attributes:
        step: of the larger size.
        steps: of chains of the larger size; those of half the size take twice as many.
        asked: γ that was asked for.
        stable: ε that the curvature allows.
        lift: of nβ·excess by gradient noise that is foreseen at the larger step.
    """

    step: Step
    steps: int
    asked: float
    stable: float
    lift: float

    @property
    def reached(self) -> bool:
        """Whether the γ that was asked for is that of the chains."""
        return self.step.gamma <= self.asked * (1 + 1e-9)

    def of(self, fraction: float) -> tuple[Step, int]:
        """The step of a fraction of the larger size, and how many there are."""
        step = self.step
        return Step(step.size * fraction, step.gamma, step.scales, step.persistence), math.ceil(self.steps / fraction)


def paced(
    *, scales: Sequence[float], sizes: Sequence[int], curvature: float, noise: float, energy: float, gamma: float,
    steps: int, momentum: bool, size: float | None = None,
) -> LeanPace:  # fmt: skip
    """The pace of chains of that many steps.

    Steps are as large as the curvature allows, or as the lift of gradient noise does. Where the second allows more,
    momentum makes chains spread further at the same step, as far as it damps the slowest mode critically. A mode of
    curvature a relaxes by ε_c P a/2 a step: what is slower than a run has time for is held by a coarser γ, which is
    then the resolution of the answer.

    Args:
        scales, sizes: P and number of parameters of each tensor.
        curvature: the largest whitened one.
        noise: the whitened trace of the covariance of gradients, Σ P tr C.
        energy: nβ·excess to be expected.
        gamma: asked for.
        steps: of chains of the larger size.
        momentum: whether there is memory for it.
        size: ε, if it is given.
    """
    slowest = slowest_scale(scales, sizes)
    stable = STABLE / max(curvature, gamma * max(scales), 1e-300)
    tolerable = 8 * MAX_LIFT * energy / noise if noise > 0 else math.inf
    step, persistence = size or min(stable, tolerable), 0.0
    if size is None and momentum and tolerable > 2 * stable:
        slow = max(math.sqrt(gamma * slowest), _PERIODS / (math.sqrt(step) * steps))
        persistence = math.exp(-2 * min(1.0, math.sqrt(step) * slow))
        ratio = min((1 + persistence) / (1 - persistence), tolerable / stable)
        persistence = (ratio - 1) / (ratio + 1)
    reach = step * (1 + persistence) / (1 - persistence)
    finest = RELAX / (reach * steps * slowest)
    chosen = Step(step, max(gamma, finest), tuple(scales), persistence)
    return LeanPace(chosen, steps, gamma, stable, reach * noise / 8)


def slowest_scale(scales: Sequence[float], sizes: Sequence[int]) -> float:
    """The least P, but for tensors that hold next to no parameters.

    Examples:
        >>> slowest_scale([1.0, 0.5, 0.01], [1000, 500, 1])
        0.5
    """
    order = np.argsort(scales)
    share = np.cumsum(np.asarray(sizes)[order]) / sum(sizes)
    return float(scales[order[np.searchsorted(share, _NEGLIGIBLE)]])
