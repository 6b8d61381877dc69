"""The curvature of a loss in its outputs: B(z) = E_{y|z}[∇_z l ∇_z lᵀ], exact for exponential families."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..checks import whole_seed
from ..errors import InputError
from ..landscape import Landscape
from ..losses import class_dimension
from ..samples import concatenate

IGNORED_LABEL = -100  # torch's label for positions that do not count


def output_curvature(land: Landscape, scores: Tensor, target: Any) -> Callable[[Tensor], Tensor]:
    """u ↦ B u for the outputs `scores` of a batch; B is block-diagonal over samples and positions.

    categorical  B = diag(p) − p pᵀ at every position, p = softmax(z)
    bernoulli    B = diag(s(1 − s)), s = sigmoid(z)
    gaussian     B = I/σ²
    """
    family = land.loss.family
    if family == "categorical":
        axis = class_dimension(scores, target)
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
        axis = class_dimension(scores, target)
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
