"""A measurement as plain values that fit a page: JSON and back, without torch on the way back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..estimates import Estimate

if TYPE_CHECKING:
    from ..measures.measurement import Measurement
    from ..measures.spectrum import Spectrum

_CHAINS = 12  # drawn one by one; their mean is over all
_BLOCKS = 128
_DENSITY = 160
_DIGITS = 5
_LONGEST = 64  # entries of a diagnostic that a page has room for


def plain_measurement(measured: Measurement) -> dict[str, Any]:
    """Everything a report tells of a measurement."""
    return {
        "subject": dict(measured.subject),
        "llc": plain_estimate(measured.llc),
        "trace": _trace(measured.llc),
        "quadratic": plain_estimate(measured.quadratic),
        "curve": [[_short(gamma), _short(half)] for gamma, half in measured.curve],
        "estimates": {name: plain_estimate(each) for name, each in measured.estimates.items()},
        "spectrum": None if measured.spectrum is None else _spectrum(measured.spectrum),
        "notes": list(measured.notes),
        "seconds": {name: round(value, 3) for name, value in measured.seconds.items()},
    }


def plain_estimate(estimate: Estimate) -> dict[str, Any]:
    """An estimate without diagnostics as long as the chains or the data.

    Examples:
        >>> plain_estimate(Estimate("llc", 1.0, 0.5, freedom=3.0))["freedom"]
        3.0
    """
    told = estimate.to_dict()
    told["diagnostics"] = {name: value for name, value in told["diagnostics"].items() if _count(value) <= _LONGEST}
    return {**told, "freedom": estimate.freedom if math.isfinite(estimate.freedom) else None}


def _count(value: Any) -> int:
    """Numbers and texts in a plain value."""
    if isinstance(value, (list, dict)):
        return sum(map(_count, value.values() if isinstance(value, dict) else value))
    return 1


def estimate_from(told: Mapping[str, Any]) -> Estimate:
    """The estimate that `plain_estimate` told.

    Examples:
        >>> estimate_from(plain_estimate(Estimate("llc", 1.0, 0.5, freedom=3.0))).interval() == Estimate(
        ...     "llc", 1.0, 0.5, freedom=3.0).interval()
        True
    """

    def real(name: str, missing: float) -> float:
        return missing if told.get(name) is None else float(told[name])

    bounds = told.get("bounds")
    return Estimate(
        told["name"],
        real("value", math.nan),
        real("stderr", math.nan),
        told["verdict"],
        tuple(told["warnings"]),
        told["diagnostics"],
        real("freedom", math.inf),
        None if bounds is None else (bounds[0], bounds[1]),
    )


def _trace(llc: Estimate) -> dict[str, Any] | None:
    """The chains' excess loss nβ(L − L*), in few enough points to be drawn: some chains, and the mean of all."""
    found = llc.diagnostics
    if found.get("trace") is None:
        return None
    rows = np.asarray(found["trace"])
    if not rows.size:
        return None
    stride = max(1, math.ceil(rows.shape[1] / _BLOCKS))
    whole = rows.shape[1] // stride * stride
    rows = rows[:, :whole].reshape(len(rows), -1, stride).mean(2)
    return {
        "draws": found["draws"],
        "burn_in": found["burn_in"],
        "count": len(rows),
        "chains": [[_short(value) for value in row] for row in rows[:_CHAINS]],
        "mean": [_short(value) for value in rows.mean(0)],
    }


def _spectrum(found: Spectrum) -> dict[str, Any]:
    from ..measures.spectrum_figure import density

    sizes, mean, stderr, resolution = density(found, _DENSITY)
    return {
        "matrix": found.matrix,
        "largest": [_short(value) for value in found.largest.tolist()],
        "smallest": [_short(value) for value in found.smallest.tolist()],
        "sizes": [_short(value) for value in sizes.tolist()],
        "density": [_short(value) for value in mean.tolist()],
        "stderr": [_short(value) for value in stderr.tolist()],
        "resolution": resolution,
        "verdict": found.verdict,
        "warnings": list(found.warnings),
    }


def _short(value: float) -> float | None:
    """In the digits that a figure shows: files stay small."""
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
