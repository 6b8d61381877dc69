"""Whether a polynomial with rational coefficients vanishes somewhere off the coordinate planes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from fractions import Fraction
from itertools import product
from random import Random
from typing import Any

from ._faces import Point

Terms = Mapping[Point, Fraction]

_MAX_TRIALS = 400  # points at which signs are compared
_MAX_LOG2 = 3  # of the absolute value of their coordinates
_MAX_TERMS = 40  # beyond which no Gröbner basis is tried
_MAX_DEGREE = 12


class Zeros(Enum):
    """The zeros and signs of a polynomial in (ℝ∖0)^k, as far as they are known."""

    NONE = "no zeros"
    SOME = "zeros"
    NEGATIVE = "negative values"
    UNKNOWN = "unknown"


def zeros(terms: Terms) -> Zeros:
    """Zeros in (ℝ∖0)^k of a polynomial that should be nowhere negative, given as {exponents: coefficient}.

    In one variable Sturm's sequence decides. In more, every irreducible factor is tried in turn: coefficients of one
    sign in each orthant rule zeros out; a change of sign inside an orthant proves one; and of a factor of odd
    multiplicity, which must not change sign, a Gröbner basis tells whether it has critical zeros at all, over ℂ.

    Examples:
        >>> square = {(0,): Fraction(1), (1,): Fraction(-2), (2,): Fraction(1)}  # (s − 1)²
        >>> zeros(square).value
        'zeros'
    """
    import sympy

    k = len(next(iter(terms)))
    if k == 0 or len(terms) == 1:
        return Zeros.NONE
    symbols = sympy.symbols(f"s0:{k}")
    polynomial = sympy.Poly({e: sympy.Rational(c.numerator, c.denominator) for e, c in terms.items()}, *symbols)
    kinds = [_factor_zeros(factor, power) for factor, power in polynomial.factor_list()[1]]
    return next((kind for kind in (Zeros.NEGATIVE, Zeros.SOME, Zeros.UNKNOWN) if kind in kinds), Zeros.NONE)


def _factor_zeros(factor: Any, power: int) -> Zeros:
    """The zeros and signs of factor^power, for an irreducible factor."""
    crossed = Zeros.NEGATIVE if power % 2 else Zeros.SOME  # what a change of sign of the factor means
    if len(factor.terms()) == 1:
        return Zeros.NONE
    if len(factor.gens) == 1:  # irreducible, so that all of its roots are simple
        nonzero = factor.count_roots() - (0 if factor.eval(0) else 1)
        return crossed if nonzero else Zeros.NONE
    if _one_signed(factor):
        return Zeros.NONE
    if _changes_sign(factor):
        return crossed
    if power % 2 and _no_critical_zero(factor):
        return Zeros.NONE
    return Zeros.UNKNOWN


def _one_signed(factor: Any) -> bool:
    """Whether in every orthant all terms have the same sign."""
    for signs in product((1, -1), repeat=len(factor.gens)):
        term_signs = set()
        for exponents, coefficient in factor.terms():
            odd = sum(e for e, sign in zip(exponents, signs, strict=True) if sign < 0)
            term_signs.add((coefficient > 0) == (odd % 2 == 0))
        if len(term_signs) > 1:
            return False
    return True


def _changes_sign(factor: Any) -> bool:
    """Whether two random points of one orthant have values of different sign, computed without rounding."""
    rng = Random(0)
    sign_in_orthant: dict[tuple[int, ...], bool] = {}
    for _ in range(_MAX_TRIALS):
        signs = tuple(rng.choice((-1, 1)) for _ in factor.gens)
        sizes = [Fraction(2 ** rng.uniform(-_MAX_LOG2, _MAX_LOG2)).limit_denominator(64) for _ in signs]
        point = [sign * size for sign, size in zip(signs, sizes, strict=True)]
        value = sum((Fraction(int(c.p), int(c.q)) * _power(point, e) for e, c in factor.terms()), Fraction(0))
        if value and sign_in_orthant.setdefault(signs, value > 0) != (value > 0):
            return True
    return False


def _no_critical_zero(factor: Any) -> bool:
    """Whether 1 lies in the ideal of the factor, its derivatives and z·Πs − 1: no common zero in (ℂ∖0)^k."""
    import sympy

    if len(factor.terms()) > _MAX_TERMS or factor.total_degree() > _MAX_DEGREE:
        return False
    inverse = sympy.Symbol("inverse")
    slopes = [factor.diff(symbol).as_expr() for symbol in factor.gens]
    off_axes = inverse * sympy.Mul(*factor.gens) - 1
    basis = sympy.groebner([factor.as_expr(), *slopes, off_axes], inverse, *factor.gens, order="grevlex")
    return bool(basis.exprs == [1])


def _power(point: list[Fraction], exponents: Point) -> Fraction:
    value = Fraction(1)
    for x, e in zip(point, exponents, strict=True):
        value *= x**e
    return value
