"""The checks that several measures share, and their limits: the one place where these are said."""

from __future__ import annotations

import math
from typing import NamedTuple

from ..estimates import Check
from ..sampling import convergence
from ..sampling.local import Outcome

MAX_RELATIVE_STDERR = 0.1  # standard error, relative to what it should be small against
MAX_VIRIAL_ERROR = 0.05  # of the virial ratio, which is 1; λ̂ has what it lacks added and charged by half
MAX_VIRIAL_STDERRS = 4.0  # of its distance from 1, in its own standard errors


class Balance(NamedTuple):
    """The virial ratio E[δ·∇U]/d of chains, which is 1 for every posterior, and its standard error."""

    ratio: float
    stderr: float


class Movement(NamedTuple):
    """How far a mean moved over a stretch of draws, how far it may have, and the size of what moved."""

    distance: float
    most: float
    scale: float


def balance_of(outcome: Outcome) -> Balance:
    """The virial ratio of a run's chains; NaN where fewer than two are alive."""
    run = outcome.main
    if run.alive.sum() < 2:
        return Balance(math.nan, math.nan)
    virial, dimension = run.summary("virial"), run.target.losses.dimension
    return Balance(virial.mean / dimension, virial.stderr / dimension)


def check_virial(balance: Balance, *, where: str = "", above: str = "use a smaller step_size") -> Check:
    """Whether chains are in equilibrium: E[δ·∇U] = d holds for every posterior, by one integration by parts.

    Args:
        balance: the virial ratio.
        where: at which of several temperatures, in words.
        above: what to do where the ratio is above 1, as it is where steps are too large.

    Examples:
        >>> check_virial(Balance(0.8, 0.02)).warning
        'not in equilibrium: the virial ratio is 0.80 instead of 1 — raise budget'
    """
    off = abs(balance.ratio - 1)
    return Check(
        "virial ratio E[δ·∇U]/d", f"{balance.ratio:.2f} ± {balance.stderr:.2g}",
        f"1, within {MAX_VIRIAL_ERROR:g} or {MAX_VIRIAL_STDERRS:g} standard errors",
        not (off > MAX_VIRIAL_ERROR and off > MAX_VIRIAL_STDERRS * balance.stderr),
        above if balance.ratio > 1 else "raise budget",
        reason=f"not in equilibrium: the virial ratio is {balance.ratio:.2f} instead of 1{where}",
    )  # fmt: skip


def check_drift(moved: Movement, of: str, over: str, remedy: str) -> Check:
    """Whether a mean is the same over two stretches of draws, but for chance.

    Args:
        moved: from one stretch to the next.
        of: what moved, in words.
        over: both stretches, in words.
        remedy: what to do if it did.

    Examples:
        >>> check_drift(Movement(0.3, 0.1, 2.0), "λ̂", "the last half", "raise budget").warning
        'not converged: λ̂ still moves by 15% over the last half — raise budget'
    """
    share = moved.distance / moved.scale if moved.scale else math.inf
    return Check(
        f"drift over {over}", f"{share:.1%} of {of}",
        f"at most rtol, or {convergence.MAX_DRIFT_STDERRS:.1f} standard errors", not moved.distance > moved.most,
        remedy, reason=f"not converged: {of} still moves by {share:.0%} over {over}",
    )  # fmt: skip


def check_mixing(
    rhat: float, remedy: str, *, precise: bool = False, when: str = "", where: str = "between chains"
) -> Check:
    """Whether chains agree: split-R̂, the ratio of the spread of all draws to that inside half-chains, is near 1.

    Args:
        rhat: split-R̂.
        remedy: what to do if it is not.
        precise: whether the mean is known so well that the chains need no more mixing.
        when: a mean counts as known, in words.
        where: which chains, in words.

    Examples:
        >>> check_mixing(1.21, "raise budget").warning
        'not converged: split-R̂ = 1.210 between chains — raise budget'
    """
    relaxed = f", or below {convergence.max_rhat(True):g} {when}" if when else ""
    return Check(
        "split-R̂ between chains", f"{rhat:.3f}", f"below {convergence.max_rhat(False):g}{relaxed}",
        rhat < convergence.max_rhat(precise), remedy,
        reason=f"not converged: split-R̂ = {rhat:.3f} {where}",
    )  # fmt: skip


def check_precision(stderr: float, scale: float, of: str, remedy: str, *, few: str = "") -> Check:
    """Whether the standard error is small against the size that matters.

    Args:
        stderr: the standard error; not finite if there were too few draws for one.
        scale: what it should be small against.
        of: what that is, in words.
        remedy: what to do if it is not.
        few: what to do if there is no standard error; the same unless given.

    Examples:
        >>> check_precision(0.5, 2.0, "λ̂", "raise budget").warning
        'imprecise: the standard error is 25% of λ̂ — raise budget'
    """
    name, wanted = "standard error", f"at most {MAX_RELATIVE_STDERR:.0%} of {of}"
    if not math.isfinite(stderr):
        reason = "imprecise: too few draws for a standard error"
        return Check(name, "unknown", wanted, False, few or remedy, reason=reason)
    share = math.inf if scale == 0 < stderr else 0.0 if stderr == 0 else stderr / scale
    reason = f"imprecise: the standard error is {share:.0%} of {of}"
    return Check(name, f"{share:.1%} of {of}", wanted, share <= MAX_RELATIVE_STDERR, remedy, reason=reason)


def check_draws(stderr: float, scale: float, of: str = "the value") -> Check:
    """Whether draws are enough: their Monte Carlo error beside the size it should be small against."""
    return check_precision(stderr, scale, of, "raise draws", few="give more draws, or several chains")


def check_survival(dead: int, chains: int, remedy: str) -> Check:
    """Whether all chains stayed finite: those that did not are left out, and their part of the basin with them."""
    return Check(
        "diverged chains", f"{dead} of {chains}", "none", dead == 0, remedy,
        reason=f"diverged chains: {dead} of {chains} were stopped and left out",
    )  # fmt: skip


def check_completion(interrupted: bool, goal: str) -> Check:
    """Whether sampling ran until its goal was met or its budget spent, rather than until somebody stopped it."""
    return Check(
        "sampling", "interrupted" if interrupted else "ran to its end", "to its end", not interrupted,
        "let it run to its end", reason=f"partial: sampling was interrupted before {goal}",
    )  # fmt: skip
