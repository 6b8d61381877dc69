"""What one sample is: a sequence or a token; the same posterior has another nβ in each."""

from __future__ import annotations

from typing import Literal, get_args

from ..errors import InputError

Unit = Literal["sequence", "token"]
UNITS: tuple[str, ...] = get_args(Unit)


def checked_unit(unit: str) -> str:
    """`unit`, if it is one."""
    if unit not in UNITS:
        raise InputError(f"units must be {' or '.join(map(repr, UNITS))}, got {unit!r}")
    return unit


def nbeta_in(unit: str, nbeta: float, *, given_in: str, tokens_per_sequence: float) -> float:
    """nβ of the same posterior in another unit.

    exp(−nβ L_n) is one density whether L_n is the mean loss of sequences or of tokens: a sequence of T predicted tokens
    has T times the loss of one, so that nβ per token is T times nβ per sequence.

    Examples:
        >>> nbeta_in("token", 10.0, given_in="sequence", tokens_per_sequence=64)
        640.0
        >>> nbeta_in("sequence", 640.0, given_in="token", tokens_per_sequence=64)
        10.0
    """
    if checked_unit(unit) == checked_unit(given_in):
        return nbeta
    return nbeta * tokens_per_sequence if unit == "token" else nbeta / tokens_per_sequence
