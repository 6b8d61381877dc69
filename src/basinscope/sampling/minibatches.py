"""The posterior on minibatches: what its evaluations cost, how noisy they are, and first steps on them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .adjusted import ceiling
from .clock import Clock
from .engine import Engine
from .kernels import LeimkuhlerMatthews
from .pace import MIN_STEP, slowest_mode
from .target import Evaluate, Evaluation, Target
from .trace import statistic

CONTROL_PRICE = 2.0  # of a step with control variates, over one without
MAX_VIRIAL = 2.0  # of its exact mean, beyond which steps are unstable
MAX_VIRIAL_STDERRS = 4.0  # of independent chains, that it may be off by besides
PILOT_STEP = 0.5
PILOT_SHARE = 0.08  # of the time


def minibatches(target: Target, batch_size: int, generator: torch.Generator, mean: Tensor | None) -> Evaluate:
    """Evaluations on fresh samples for every chain and call; `mean` = g_n(w*) switches control variates on."""

    def evaluate(position: Tensor) -> Evaluation:
        indices = torch.randint(
            target.losses.land.n, (len(position), batch_size), generator=generator, device=position.device
        )
        if mean is None:
            return target.minibatch(position, indices)
        return target.controlled(position, indices, mean)

    return evaluate


def evaluations(target: Target, batch_size: int, generator: torch.Generator, mean: Tensor | None) -> Evaluate:
    """Evaluations as of `minibatches`, or on all samples where a batch is as large as the data."""
    if batch_size >= target.losses.land.n:
        return target.full
    return minibatches(target, batch_size, generator, mean)


def gradient_noise(evaluate: Evaluate, position: Tensor) -> Tensor:
    """An unbiased guess of Tr of the covariance of the whitened gradient at each position, (C,) float64, from a pair of
    independent minibatches."""
    away = evaluate(position).gradient.sub_(evaluate(position).gradient)
    return torch.linalg.vector_norm(away, dim=1, dtype=torch.float64).square() / 2


def later(noises: Sequence[Tensor]) -> Tensor:
    """The second half of the values of `gradient_noise`, (looks, C): chains go where there is more noise."""
    return torch.stack(list(noises[len(noises) // 2 :]))


def noise_trace(evaluate: Evaluate, position: Tensor, repeats: int = 2) -> float:
    """The mean over the positions of what `gradient_noise` estimates, from so many pairs of minibatches for each."""
    return float(torch.stack([gradient_noise(evaluate, position).mean() for _ in range(repeats)]).mean())


@dataclass(frozen=True)
class Price:
    """Seconds of a step on so many samples.

    Attributes:
        of: seconds of a loss-and-gradient on so many samples of so many chains.
        chains: that there are.
        n: samples that there are; nothing is controlled on all of them.
        controlled: whether control variates double it.
    """

    of: Callable[[int, int], float]
    chains: int
    n: int
    controlled: bool = False

    def __call__(self, batch: int) -> float:
        return self.of(batch, self.chains) * (CONTROL_PRICE if self.controlled and batch < self.n else 1.0)


def pilot(
    target: Target, position: Tensor, *, batch_size: int, seed: int, clock: Clock, price: float
) -> tuple[Tensor, float]:
    """Where chains from `position` are after a share of the time, or once the slowest known mode has relaxed, and their
    mean excess loss in the last quarter.

    The step size is divided by 4 while chains diverge. Chains must leave w* before anything is measured: gradient
    noise is smallest there, and curvature not typical.
    """
    generator = torch.Generator(position.device).manual_seed(seed)
    evaluate = evaluations(target, batch_size, generator, None)
    size, steps = PILOT_STEP, PILOT_SHARE * clock.left() / price
    while True:
        engine = Engine(LeimkuhlerMatthews(size), evaluate, position, generator, ceiling(target))
        length = max(16, math.ceil(min(steps, 4 / (size * slowest_mode(target)))))
        last = engine.run(length)[-length // 4 :]
        clock.spend(length * price)
        stable = bool(engine.alive.all()) and not unstable(last, target.losses.dimension)
        if stable or size <= MIN_STEP or clock.left() < 0.5 * clock.seconds:
            excess = statistic(last, "excess")[:, engine.alive.cpu().numpy()]
            return engine.living() if stable else position, float(excess.mean()) if stable else 0.0
        size /= 4


def unstable(block: NDArray[np.float64], dimension: int) -> bool:
    """Whether the virial of chains is far above its exact mean, as where their steps are too long for the curvature."""
    virial = statistic(block, "virial")
    chance = MAX_VIRIAL_STDERRS * math.sqrt(2 / (dimension * virial.shape[1]))
    return not float(virial.mean()) <= (MAX_VIRIAL + chance) * dimension
