"""The curvature of a loss in its outputs, B(z) = E_{y|z}[∇_z l ∇_z lᵀ], exact for exponential families; its roots."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ..checks import whole_seed
from ..errors import InputError
from ..landscape import Landscape, Parameters
from ..losses import logits
from ..samples import Samples, concatenate

IGNORED_LABEL = -100  # torch's label for positions that do not count


def output_curvature(land: Landscape, scores: Tensor, target: Any) -> Callable[[Tensor], Tensor]:
    """u ↦ B u for the outputs `scores` of a batch; B is block-diagonal over samples and positions.

    categorical  B = diag(p) − p pᵀ at every position, p = softmax(z)
    bernoulli    B = diag(s(1 − s)), s = sigmoid(z)
    gaussian     B = I/σ²
    """
    family = land.loss.family
    if family == "categorical":
        axis = land.loss.class_dimension(scores, target)
        probability = scores.softmax(axis)
        weighted = probability * (target != IGNORED_LABEL).unsqueeze(axis)
        return lambda u: weighted * (u - (probability * u).sum(axis, keepdim=True))
    if family == "bernoulli":
        chance = scores.sigmoid()
        weight = chance * (1 - chance)
        return lambda u: weight * u
    if family == "gaussian":
        return lambda u: u / land.loss.variance
    raise InputError(missing_likelihood(land.loss.name))


def random_root(land: Landscape, scores: Tensor, target: Any, generator: torch.Generator) -> Tensor:
    """L u of the shape of `scores`, with B = L Lᵀ and u of random signs: E[(L u)(L u)ᵀ] = B.

    categorical  L = diag(√p) − p √pᵀ
    """
    signs = torch.empty_like(scores).bernoulli_(0.5, generator=generator).mul_(2).sub_(1)
    family = land.loss.family
    if family == "categorical":
        axis = land.loss.class_dimension(scores, target)
        probability = scores.softmax(axis)
        half = probability.sqrt() * signs
        return (half - probability * half.sum(axis, keepdim=True)) * (target != IGNORED_LABEL).unsqueeze(axis)
    if family == "bernoulli":
        chance = scores.sigmoid()
        return (chance * (1 - chance)).sqrt() * signs
    return signs / math.sqrt(land.loss.variance)


def missing_likelihood(name: str) -> str:
    """The message for a loss whose labels cannot be integrated out."""
    return (
        f"loss {name!r} has no known likelihood, so its Fisher matrix is unknown: expected 'cross_entropy', "
        f"'bernoulli', 'gaussian' or 'mse' — use one of them, give your loss a method sample(output, generator) -> "
        f"target that draws labels from the model, or ask for matrix='hessian' or 'covariance'"
    )


def with_drawn_labels(land: Landscape, draws: int = 1, seed: int = 0) -> Landscape:
    """The landscape with `draws` copies of each sample, labels drawn from the model: y ~ p(y | x_i, w*).

    Its gradient covariance C is a Monte Carlo estimate of the model Fisher matrix F of `land`. The loss must bring
    its own `sample(output, generator) -> target`.
    """
    if land.loss.sample is None:
        raise InputError(missing_likelihood(land.loss.name))
    if draws < 1:
        raise InputError(f"draws must be at least 1, got {draws}")
    copies = land.subset(torch.arange(land.n).repeat(draws))
    generator = torch.Generator(device=land.device).manual_seed(whole_seed(seed))
    with torch.no_grad():
        labels = [
            land.loss.sample(land.outputs(land.parameters, batch.inputs), generator) for batch in copies.batches(1024)
        ]
    return copies.relabel(concatenate(labels))


def head(land: Landscape, matrix: str, parameters: Parameters, batch: Samples) -> Tensor:
    """The values to differentiate: the outputs for the Fisher matrix, the per-sample losses for the covariance."""
    if matrix == "covariance":
        return land.losses(parameters, batch)
    return logits(land.outputs(parameters, batch.inputs))


def roots(land: Landscape, matrix: str, value: Tensor, target: Any) -> Iterator[Tensor]:
    """Cotangents s_1 … s_r of the head's shape: Σ_k (J_iᵀ s_ik)(J_iᵀ s_ik)ᵀ is sample i's share of n · matrix.

    categorical  s_k = √p_k [e_k − τ e_0 − (1 − τ) p], k = 1 … K−1, with τ = √p_0 / (1 + √p_0): one vector fewer than
                 classes, because diag(p) − p pᵀ has rank K−1
    bernoulli    √(s(1 − s)) e_k, s = sigmoid(z)
    gaussian     e_k / σ
    """
    if matrix == "covariance":
        yield torch.ones_like(value)
        return
    family = land.loss.family
    if family == "categorical":
        yield from _categorical(value, target, land.loss.class_dimension(value, target))
    elif family == "bernoulli":
        yield from _units(torch.exp((functional.logsigmoid(value) + functional.logsigmoid(-value)) / 2))
    elif family == "gaussian":
        yield from _units(torch.full_like(value, land.loss.variance**-0.5))
    else:
        raise InputError(missing_likelihood(land.loss.name))


def count(land: Landscape, matrix: str) -> int:
    """The number r of roots a sample has: the rank of n · matrix grows by at most this much with each sample."""
    if matrix == "covariance":
        return 1
    few = land.take(torch.arange(1))
    with torch.no_grad():
        value = head(land, matrix, land.parameters, few)
    if land.loss.family == "categorical":
        classes = value.shape[land.loss.class_dimension(value, few.target)]
        return (classes - 1) * (value.numel() // classes)
    return value.numel()


def _categorical(value: Tensor, target: Tensor, axis: int) -> Iterator[Tensor]:
    # Roots of probabilities by way of their logarithms, whose derivatives stay finite as p → 0.
    half = functional.log_softmax(value, axis).div(2).exp().movedim(axis, -1)
    half = half * (target != IGNORED_LABEL).unsqueeze(-1)
    share = half[..., :1] / (1 + half[..., :1])
    common = (1 - share) * half.square()
    common = torch.cat([common[..., :1] + share, common[..., 1:]], -1)
    units = torch.eye(half.shape[-1], dtype=value.dtype, device=value.device)
    for k in range(1, half.shape[-1]):
        column = half[..., k : k + 1] * (units[k] - common)
        for only in _positions(column.shape[1:-1], value):
            yield (column * only.unsqueeze(-1)).movedim(-1, axis)


def _units(values: Tensor) -> Iterator[Tensor]:
    """diag(values) by columns: one output of every sample at a time."""
    for only in _positions(values.shape[1:], values):
        yield values * only


def _positions(shape: torch.Size, like: Tensor) -> Iterator[Tensor]:
    """Masks that select one position each."""
    places = torch.arange(shape.numel(), device=like.device)
    for place in range(shape.numel()):
        yield (places == place).to(like.dtype).view(shape)
