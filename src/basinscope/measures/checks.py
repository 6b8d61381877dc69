"""The checks that several measures share, and their limits: the one place where these are said."""

from __future__ import annotations

import math

from ..estimates import Check
from ..sampling import convergence

MAX_RELATIVE_STDERR = 0.1  # standard error, relative to what it should be small against


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
