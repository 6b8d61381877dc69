"""Checks of plain arguments, with errors that name the value and the expectation."""

from __future__ import annotations

import math
from typing import Any

from .errors import InputError


def positive(name: str, value: Any) -> float:
    """`value` as a float, if it is a positive finite number.

    Examples:
        >>> positive("gamma", 3)
        3.0
    """
    if not _is_number(value) or not (math.isfinite(value) and value > 0):
        raise InputError(f"{name} must be a positive finite number, got {value!r}")
    return float(value)


def whole(name: str, value: Any, least: int | None = None) -> int:
    """`value` as an int, if it is a whole number of at least `least`.

    Examples:
        >>> whole("chains", 4, least=2)
        4
    """
    if (
        not _is_number(value)
        or not math.isfinite(value)
        or int(value) != value
        or (least is not None and value < least)
    ):
        bound = "" if least is None else f" of at least {least}"
        raise InputError(f"{name} must be a whole number{bound}, got {value!r}")
    return int(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
