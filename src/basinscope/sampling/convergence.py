"""When chains have sampled enough: the rules by which they stop, and by which their mean is believed afterwards."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .runs import Run

MAX_RHAT = 1.1  # split-R̂ between chains
MAX_RHAT_OF_PRECISE = 1.5  # split-R̂ of chains too short for R̂ to come near 1, whose mean is known well all the same
PRECISE = 0.5  # standard error, in units of the wanted one, from which on a mean is known well
MAX_DRIFT_STDERRS = 4 * math.sqrt(2)  # drift in standard errors of the mean: the halves' difference has √2 of them
MAX_NEGATIVE_STDERRS = 4.0  # standard errors below zero from which on more draws would not help
MAX_PLAIN_STDERR = 3.0  # of the draws as they are, in units of the wanted one: control variates rest on them


def is_precise(stderr: float, mean: float, rtol: float) -> bool:
    """Whether a mean is known so well that its chains need no more draws for R̂ to come near 1.

    Half-chains of few draws have means apart from each other even where all are independent: R̂ is then about
    1 + 1/(2N) for N of them. The standard error knows of the chains' own means.
    """
    return stderr <= PRECISE * rtol * abs(mean)


def max_rhat(precise: bool) -> float:
    """The split-R̂ that chains may have."""
    return MAX_RHAT_OF_PRECISE if precise else MAX_RHAT


def max_drift(stderr: float, mean: float, rtol: float) -> float:
    """The distance that the means of the last two quarters of a run may have: the tolerance, or what chance makes."""
    return max(rtol * abs(mean), MAX_DRIFT_STDERRS * stderr)


def mixed(runs: Sequence[Run], stderr: float, mean: float, rtol: float) -> bool:
    """Whether the chains of every run agree with each other."""
    return max(run.summary().rhat for run in runs) < max_rhat(is_precise(stderr, mean, rtol))


def converged(run: Run, rtol: float) -> bool:
    """Whether the mean loss over that of ŵ is known to `rtol`, by chains that agree and no longer move."""
    if run.alive.sum() < 2:
        return False
    mean, stderr, _ = run.excess()
    mean = run.above_bottom(mean)
    if not math.isfinite(stderr) or mean <= 0:
        return False
    precise = stderr <= rtol * mean and run.plain().stderr <= MAX_PLAIN_STDERR * rtol * mean
    return (
        precise
        and abs(run.drift(run.correction())) <= max_drift(stderr, mean, rtol)
        and mixed([run], stderr, mean, rtol)
    )


def below_zero(run: Run) -> bool:
    """Whether the mean loss is lower than at ŵ, the lowest point near w*, beyond doubt and not on its way up.

    The chains have found another basin, and no number of draws would bring them back.
    """
    if run.alive.sum() < 2:
        return False
    mean, stderr, _ = run.plain()
    return run.above_bottom(mean) < -MAX_NEGATIVE_STDERRS * stderr and run.drift() <= MAX_DRIFT_STDERRS * stderr
