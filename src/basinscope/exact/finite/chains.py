"""The product of several matrices at the origin, one width being 1: a deep linear network with nothing to learn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...errors import InputError
from .._checks import integers, positive
from ._mellin import moments


def matrix_chain(widths: Sequence[int], nbeta: float, gamma: float) -> float:
    """λ_t of K = ‖C_L ⋯ C₁‖²/2 with C_l of size m_l × m_(l−1), localised at the origin; one width must be 1.

    Through a width of 1 the product is a column times a row, and the squared length of a Gaussian vector multiplied by
    a Gaussian matrix is that of the vector times χ²/γ. So ‖C_L ⋯ C₁‖² = Π χ²(m_l)/γ under the localiser, over all
    widths but the one that is 1, E[K^(−s)] = 2^s Π (γ/2)^s Γ(m_l/2 − s)/Γ(m_l/2), and λ_t follows by one Mellin–Barnes
    integral. The limit is `deep_linear(widths, rank=0)`.

    Source: moments of χ²; for two matrices the value of `matrix_product`.

    Examples:
        >>> round(matrix_chain([1, 2, 2], nbeta=5453, gamma=1), 6)
        0.885423
    """
    return _moments(widths, nbeta, gamma)[0]


def matrix_chain_heat_capacity(widths: Sequence[int], nbeta: float, gamma: float) -> float:
    """t²Var[K] of K = ‖C_L ⋯ C₁‖²/2 localised at the origin. Arguments and source as in `matrix_chain`.

    Examples:
        >>> round(matrix_chain_heat_capacity([1, 1, 1], nbeta=5453, gamma=1), 6)
        0.391351
    """
    return _moments(widths, nbeta, gamma)[1]


def _moments(widths: Sequence[int], nbeta: float, gamma: float) -> tuple[float, float]:
    from scipy.special import loggamma

    sizes = sorted(integers("widths", widths, 1))
    if len(sizes) < 2:
        raise InputError(f"widths must name at least two sizes, got {list(widths)}")
    if sizes[0] != 1:
        raise InputError(
            f"one of the widths must be 1, got {list(widths)} — for two matrices use finite.matrix_product"
        )
    shapes = [size / 2 for size in sizes[1:]]
    log_t = math.log(positive("nbeta", nbeta) / 2) + len(shapes) * math.log(2 / positive("gamma", gamma))

    def log_moment(s: Any) -> Any:
        return sum(loggamma(shape - s) - loggamma(shape) for shape in shapes)

    return moments(log_moment, shapes[0], log_t)
