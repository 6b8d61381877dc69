"""Means of chains at several step sizes, extrapolated to step size zero."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .runs import Run

UNSEEN_BEND = 0.2  # part of the extrapolated distance that counts as error
BENT = 3.0  # standard errors of its distance from the line beyond which the largest step is left out
LEFT = 2 / 3  # what a parabola leaves of that distance to the line through the other two


class Extrapolation(NamedTuple):
    """Mean excess loss at step size zero."""

    value: float
    error: float  # of the extrapolation
    unseen: float  # relative error from parts of the posterior that no chain has seen
    slope: float  # the smallest step's bias over the value

    @property
    def stderr(self) -> float:
        return math.hypot(self.error, self.unseen * self.value)


def extrapolated(runs: list[Run]) -> Extrapolation:
    """Mean excess loss at step size zero, and its standard error.

    A weighted straight line through the runs' means against ε, or through those of the two smallest steps where the
    largest lies off it by more than chance: far from w* it may be close to unstable. Where gradients are noisy, ε is
    multiplied by the noise where the run's chains are, relative to the smallest step's: noise is what makes the bias,
    and chains with larger steps may be where there is more of it. The error holds the Monte Carlo error of the
    intercept, what the bend that was seen would make of it, and a fifth of the way from the smallest step to zero, for
    bends too small to be seen. What no chain has seen is missing at all step sizes alike.
    """
    control = use_virials(runs)
    sizes = np.array([run.step_size * (run.noise / runs[-1].noise if runs[-1].noise else 1.0) for run in runs])
    found = zip(*(run.excess_and_unseen(control) for run in runs), strict=True)
    values, errors, unseen = (np.array(column) for column in found)
    errors = np.maximum(errors, 1e-6 * np.abs(values).max() + 1e-300)  # of one size, for the fit's sake
    intercept, variance = _line(sizes, values, errors)
    near = _line(sizes[1:], values[1:], errors[1:])
    expected = _bend_variance(sizes, errors)
    bend = max(0.0, (near[0] - intercept) ** 2 - expected)
    if bend > (BENT**2 - 1) * expected:
        intercept, variance = near
        bend *= LEFT**2
    ahead = values[-1] - intercept
    error = math.sqrt(max(0.0, variance) + bend + (UNSEEN_BEND * ahead) ** 2)
    return Extrapolation(intercept, error, float(unseen.max()), float(ahead / intercept))


def use_virials(runs: list[Run]) -> bool:
    """Whether to use control variates, at all step sizes or at none: step-size bias may lift the virials, only parts
    of the posterior that were never seen lower them."""
    return runs[-1].profits(most=math.inf)


def _line(x: NDArray[np.float64], y: NDArray[np.float64], error: NDArray[np.float64]) -> tuple[float, float]:
    """Intercept of the weighted least-squares line and its variance."""
    design = np.stack([np.ones_like(x), x], 1) / error[:, None]
    covariance = np.linalg.inv(design.T @ design)
    return float((covariance @ design.T @ (y / error))[0]), float(covariance[0, 0])


def _bend_variance(sizes: NDArray[np.float64], errors: NDArray[np.float64]) -> float:
    """Variance of the difference between the two intercepts from Monte Carlo error alone."""
    difference = np.zeros(len(sizes))
    for i in range(len(sizes)):
        unit = np.eye(len(sizes))[i]
        difference[i] = _line(sizes[1:], unit[1:], errors[1:])[0] - _line(sizes, unit, errors)[0]
    return float((difference**2 * errors**2).sum())
