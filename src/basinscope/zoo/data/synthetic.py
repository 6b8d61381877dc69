"""Data made from a seed, with known truths."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ...checks import positive, whole
from ...errors import InputError
from .sets import DataSet, Pair


def reduced_rank(
    inputs: int, outputs: int, rank: int, n: int, *, noise: float = 1.0, test: int = 1000, seed: int = 0
) -> DataSet:
    """Reduced-rank regression: y = A x + noise · ε with x, ε standard normal and A of the given rank.

    A's nonzero singular values are 1. The learning coefficient of a student inputs-hidden-outputs is
    `basinscope.exact.reduced_rank(inputs, hidden, outputs, rank)`. Tensors are float64.

    Examples:
        >>> reduced_rank(4, 3, 2, n=50)
        DataSet(reduced rank 4-3: 50 + 1,000 samples of shape (4,))
    """
    inputs, outputs = whole("inputs", inputs, least=1), whole("outputs", outputs, least=1)
    return _linear(f"reduced rank {inputs}-{outputs}", inputs, outputs, rank, n, noise, test, seed)


def deep_linear(
    widths: Sequence[int], rank: int, n: int, *, noise: float = 1.0, test: int = 1000, seed: int = 0
) -> DataSet:
    """Samples of a deep linear teacher of those widths and that rank: y = W_L ⋯ W₁ x + noise · ε.

    The data depend on the product alone, and its nonzero singular values are 1, so that the student's learning
    coefficient is `basinscope.exact.deep_linear(widths, rank)`. Tensors are float64.

    Examples:
        >>> deep_linear([10, 5, 10], rank=3, n=100)
        DataSet(deep linear 10-5-10: 100 + 1,000 samples of shape (10,))
    """
    sizes = [whole("a width", width, least=1) for width in widths]
    if len(sizes) < 2:
        raise InputError(f"widths must name at least the input and the output, got {list(widths)}")
    if rank > min(sizes):
        raise InputError(f"rank must lie in 0..{min(sizes)}, the narrowest width, got {rank}")
    return _linear(f"deep linear {'-'.join(map(str, sizes))}", sizes[0], sizes[-1], rank, n, noise, test, seed)


def _linear(name: str, inputs: int, outputs: int, rank: int, n: int, noise: float, test: int, seed: int) -> DataSet:
    if whole("rank", rank, least=0) > min(inputs, outputs):
        raise InputError(f"rank must lie in 0..{min(inputs, outputs)}, got {rank}")
    if noise != 0:
        positive("noise", noise)
    generator = torch.Generator().manual_seed(seed)
    left, right = (_orthonormal(size, rank, generator) for size in (outputs, inputs))

    def draw(count: int) -> Pair:
        x = torch.randn(count, inputs, generator=generator, dtype=torch.float64)
        errors = torch.randn(count, outputs, generator=generator, dtype=torch.float64)
        return x, x @ right @ left.T + noise * errors

    return DataSet(name, draw(whole("n", n, least=1)), draw(whole("test", test, least=1)))


def _orthonormal(size: int, columns: int, generator: torch.Generator) -> Tensor:
    return torch.linalg.qr(torch.randn(size, columns, generator=generator, dtype=torch.float64))[0]


def mixture(
    components: int, dimension: int, n: int, *, distance: float = 3.0, test: int = 1000, seed: int = 0
) -> DataSet:
    """Points of a mixture of unit Gaussians with equal weights, labelled by their component.

    The centres lie at random on a sphere, typically `distance` apart. Inputs are float32.

    Examples:
        >>> mixture(3, 2, n=60)
        DataSet(mixture: 60 + 1,000 samples of shape (2,), 3 classes)
    """
    components, dimension = whole("components", components, least=1), whole("dimension", dimension, least=1)
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(components, dimension, generator=generator)
    centres *= positive("distance", distance) / math.sqrt(2) / centres.norm(dim=1, keepdim=True)

    def draw(count: int) -> Pair:
        labels = torch.randint(components, (count,), generator=generator)
        return centres[labels] + torch.randn(count, dimension, generator=generator), labels

    return DataSet("mixture", draw(whole("n", n, least=1)), draw(whole("test", test, least=1)), components)


def modular_addition(modulus: int, *, fraction: float = 0.5, seed: int = 0) -> DataSet:
    """All sums a + b mod p as tokens (a, b, p), where p stands for "=", with the sum as label.

    A random `fraction` of the p² sums is for training, the others for testing. A network that reads them has
    vocabulary p + 1 and context 3: `transformer(p + 1, 3, predict="last")`.

    Examples:
        >>> modular_addition(7, fraction=0.5)
        DataSet(addition mod 7: 24 + 25 samples of shape (3,), 7 classes)
    """
    p = whole("modulus", modulus, least=2)
    if not 0 < fraction < 1:
        raise InputError(f"fraction must lie between 0 and 1, got {fraction!r}")
    numbers = torch.arange(p * p)
    a, b = numbers // p, numbers % p
    tokens, sums = torch.stack([a, b, torch.full_like(a, p)], dim=1), (a + b) % p
    order = torch.randperm(p * p, generator=torch.Generator().manual_seed(seed))
    cut = min(max(1, int(fraction * p * p)), p * p - 1)
    chosen, rest = order[:cut], order[cut:]
    return DataSet(f"addition mod {p}", (tokens[chosen], sums[chosen]), (tokens[rest], sums[rest]), p)
