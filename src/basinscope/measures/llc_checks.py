"""What is looked at before λ̂ is believed, with every limit: verdict, warnings, reports and docs/trust.md follow."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ..estimates import Check
from ..sampling import convergence
from ..sampling.gradients import MAX_MISMATCH
from .checks import (
    Balance,
    Movement,
    check_completion,
    check_drift,
    check_mixing,
    check_precision,
    check_survival,
    check_virial,
)

# Shares are of λ̂ itself, or of the basin where that is more: they judge the sampling, wherever w* is.
MIN_ACCEPTANCE = 0.1  # accepted proposals of a Metropolis sampler
MAX_STEP_BIAS = 0.15  # distance of the smallest step from the extrapolation to zero
MAX_ROUNDING = 0.1  # of the posterior's width along its stiffest direction
MAX_LOCALISER_SHARE = 0.7  # −∂log λ̂/∂log γ, which is 1 in a basin without curvature

_METROPOLIS = ("hmc", "mala")  # samplers that reject, and so have no step-size bias
_EXTRAPOLATED = ("minibatch", "lean")  # samplers that measure their step-size bias


def llc_checks(value: float, stderr: float, diagnostics: Mapping[str, Any]) -> tuple[Check, ...]:
    """The checks of λ̂ ± stderr, from the diagnostics of `llc`; one that a sampler has no diagnostic for is left out.

    Examples:
        >>> seen = {"started": 8, "diverged": 0, "interrupted": False, "sampler": "hmc", "rhat": 1.21, "rtol": 0.02}
        >>> [(check.name, check.passed) for check in llc_checks(10.0, 0.5, seen) if not check.passed]
        [('split-R̂ between chains', False)]
    """
    started, diverged = diagnostics["started"], diagnostics["diverged"]
    if not math.isfinite(value):
        return (_no_number(diagnostics.get("sampler"), diverged, started),)
    return tuple(_checks(value, stderr, diagnostics))


def _checks(value: float, stderr: float, facts: Mapping[str, Any]) -> Iterator[Check]:
    basin = facts.get("basin")
    yield _sign(value, basin)
    yield check_survival(facts["diverged"], facts["started"], "use a smaller step_size")
    yield check_completion(facts["interrupted"], "the standard error target was met")
    level, of = (value, "λ̂") if basin is None or basin <= value else (basin, "the basin")
    scale = abs(level)
    if level > -convergence.MAX_NEGATIVE_STDERRS * stderr or not math.isfinite(stderr):
        yield check_precision(stderr, scale, of, "raise budget", few="raise draws or lower burn_in")
    if facts.get("acceptance") is not None and facts.get("sampler") in _METROPOLIS:
        yield _acceptance(facts["acceptance"])
    if facts.get("rhat") is not None:
        yield check_mixing(
            facts["rhat"], "raise budget", precise=convergence.is_precise(stderr, scale, facts["rtol"]),
            when=f"where the standard error is at most {convergence.PRECISE:g} rtol",
        )  # fmt: skip
    if facts.get("drift") is not None:
        moved = Movement(abs(facts["drift"]), convergence.max_drift(stderr, scale, facts["rtol"]), scale)
        yield check_drift(moved, of, "the last half", "raise budget")
    if facts.get("virial") is not None:
        yield check_virial(Balance(facts["virial"], facts["virial_stderr"]))
    yield _step_bias(facts["sampler"], facts.get("slope"))
    if not math.isnan(facts.get("gradient_mismatch", math.nan)):  # the loss may not be finite beside the chains
        yield _gradients(facts["gradient_mismatch"])
    if facts.get("rounding") is not None:
        yield _rounding(facts["rounding"])
    if value > 0 and facts.get("gamma_slope") is not None and facts.get("largest_eigenvalue") is not None:
        yield _localiser(facts, value)
    if facts.get("gamma_asked") is not None:
        yield _reach(facts)


def _sign(value: float, basin: float | None) -> Check:
    """λ̂, or the basin under a w* that is no minimum, is positive; 0 where the loss does not depend on the weights."""
    if value == 0 and not basin:
        return Check(
            "λ̂", "0", "positive", False, "check the loss and the data",
            reason="constant: the loss is the same wherever the chains went, so that no direction counts",
        )  # fmt: skip
    shown = f"{value:.4g}" if value > 0 or basin is None else f"{value:.4g}, of a basin of {basin:.4g}"
    lower = "w* has" if basin is None else "the lowest point near w* has"
    return Check(
        "λ̂", shown, "positive, or that of the basin", value > 0 or (basin or 0.0) > 0, "train longer, or raise gamma",
        "failure", f"not in a basin: λ̂ = {shown} is not positive, so chains found lower loss than {lower}",
    )  # fmt: skip


def _no_number(sampler: str | None, diverged: int, started: int) -> Check:
    """Why there is no number. Samplers that reject do not lose chains by their step: the loss leads them away."""
    remedy, reason = "train longer, or raise gamma", f"diverged: {diverged} of {started} chains diverged"
    if not diverged:
        reason = "overflow: the losses along the chains are too large to average"
    elif sampler in _METROPOLIS:
        reason = f"not in a basin: {diverged} of {started} chains fell far below the loss of w* and were stopped"
    elif sampler not in _EXTRAPOLATED:
        remedy = "use a smaller step_size or a larger gamma"
    return Check("λ̂", "not finite", "positive", False, remedy, "failure", reason)


def _acceptance(share: float) -> Check:
    return Check(
        "accepted proposals", f"{share:.0%}", f"at least {MIN_ACCEPTANCE:.0%}", share >= MIN_ACCEPTANCE,
        "lower step_size", reason=f"not converged: only {share:.0%} of proposals are accepted",
    )  # fmt: skip


def _step_bias(sampler: str, slope: float | None) -> Check:
    """Chains that reject have none, chains at several step sizes measure it; of others nobody knows it."""
    name, wanted = "step-size bias", f"none, or measured and at most {MAX_STEP_BIAS:.0%} of λ̂"
    if sampler in _METROPOLIS:
        return Check(name, "none", wanted, True)
    if sampler not in _EXTRAPOLATED or slope is None:
        return Check(
            name, "unknown", wanted, False, "use sampler='hmc' or 'minibatch'",
            reason=f"step-size bias: {sampler} corrects and measures none",
        )  # fmt: skip
    return Check(
        name, f"{abs(slope):.1%} of λ̂", wanted, abs(slope) <= MAX_STEP_BIAS, "raise batch_size or budget",
        reason=f"step-size bias: the smallest step is {slope:.0%} off the extrapolation",
    )  # fmt: skip


def _gradients(mismatch: float) -> Check:
    """Whether changes of the loss are the integrals of its gradient: else chains follow another function."""
    return Check(
        "changes of the loss against its gradient", f"{mismatch:.1%} apart", f"at most {MAX_MISMATCH:.0%} apart",
        not mismatch > MAX_MISMATCH, "measure the network that the gradient is of",
        reason=f"gradients of something else: changes of the loss are {mismatch:.0%} off the integrals of what autograd"
        f" calls its gradient, as with straight-through rounding",
    )  # fmt: skip


def _rounding(share: float) -> Check:
    """Displacements as wide as the flattest direction are rounded to steps, which the stiffest one may be too narrow
    for: ε √((nβσ₁ + γ)/γ) of its width."""
    return Check(
        "rounding of displacements", f"{share:.2g} of the stiffest direction's width", f"at most {MAX_ROUNDING:g}",
        share <= MAX_ROUNDING, "convert model and data to float64",
        reason=f"imprecise: steps of {share:.2g} of the posterior's width are lost in its stiffest direction",
    )  # fmt: skip


def _localiser(facts: Mapping[str, Any], value: float) -> Check:
    """λ̂ is the localiser's where no direction is stiffer than γ and λ̂ falls nearly in proportion to γ."""
    stiffness, gamma = facts["nbeta"] * facts["largest_eigenvalue"], facts["gamma"]
    share = -facts["gamma_slope"] / value
    return Check(
        "stiffest direction, nβσ₁/γ", f"{stiffness / gamma:.3g}",
        f"above 1, or λ̂ falling with γ by a power of at most {MAX_LOCALISER_SHARE:g}",
        stiffness > gamma or share <= MAX_LOCALISER_SHARE, "lower gamma or raise nbeta",
        reason=f"prior-dominated: no direction is stiffer than gamma={gamma:.3g}, and λ̂ falls as gamma^−{share:.2f}",
    )  # fmt: skip


def _reach(facts: Mapping[str, Any]) -> Check:
    """Chains that cannot relax the slowest modes in their time have a localiser that makes them faster."""
    reached, asked = f"{facts['gamma']:.3g}", f"{facts['gamma_asked']:.3g}"
    fine = facts["gamma"] < facts["gamma_asked"] or math.isclose(facts["gamma"], facts["gamma_asked"])
    return Check(
        "localiser γ that chains reach", reached, "the one that was asked for",
        fine, "raise budget, lower nbeta, or leave gamma out",
        reason=f"coarser than asked: chains so short reach gamma={reached}, not {asked}",
    )  # fmt: skip
