"""Checks of plain arguments, with errors that name the value and the expectation."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from .errors import InputError

MAX_SEED = 2**63 - 2**20  # what generators take, less what some add


def positive(name: str, value: Any) -> float:
    """`value` as a float, if it is a positive finite number.

    Examples:
        >>> positive("gamma", 3)
        3.0
    """
    if not _is_finite(value) or value <= 0:
        raise InputError(f"{name} must be a positive finite number, got {value!r}")
    return float(value)


def fraction(name: str, value: Any, *, none: bool = False) -> float:
    """`value` as a float, if it is a number strictly between 0 and 1, or 0 where `none` of it is a choice.

    Examples:
        >>> fraction("rtol", 0.02)
        0.02
        >>> fraction("burn_in", 0, none=True)
        0.0
    """
    if not _is_number(value) or not (0 < value < 1 or (none and value == 0)):
        raise InputError(f"{name} must {'be 0 or ' if none else ''}lie strictly between 0 and 1, got {value!r}")
    return float(value)


def whole_seed(value: Any) -> int:
    """A seed of random numbers, to which generators may add a little.

    Examples:
        >>> whole_seed(7)
        7
    """
    seed = whole("seed", value, most=MAX_SEED)
    return whole("seed", seed, -MAX_SEED)


def whole(name: str, value: Any, least: int | None = None, most: int | None = None) -> int:
    """`value` as an int, if it is a whole number of at least `least` and at most `most`.

    Examples:
        >>> whole("chains", 4, least=2)
        4
    """
    if (
        not _is_finite(value)
        or int(value) != value
        or (least is not None and value < least)
        or (most is not None and value > most)
    ):
        if most is not None and _is_number(value) and value > most:
            bound = f" of at most {most}"
        else:
            bound = "" if least is None else f" of at least {least}"
        raise InputError(f"{name} must be a whole number{bound}, got {value!r}")
    return int(value)


def _is_finite(value: Any) -> bool:
    """Numbers that a float can hold."""
    try:
        return _is_number(value) and math.isfinite(value)
    except OverflowError:  # a whole number of four hundred digits
        return False


def _is_number(value: Any) -> bool:
    """Python's numbers and NumPy's; truth values and arrays are none."""
    return isinstance(value, Real) and not isinstance(value, bool)
