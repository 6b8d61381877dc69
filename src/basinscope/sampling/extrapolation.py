"""Means of chains at several step sizes, extrapolated to step size zero."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .equilibrium import Mean, Virials, freedom_of
from .runs import Correction, Run

UNSEEN_BEND = 0.2  # part of the extrapolated distance that counts as error
BENT = 3.0  # standard errors of its distance from the line beyond which the largest step is left out
LEFT = 2 / 3  # what a parabola leaves of that distance to the line through the other two
Array = NDArray[np.float64]


class Extrapolation(NamedTuple):
    """Mean excess loss at step size zero.

    Attributes:
        value, stderr, freedom: of the mean.
        slope: the smallest step's bias over the value.
        spread: relative distance between the largest step's mean and the extrapolation, beyond two standard errors.
        correction: by the virials, of all runs alike.
    """

    value: float
    stderr: float
    freedom: float
    slope: float
    spread: float
    correction: Correction


def extrapolated(runs: Sequence[Run]) -> Extrapolation:
    """Mean excess loss at step size zero, and its standard error.

    A weighted straight line through the runs' means against ε, or through those of the two smallest steps where the
    largest lies off it by more than chance: far from w* it may be close to unstable. Where gradients are noisy, ε is
    multiplied by the noise where the run's chains are, relative to the smallest step's: noise is what makes the bias,
    and chains with larger steps may be where there is more of it. The error holds the Monte Carlo error of the
    intercept, what the bend that was seen would make of it, and a fifth of the way from the smallest step to zero, for
    bends too small to be seen. Step-size bias lifts the virials too: what they lack at step size zero, no chain has
    seen.
    """
    sizes = np.array([run.step_size * (run.noise / runs[-1].noise if runs[-1].noise else 1.0) for run in runs])
    virials = _virials(sizes, [run.virials() for run in runs])
    correction = Correction(virials.chance(), runs[-1].profits())
    means = [run.corrected(correction) for run in runs]
    values, errors, freedoms = (np.array(column) for column in zip(*means, strict=True))
    errors = np.maximum(errors, 1e-6 * np.abs(values).max() + 1e-300)  # of one size, for the fit's sake
    weights = _intercept(sizes, errors)
    near = np.concatenate([[0.0], _intercept(sizes[1:], errors[1:])])
    apart = near - weights
    expected = float(apart**2 @ errors**2)  # of the two lines' distance from Monte Carlo error alone
    bend = max(0.0, float(apart @ values) ** 2 - expected)
    if bend > (BENT**2 - 1) * expected:
        weights = near
        bend *= LEFT**2
    parts = weights**2 * errors**2
    line = Mean(float(weights @ values), math.sqrt(parts.sum()), freedom_of(parts.tolist(), freedoms.tolist()))
    ahead = float(values[-1]) - line.value
    line = line.widened(math.hypot(math.sqrt(bend), UNSEEN_BEND * ahead))
    spread = (abs(float(values[0]) - line.value) - 2 * line.stderr) / max(abs(line.value), 1e-300)
    whole = line.widened(virials.charge(line.value, runs[-1].target.nbeta))
    return Extrapolation(*whole, slope=ahead / line.value, spread=spread, correction=correction)


def _virials(sizes: Array, virials: Sequence[Virials]) -> Virials:
    """Both virials at step size zero, by straight lines."""
    means, errors = (np.array([getattr(each, name) for each in virials]).T for name in ("means", "stderrs"))
    weights = np.array([_intercept(sizes, error) for error in errors])
    stderrs = np.sqrt((weights**2 * errors**2).sum(1))
    return Virials((weights * means).sum(1), stderrs, virials[-1].exact, virials[-1].relaxations)


def _intercept(x: Array, error: Array) -> Array:
    """The weights by which values at x make the intercept of the weighted least-squares line, whatever the errors'
    unit."""
    largest = float(error.max())
    error = np.maximum(error / largest, 1e-6) if largest > 0 else np.ones_like(error)
    design = np.stack([np.ones_like(x), x], 1) / error[:, None]
    return np.asarray(np.linalg.solve(design.T @ design, design.T / error)[0])
