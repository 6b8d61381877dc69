"""Vandermonde-type singularities: hidden tanh units that have nothing to learn."""

from __future__ import annotations

import math
from fractions import Fraction

from ._checks import Coefficient, integer


def tanh_one_input(hidden: int) -> Coefficient:
    """(λ, θ) of y = Σ_{j≤H} a_j tanh(b_j x) with one input, no biases, when the true function is zero.

    With i the largest integer such that i² ≤ H:  λ = (H + i² + i)/(4i + 2), and θ = 2 if i² = H, else 1.

    Source: Aoyagi and Watanabe, "Resolution of singularities and the generalization error with Bayesian estimation
    for layered neural network", IEICE Transactions J88-D-II (2005).

    Examples:
        >>> tanh_one_input(2)
        (Fraction(2, 3), 1)
        >>> tanh_one_input(4)
        (Fraction(1, 1), 2)
    """
    units = integer("hidden", hidden, 1)
    root = math.isqrt(units)
    return Fraction(units + root**2 + root, 4 * root + 2), 2 if root**2 == units else 1
