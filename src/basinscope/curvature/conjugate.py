"""Systems A x = b of symmetric operators, and their quadratic forms bᵀA⁻¹b, by conjugate gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

SETTLED = 3  # steps over which the form must have grown by less than the tolerance


class InverseForm(NamedTuple):
    """bᵀA⁻¹b as far as conjugate gradients got.

    Attributes:
        value: a lower bound of bᵀA⁻¹b, as good as the tolerance where the steps sufficed.
        solution: the x of the Krylov space that minimises ½xᵀAx − bᵀx, which is A⁻¹b in the end.
        descent: a direction p with pᵀAp ≤ 0, if one was met: ½xᵀAx − bᵀx then has no minimum, and the form no value.
        products: matrix–vector products that were spent.
        upper: an upper bound of bᵀA⁻¹b, ∞ where none is known.
        settled: whether the value is as good as the tolerance.
    """

    value: float
    solution: Tensor
    descent: Tensor | None
    products: int
    upper: float
    settled: bool


def inverse_form(
    product: Callable[[Tensor], Tensor], b: Tensor, *, rtol: float, max_products: int, least: float = 0.0
) -> InverseForm:
    """bᵀA⁻¹b and A⁻¹b by conjugate gradients from zero.

    The step k minimises ½xᵀAx − bᵀx over the Krylov space of k products, and −2 times that minimum is the part of
    bᵀA⁻¹b in this space. The space only grows, so that the values increase to bᵀA⁻¹b (Hestenes and Stiefel 1952): what
    is returned early is a bound from below. Each step adds α rᵀr, the length of its step times its residual squared.
    Where no eigenvalue of A is below μ > 0, what is missing is at most g rᵀr, with g = 1/μ before the first step and
    g ← (g − α)/(μ(g − α) + β) after each: the Gauss–Radau bound (Meurant and Tichý 2013).

    Args:
        product: v ↦ Av, of the shape of b.
        b: the vector (d,).
        rtol: the form counts as known when the last steps together added less than this part of it.
        max_products: most products with A.
        least: μ, if it is known.

    Examples:
        >>> diagonal = torch.tensor([1.0, 4.0, 10.0], dtype=torch.float64)
        >>> form = inverse_form(lambda v: diagonal * v, torch.ones(3, dtype=torch.float64), rtol=1e-9, max_products=9)
        >>> round(form.value, 6), form.descent
        (1.35, None)
        >>> form.solution
        tensor([1.0000, 0.2500, 0.1000], dtype=torch.float64)
        >>> inverse_form(lambda v: -v, torch.ones(3), rtol=0.1, max_products=9).descent
        tensor([1., 1., 1.])
    """
    solution, residual, direction = torch.zeros_like(b), b.clone(), b.clone()
    squared = start = _dot(b, b)
    missing = 1 / least if least > 0 else math.inf
    gains: list[float] = []
    rounding, settled = torch.finfo(b.dtype).eps ** 2 * start, start == 0
    while len(gains) < max_products and not settled:
        image = product(direction)
        curvature = _dot(direction, image)
        if curvature <= 0:
            return InverseForm(sum(gains), solution, direction, len(gains) + 1, math.inf, False)
        length = squared / curvature
        gains.append(length * squared)
        solution = solution + length * direction
        residual = residual - length * image
        before, squared = squared, _dot(residual, residual)
        settled = squared <= rounding or (len(gains) >= SETTLED and sum(gains[-SETTLED:]) <= rtol * sum(gains))
        missing = _missing(missing - length, least, squared / before)
        direction = residual + (squared / before) * direction
    upper = sum(gains) + missing * squared if squared > 0 else sum(gains)
    return InverseForm(sum(gains), solution, None, len(gains), upper, settled)


def _missing(beyond: float, least: float, ratio: float) -> float:
    """g after a step whose residual is by √`ratio` as long; ∞ once a step shows that an eigenvalue is below μ."""
    return beyond / (least * beyond + ratio) if math.isfinite(beyond) and beyond > 0 else math.inf


def _dot(a: Tensor, b: Tensor) -> float:
    return float(torch.dot(a.double(), b.double()))
