"""A measurement as plain values that fit a page: JSON and back, without torch on the way back."""

from __future__ import annotations

import math
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
        "llc": measured.llc.to_dict(_LONGEST),
        "trace": _trace(measured.llc),
        "quadratic": measured.quadratic.to_dict(_LONGEST),
        "curve": [[_short(gamma), _short(half)] for gamma, half in measured.curve],
        "estimates": {name: each.to_dict(_LONGEST) for name, each in measured.estimates.items()},
        "spectrum": None if measured.spectrum is None else _spectrum(measured.spectrum),
        "notes": list(measured.notes),
        "seconds": {name: round(value, 3) for name, value in measured.seconds.items()},
    }


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
