"""The bottom ŵ of the basin that chains sample, and λ̂(w*) split in two there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ..sampling.calibration import Resolution
from ..sampling.descent import Bottom
from ..sampling.local import Outcome, Sampler
from ..sampling.quadratic import Quadratic
from .coefficient import MAX_DROP_SHARE

CALIBRATED = ("hmc", "minibatch")  # samplers whose curvature was measured; of a plain kernel it would outweigh the cost
_TOLERANCE, _FINEST = 0.1, 1e-4  # error of the drop: of λ̂'s own standard error, or relative to the basin
_ROUNDING = 1e-7  # relative error of the drop that no descent removes


def descent(sampler: Sampler, outcome: Outcome, tolerance: float) -> Bottom:
    """ŵ: what a descent from w* led to, or one from the mean of the chains where that is lower.

    The gradient may vanish at a saddle, so that no descent leaves it: then from the lowest chain.
    """
    at, target = outcome.at, outcome.main.target
    alive = np.logical_or.reduce([run.alive for run in outcome.runs])
    positions = outcome.main.position[alive.nonzero()[0]]
    if outcome.sampler not in CALIBRATED:
        return sampler.descent(target, torch.stack([0 * positions[0], positions.mean(0)]), tolerance)
    from_start = sampler.bottom(at)
    if from_start.downward or (sampler.quadratic.downward(at) > 1 and from_start.drop <= from_start.error):
        return sampler.descent(target, positions, tolerance, from_start)
    return sampler.descent(target, positions.mean(0, keepdim=True), tolerance, from_start)


def split(sampler: Sampler, outcome: Outcome, stderr: float) -> dict[str, Any]:
    """Diagnostics of the basin and the drop; with None for both where no minimum near w* was to be had."""
    value = outcome.at.nbeta * outcome.excess
    scale = value + max(0.0, outcome.main.target.drop)
    bottom = descent(sampler, outcome, max(_TOLERANCE * stderr, _FINEST * abs(scale)))
    if bottom.downward or not math.isfinite(bottom.drop + bottom.error):
        return {"basin": None, "basin_stderr": None, "drop": None, "drop_stderr": None, "descent": bottom.evaluations}
    error = math.hypot(bottom.error, _ROUNDING * abs(bottom.drop))
    return {
        "basin": value + bottom.drop,
        "basin_stderr": math.hypot(stderr, error),
        "drop": bottom.drop,
        "drop_stderr": error,
        "moved": math.sqrt(2 * bottom.localiser / outcome.at.gamma),
        "descent": bottom.evaluations,
    }


def note(outcome: Outcome, curvature: Quadratic | None, diagnostics: Mapping[str, Any]) -> str:
    """What to say of a point that is no minimum: where it is one, by the gradient and the curvature there."""
    text = above_the_bottom(outcome.at.nbeta, diagnostics)
    nbeta = None if curvature is None else curvature.finest(outcome.at, MAX_DROP_SHARE)
    if curvature is None or nbeta is None:
        return text
    coarser = Resolution(nbeta, outcome.at.gamma)
    about = f"λ̂ is about {_digits(curvature.basin(coarser) - curvature.drop(coarser), 2)}"
    return f"{text}; at nβ = {_digits(nbeta, 2)} {about if curvature.complete else 'it is one'}, by the curvature at w*"


def above_the_bottom(nbeta: float, diagnostics: Mapping[str, Any]) -> str:
    """What to say of a w* that is no minimum at nβ, with the drop where one is known."""
    text = f"at nβ = {_digits(nbeta, 4)} w* is no minimum"
    if diagnostics.get("basin") is None:
        return text
    return (
        f"{text}, but {_digits(diagnostics['drop'])} nats above the bottom of a basin of "
        f"{_digits(diagnostics['basin'])}"
    )


def _digits(value: float, digits: int = 3) -> str:
    """A number in so many digits, without a power of ten.

    Examples:
        >>> _digits(314.2, 2), _digits(5453.1, 4), _digits(0.01234, 2)
        ('310', '5,453', '0.012')
    """
    return f"{float(f'{value:.{digits}g}'):,.15g}"
