"""When two estimates may be subtracted, and how sure their difference is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .errors import InputError

RESOLUTION = ("nbeta", "gamma", "weight_decay")
_SAME = 1e-6  # relative difference up to which two resolutions are one
_SYMBOLS = {"nbeta": "nβ", "gamma": "γ", "weight_decay": "Λ"}


def resolution_in_words(diagnostics: Mapping[str, Any]) -> str:
    """The resolution that an estimate was taken at; empty for one that has none.

    Examples:
        >>> resolution_in_words({"nbeta": 80.456, "gamma": 1.5, "draws": 200})
        'nβ = 80.46, γ = 1.5'
    """
    values = [(name, diagnostics[name]) for name in RESOLUTION if isinstance(diagnostics.get(name), (int, float))]
    return ", ".join(f"{_SYMBOLS[name]} = {value:.4g}" for name, value in values)


def check_one_resolution(one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    """Refuse two estimates, by their diagnostics, whose nβ, γ or Λ differ: each counts another scale of the loss.

    Examples:
        >>> check_one_resolution({"nbeta": 80.0, "gamma": 1.0}, {"nbeta": 80.0, "gamma": 1.0})
        >>> check_one_resolution({"nbeta": 80.0, "gamma": 1.0}, {"nbeta": 80.0, "gamma": 2.0})
        Traceback (most recent call last):
        ...
        basinscope.errors.InputError: the two have different resolutions: nβ = 80, γ = 1 and nβ = 80, γ = 2 — measure
        both with the same gamma
    """
    for name in RESOLUTION:
        first, second = one.get(name), other.get(name)
        if not _same(first, second):
            raise InputError(
                f"the two have different resolutions: {resolution_in_words(one) or 'none'} and "
                f"{resolution_in_words(other) or 'none'} — measure both with the same {name}"
            )


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, (int, float)) and isinstance(second, (int, float)):
        return math.isclose(first, second, rel_tol=_SAME)
    return bool(first == second)


def welch_freedom(first: tuple[float, float], second: tuple[float, float]) -> float:
    """Degrees of freedom of √(s₁² + s₂²), from pairs of a standard error s and its degrees of freedom f.

    (s₁² + s₂²)² / (s₁⁴/f₁ + s₂⁴/f₂), Welch and Satterthwaite's.

    Examples:
        >>> welch_freedom((1.0, 4.0), (1.0, 4.0)), welch_freedom((1.0, 4.0), (0.0, 9.0))
        (8.0, 4.0)
        >>> welch_freedom((1.0, math.inf), (1.0, math.inf))
        inf
    """
    squares = [(stderr**2, freedom) for stderr, freedom in (first, second)]
    below = sum(square**2 / freedom for square, freedom in squares if square > 0)
    return sum(square for square, _ in squares) ** 2 / below if below > 0 else math.inf
