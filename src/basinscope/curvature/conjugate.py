"""Systems A x = b of symmetric operators, and their quadratic forms bᵀA⁻¹b, by conjugate gradients."""

from __future__ import annotations

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
    """

    value: float
    solution: Tensor
    descent: Tensor | None
    products: int


def inverse_form(product: Callable[[Tensor], Tensor], b: Tensor, *, rtol: float, max_products: int) -> InverseForm:
    """bᵀA⁻¹b and A⁻¹b by conjugate gradients from zero.

    The step k minimises ½xᵀAx − bᵀx over the Krylov space of k products, and −2 times that minimum is the part of
    bᵀA⁻¹b in this space. The space only grows, so that the values increase to bᵀA⁻¹b (Hestenes and Stiefel 1952): what
    is returned early is a bound from below. Each step adds α rᵀr, the length of its step times its residual squared.

    Args:
        product: v ↦ Av, of the shape of b.
        b: the vector (d,).
        rtol: the form counts as known when the last steps together added less than this part of it.
        max_products: most products with A.

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
    gains: list[float] = []
    rounding = torch.finfo(b.dtype).eps ** 2 * start
    while squared > rounding and len(gains) < max_products:
        image = product(direction)
        curvature = _dot(direction, image)
        if curvature <= 0:
            return InverseForm(sum(gains), solution, direction, len(gains) + 1)
        length = squared / curvature
        gains.append(length * squared)
        solution = solution + length * direction
        if len(gains) >= SETTLED and sum(gains[-SETTLED:]) <= rtol * sum(gains):
            break
        residual = residual - length * image
        before, squared = squared, _dot(residual, residual)
        direction = residual + (squared / before) * direction
    return InverseForm(sum(gains), solution, None, len(gains))


def _dot(a: Tensor, b: Tensor) -> float:
    return float(torch.dot(a.double(), b.double()))
