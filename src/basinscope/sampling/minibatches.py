"""The posterior on minibatches: evaluations for kernels, and how noisy their gradients are."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .target import Evaluate, Evaluation, Target


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
    """As `minibatches`; with as many samples as there are, on all of them."""
    if batch_size >= target.losses.land.n:
        return target.full
    return minibatches(target, batch_size, generator, mean)


def gradient_noise(evaluate: Evaluate, position: Tensor) -> Tensor:
    """An unbiased guess of Tr of the covariance of the whitened gradient at each position, (C,) float64, from a pair of
    independent minibatches."""
    away = evaluate(position).gradient.sub_(evaluate(position).gradient)
    return torch.linalg.vector_norm(away, dim=1, dtype=torch.float64).square() / 2


def later(noises: Sequence[Tensor]) -> Tensor:
    """The second half of what `gradient_noise` told on the way, (looks, C): chains go where there is more of it."""
    return torch.stack(list(noises[len(noises) // 2 :]))


def noise_trace(evaluate: Evaluate, position: Tensor, repeats: int = 2) -> float:
    """Its mean over the positions, from so many pairs for each."""
    return float(torch.stack([gradient_noise(evaluate, position).mean() for _ in range(repeats)]).mean())
