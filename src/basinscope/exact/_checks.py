"""Checks of the arguments of the exact formulas, with errors that name the remedy."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from fractions import Fraction
from numbers import Rational
from typing import TypeVar

from ..errors import InputError

T = TypeVar("T")

Coefficient = tuple[Fraction, int]
"""A learning coefficient λ and its multiplicity θ."""


def items(name: str, values: Iterable[T]) -> list[T]:
    """A non-empty list of anything."""
    try:
        listed = list(values)
    except TypeError:
        raise InputError(f"{name} must be a list, got {values!r} — pass [{values!r}]") from None
    if not listed:
        raise InputError(f"{name} is empty: expected at least one entry")
    return listed


def integer(name: str, value: int, least: int) -> int:
    """`value` as a plain int of at least `least`; a float is refused even when it is whole."""
    try:
        whole = operator.index(value)
    except TypeError:
        raise InputError(f"{name} must be an integer, got {value!r} — pass a whole number, without a point") from None
    if isinstance(value, bool):
        raise InputError(f"{name} must be an integer, got {value!r} — pass a count, not a flag")
    if whole < least:
        raise InputError(f"{name} must be at least {least}, got {whole}")
    return whole


def integers(name: str, values: Iterable[int], least: int) -> list[int]:
    """A non-empty list of integers of at least `least`."""
    return [integer(f"{name}[{i}]", value, least) for i, value in enumerate(items(name, values))]


def rational(name: str, value: int | Fraction) -> Fraction:
    """`value` as a fraction; a float is refused, because the result would only look exact."""
    if isinstance(value, bool) or not isinstance(value, Rational):
        raise InputError(f"{name} must be an integer or a Fraction, got {value!r} — pass Fraction('{value}')")
    return Fraction(value.numerator, value.denominator)


def prior_exponents(h: Iterable[int | Fraction] | None, size: int) -> list[Fraction]:
    """The exponents h of the prior Π|w_i|^h_i: one per variable, above −1 so that the prior can be normalised."""
    if h is None:
        return [Fraction(0)] * size
    exponents = [rational(f"h[{i}]", value) for i, value in enumerate(items("h", h))]
    if len(exponents) != size:
        raise InputError(f"h needs one exponent per variable: expected {size}, got {len(exponents)}")
    for i, exponent in enumerate(exponents):
        if exponent <= -1:
            raise InputError(f"h[{i}] must be above -1, got {exponent} — the prior |w|^h has infinite mass otherwise")
    return exponents


def real(name: str, value: float) -> float:
    """`value` as a finite float."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a number, got {value!r}") from None
    if not math.isfinite(number):
        raise InputError(f"{name} must be finite, got {number}")
    return number


def reals(name: str, values: Iterable[float]) -> list[float]:
    """A non-empty list of finite floats."""
    return [real(f"{name}[{i}]", value) for i, value in enumerate(items(name, values))]


def positive(name: str, value: float) -> float:
    """`value` as a finite float above zero."""
    number = real(name, value)
    if number <= 0:
        raise InputError(f"{name} must be positive, got {number}")
    return number


def rank_at_most(rank: int, sizes: dict[str, int]) -> int:
    """`rank` as an integer that a product passing through spaces of these sizes can have."""
    rank = integer("rank", rank, 0)
    name = min(sizes, key=lambda key: sizes[key])
    if rank > sizes[name]:
        raise InputError(f"rank must be at most {name} = {sizes[name]}, got {rank} — lower the rank or widen {name}")
    return rank
