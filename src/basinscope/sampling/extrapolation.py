"""Means of chains at several step sizes, extrapolated to step size zero with what is known of their bias."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .equilibrium import Mean, Virials, freedom_of
from .runs import Correction, Run

LIFT_SPREAD = 0.3  # by which the bias of noise may differ from the foreseen one, as one standard deviation of a share
CONTROLLED_LIFT = (0.5, 0.5)  # share of it that control variates leave, and its standard deviation
DISCRETIZATION = 0.02  # of the value: standard deviation of the largest step's other bias
SOFT_LIFT = (0.5, 0.5)  # share of the virial's lift that is in the known directions, and its standard deviation
UNSEEN_BEND = 0.2  # part of the extrapolated distance that counts as error
MAX_MISFIT_STDERRS = 2.0  # of chance; beyond it the error grows with the misfit
Array = NDArray[np.float64]


class Extrapolation(NamedTuple):
    """Mean excess loss at step size zero.

    Attributes:
        value, stderr, freedom: of the mean.
        slope: the smallest step's bias over the value.
        systematic: the part of the standard error that more draws would not shorten.
        correction: by the virials, of all runs alike.
    """

    value: float
    stderr: float
    freedom: float
    slope: float
    systematic: float
    correction: Correction


class Line(NamedTuple):
    """A least-squares line through values with known errors, its slopes known beforehand within theirs.

    Attributes:
        value: at zero.
        weights: of the values in it, (m,).
        prior: the variance that the errors of the slopes add to it.
        ahead: how much the last of the values lies above it.
        misfit: sum of squares of what is left, in standard errors.
    """

    value: float
    weights: Array
    prior: float
    ahead: float
    misfit: float


def line(values: Array, errors: Array, biases: Array, slopes: Array, spreads: Array) -> Line:
    """The line y_j = v + Σ_k s_k b_jk ± e_j with s_k = slope_k ± spread_k: the mean of v in the posterior of (v, s).

    Args:
        values: y, (m,).
        errors: e, (m,).
        biases: b, (m, k).
        slopes, spreads: of the prior, (k,).

    Examples:
        >>> steps, one = np.array([[0.2], [0.1]]), np.ones(1)
        >>> known = line(np.array([3.2, 3.1]), np.full(2, 0.1), steps, one, 1e-9 * one)
        >>> round(known.value, 6), known.weights.round(6).tolist(), round(known.ahead, 6)
        (3.0, [0.5, 0.5], 0.1)
        >>> line(np.array([3.4, 3.2]), np.full(2, 0.1), steps, one, 1e9 * one).weights.round(3).tolist()
        [-1.0, 2.0]
    """
    m, k = biases.shape
    design = np.zeros((m + k, 1 + k))
    design[:m] = np.hstack([np.ones((m, 1)), biases]) / errors[:, None]
    design[m:, 1:] = np.diag(1 / spreads)
    wanted = np.concatenate([values / errors, slopes / spreads])
    inverse = np.linalg.pinv(design)
    solution = inverse @ wanted
    misfit = float(np.square(wanted - design @ solution).sum())
    ahead = float(biases[-1] @ solution[1:])
    return Line(float(solution[0]), inverse[0, :m] / errors, float(np.square(inverse[0, m:]).sum()), ahead, misfit)


def extrapolated(runs: Sequence[Run]) -> Extrapolation:
    """Mean excess loss at step size zero, and its standard error.

    Gradient noise of whitened trace N lifts nβ·excess by about εN/8 at a step ε, and N was measured: the runs' means
    lie on a line in this lift whose slope is 1 within `LIFT_SPREAD` before any mean is looked at. Where virials serve
    as control variates it is between 0 and 1: they are lifted alike, and take the lift out of the mean with its
    fluctuations, all of it on a quadratic. What discretization adds is none in a quadratic, and small beside the value
    elsewhere. The error holds the Monte Carlo error, that of the slopes, more where the means lie off every such line,
    and a fifth of the way from the smallest step to zero, for bends that two step sizes cannot show. Step-size bias
    lifts the virials too: what they lack at step size zero, no chain has seen.
    """
    nbeta = runs[0].target.nbeta
    sizes = np.array([run.step_size for run in runs])
    lifts = np.array([run.noise for run in runs]) * sizes / 8
    virials = _virials(lifts, [run.virials() for run in runs])
    correction = Correction(virials.chance(), runs[-1].profits())
    means = [run.corrected(correction) for run in runs]
    values, errors, freedoms = (np.array(column) for column in zip(*means, strict=True))
    drop = runs[0].target.drop / nbeta
    values = values + drop  # over L(ŵ), which is what a bias is relative to
    errors = np.maximum(errors, 1e-6 * np.abs(values).max() + 1e-300)  # of one size, for the fit's sake
    other = DISCRETIZATION * max(float(np.abs(values).max()), 1e-300) * sizes / sizes.max()
    slope, spread = CONTROLLED_LIFT if correction.control else (1.0, LIFT_SPREAD)
    fit = line(values, errors, np.stack([lifts / nbeta, other], 1), np.array([slope, 0.0]), np.array([spread, 1.0]))
    beyond = max(1.0, fit.misfit / MAX_MISFIT_STDERRS**2)
    parts = fit.weights**2 * errors**2
    mean = Mean(fit.value, math.sqrt(parts.sum()), freedom_of(parts.tolist(), freedoms.tolist()))
    unproved = (beyond - 1) * parts.sum() + beyond * fit.prior + (UNSEEN_BEND * fit.ahead) ** 2
    systematic = math.hypot(math.sqrt(unproved), virials.charge(mean.value, nbeta))
    whole = mean.widened(systematic)._replace(value=mean.value - drop)
    return Extrapolation(*whole, slope=fit.ahead / fit.value, systematic=systematic, correction=correction)


def _virials(lifts: Array, virials: Sequence[Virials]) -> Virials:
    """Both virials at step size zero: a step lifts δ·∇U by twice what it lifts nβ·excess."""
    priors = ((1.0, LIFT_SPREAD), SOFT_LIFT)
    means, stderrs = [], []
    for place, (slope, spread) in enumerate(priors):
        values = np.array([each.means[place] for each in virials])
        errors = np.maximum(np.array([each.stderrs[place] for each in virials]), 1e-300)
        fit = line(values, errors, 2 * lifts[:, None], np.array([slope]), np.array([spread]))
        means.append(fit.value)
        stderrs.append(math.sqrt(float((fit.weights**2 * errors**2).sum()) + fit.prior))
    return Virials(np.array(means), np.array(stderrs), virials[-1].exact, virials[-1].relaxations)
