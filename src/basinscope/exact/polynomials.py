"""Explicit functions K whose coefficient can be read off."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from ..errors import InputError
from ._checks import Coefficient, integer, integers, prior_exponents


def regular(d: int) -> Coefficient:
    """(λ, θ) = (d/2, 1) of a regular model with d parameters: K has a positive definite Hessian.

    Source: Schwarz, "Estimating the dimension of a model", Annals of Statistics 6 (1978).

    Examples:
        >>> regular(5)
        (Fraction(5, 2), 1)
    """
    return Fraction(integer("d", d, 0), 2), 1


def normal_crossing(k: Sequence[int], h: Sequence[int | Fraction] | None = None) -> Coefficient:
    """(λ, θ) of K = Π w_i^(2k_i) under a prior ∝ Π |w_i|^h_i near the origin.

    λ = min_i (h_i + 1)/(2k_i) over the variables with k_i > 0, and θ is the number of those that attain it.

    Source: Watanabe, "Algebraic Geometry and Statistical Learning Theory", Cambridge (2009), chapter 4.

    Examples:
        >>> normal_crossing([1, 1])
        (Fraction(1, 2), 2)
        >>> normal_crossing([1, 1], h=[1, 0])
        (Fraction(1, 2), 1)
    """
    powers = integers("k", k, 0)
    if not any(powers):
        raise InputError(f"k must have a positive entry, got {powers} — K = 1 vanishes nowhere")
    exponents = prior_exponents(h, len(powers))
    poles = [(exponent + 1) / (2 * power) for power, exponent in zip(powers, exponents, strict=True) if power]
    return min(poles), poles.count(min(poles))


def brieskorn(p: Sequence[int]) -> Coefficient:
    """(λ, θ) = (Σ 1/p_i, 1) of K = Σ |w_i|^p_i.

    Source: ∫exp(−tK) is a product of one-dimensional integrals ∫exp(−t|w|^p) ∝ t^(−1/p).

    Examples:
        >>> brieskorn([2, 4])
        (Fraction(3, 4), 1)
    """
    return sum((Fraction(1, power) for power in integers("p", p, 1)), Fraction(0)), 1


def curve_squared(p: int, q: int) -> Coefficient:
    """(λ, θ) of K = (x^p − y^q)², a squared plane curve, at the origin.

    λ = ½ min(1, 1/p + 1/q): smooth points of the curve give ½ and the singular point (1/p + 1/q)/2. θ = 2 for the
    two crossing lines p = q = 2 alone, where both agree. K is degenerate, so `newton` does not apply.

    Source: one weighted blow-up of the origin.

    Examples:
        >>> curve_squared(2, 3)
        (Fraction(5, 12), 1)
    """
    origin = Fraction(1, integer("p", p, 1)) + Fraction(1, integer("q", q, 1))
    return min(Fraction(1), origin) / 2, 2 if origin == 1 else 1
