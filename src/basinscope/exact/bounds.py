"""Bounds of the learning coefficient by the rank of the Hessian alone."""

from __future__ import annotations

from fractions import Fraction

from ..errors import InputError
from ._checks import integer


def hessian_bounds(d: int, hessian_rank: int) -> tuple[Fraction, Fraction]:
    """The interval [rank/2, (d + rank)/4] that holds λ at a minimum of an analytic K ≥ 0 with d parameters.

    By the splitting lemma K is Σ x_i² over rank(H) variables plus a g ≥ 0 of order at least 4 in the others, and such
    a g has 0 ≤ λ ≤ (d − rank)/4. The prior must be positive at the point. Full rank gives the regular d/2.

    Source: splitting lemma with the sum rule.

    Examples:
        >>> hessian_bounds(8, hessian_rank=3)
        (Fraction(3, 2), Fraction(11, 4))
    """
    d, rank = integer("d", d, 0), integer("hessian_rank", hessian_rank, 0)
    if rank > d:
        raise InputError(f"hessian_rank must be at most d = {d}, got {rank}")
    return Fraction(rank, 2), Fraction(d + rank, 4)
