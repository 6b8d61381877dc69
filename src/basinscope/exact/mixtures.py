"""Normal mixtures with a component too many."""

from __future__ import annotations

from ..errors import InputError
from ._checks import Coefficient, integer
from .polynomials import normal_crossing, regular
from .rules import sum_rule


def normal_mixture(free_means: int) -> Coefficient:
    """(λ, θ) of a mixture of two unit-variance normals on the line when the truth is N(0, 1).

    free_means=1: (1 − a)N(0, 1) + aN(b, 1). K is equivalent to (ab)², so λ = ½, θ = 2.
    free_means=2: aN(b, 1) + (1 − a)N(c, 1). K is equivalent to m₁² + m₂² with m₁ = ab + (1 − a)c and, on m₁ = 0 near
    a = 0, m₂ = ab² up to a unit: λ = ½ + ¼, θ = 1.

    Source: Aoyagi, "A Bayesian learning coefficient of generalization error and Vandermonde matrix-type
    singularities", Communications in Statistics 39 (2010).

    Examples:
        >>> normal_mixture(free_means=1)
        (Fraction(1, 2), 2)
        >>> normal_mixture(free_means=2)
        (Fraction(3, 4), 1)
    """
    means = integer("free_means", free_means, 1)
    if means > 2:
        raise InputError(f"free_means must be 1 or 2 for a mixture of two, got {means}")
    return normal_crossing([1, 1]) if means == 1 else sum_rule(regular(1), normal_crossing([1, 2]))
