"""The checks of chains that another tool made: one for each way in which such a λ̂ is commonly wrong."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..adapters.chains import ForeignChains
from ..estimates import Check
from ..sampling.diagnostics import effective_size, split_rhat

Array = NDArray[np.float64]

MAX_SHIFT, MAX_STDERRS = 0.05, 4.0  # of λ̂, and in standard errors: what both must be passed for a mean to have moved
MAX_RHAT = 1.1
FEWEST_EFFECTIVE = 50.0
MAX_BIAS = 0.05  # of λ̂
GROWTH = 1.8  # of the excess loss from the first half to the second: 1 in equilibrium, 3 where it grows linearly
BITS = {"bfloat16": 8, "float16": 11}  # of their mantissas
_NEWEST = 3  # steps from w* by which the curvature is told


class SamplingFacts(NamedTuple):
    """What is known besides the losses; NaN for what is not.

    Attributes:
        hessian_trace: Tr H of the mean loss at w*.
        noise_trace: trace of the covariance of one sample's gradient.
        weight_scale: root mean square of the weights.
        dtype: floating-point type that the weights were moved in.
    """

    hessian_trace: float = math.nan
    noise_trace: float = math.nan
    weight_scale: float = math.nan
    dtype: str = ""


class Reading(NamedTuple):
    """What the chains say.

    Attributes:
        used: losses that the tool takes the mean of.
        late: the second half of those.
        mean, stderr: of the late ones.
        scale: what shifts are compared with: the late excess loss, or the spread of losses where L(w*) is unknown.
        ess: effective number of the late draws.
    """

    used: Array
    late: Array
    mean: float
    stderr: float
    scale: float
    ess: float


def reading_of(chains: ForeignChains) -> Reading:
    """The means by which chains are judged."""
    used = chains.losses[:, chains.burn_in :]
    late = used[:, used.shape[1] // 2 :]
    mean, spread = float(late.mean()), float(late.std())
    excess = mean - chains.init_loss
    ess = effective_size(late)
    stderr = spread / math.sqrt(ess) if ess > 0 else math.nan
    return Reading(used, late, mean, stderr, abs(excess) if excess == excess and excess != 0 else spread, ess)


def audit_checks(chains: ForeignChains, known: SamplingFacts) -> tuple[Check, ...]:
    """Every check; one that nothing is known for passes, and says so."""
    reading = reading_of(chains)
    grown = growth(chains)
    return (
        check_complete(chains),
        check_diffusion(chains, known, reading, grown),
        check_burn_in(chains, reading),
        check_stationary(reading),
        check_agreement(reading),
        check_size(reading),
        check_bits(chains, known),
        check_bias(chains, known, reading),
        check_localiser(chains),
    )


def check_complete(chains: ForeignChains) -> Check:
    """Whether the file says that the run came to its end."""
    return Check(
        "end of the run", "reached" if chains.complete else "not reached", "reached", chains.complete,
        "run the chains again", "failure", "cut off: the file says that the run did not come to its end",
    )  # fmt: skip


def growth(chains: ForeignChains) -> float:
    """By which factor the mean excess loss grew from the first half of the whole run to the second; NaN if unknown."""
    if not math.isfinite(chains.init_loss):
        return math.nan
    half = chains.losses.shape[1] // 2
    first, second = chains.losses[:, :half], chains.losses[:, half:]
    stderr = 2 * chains.losses.std(1).mean() / math.sqrt(max(1.0, chains.losses.size))
    below = float(first.mean()) - chains.init_loss
    return (float(second.mean()) - chains.init_loss) / below if below > 2 * stderr else math.nan


def check_diffusion(chains: ForeignChains, known: SamplingFacts, reading: Reading, grown: float) -> Check:
    """Whether chains have reached an equilibrium or still diffuse from w*, where λ̂ is (εT nβ/4) Tr H.

    Then the loss grows in proportion to time: its mean over the second half is three times that over the first.
    """
    steps = chains.losses.shape[1]
    llc = chains.nbeta * (float(reading.used.mean()) - chains.init_loss)
    free = chains.step_size * chains.nbeta * known.hessian_trace / 4 * steps
    share = llc / free if free > 0 else math.nan
    half = reading.late.shape[1] // 2
    rises = reading.late[:, half:].mean(1) - reading.late[:, :half].mean(1)
    chance = 2 * float(rises.std(ddof=1)) / math.sqrt(len(rises)) if len(rises) > 1 else 2 * reading.stderr
    climbs = rises.mean() > max(MAX_SHIFT * reading.scale, chance)
    linear = grown > GROWTH and climbs
    free_too = 0.5 < share < 1.5
    observed = (
        [f"excess loss grows {grown:.1f} times from the first half to the second"] if math.isfinite(grown) else []
    )
    observed += [f"λ̂ is {share:.2f} of (εT·nβ/4)·Tr H"] if math.isfinite(share) else []
    return Check(
        "equilibrium", "; ".join(observed) or "not known: pass init_loss, or hessian_trace with nbeta and step_size",
        f"growth below {GROWTH:g}, and λ̂ far below that of free diffusion", not (linear or free_too),
        "run the chains longer, for several times 2/(εγ), or with a larger step_size", "failure",
        "diffusion instead of equilibrium: the chains still walk away from w* as they would without a loss, so that λ̂ "
        "is (εT·nβ/4)·Tr H, a rescaled Hessian trace",
    )  # fmt: skip


def check_burn_in(chains: ForeignChains, reading: Reading) -> Check:
    """Whether the mean is that of the chains' later part, or has the way there in it."""
    mean = chains.init_loss + chains.reported / chains.nbeta if math.isfinite(chains.reported) else math.nan
    if not math.isfinite(mean):
        mean = float(reading.used.mean())
    shift = abs(mean - reading.mean)
    apart = shift > max(MAX_SHIFT * reading.scale, MAX_STDERRS * reading.stderr)
    return Check(
        "burn-in", f"the mean taken is {shift / reading.scale:.1%} off that of the second half",
        f"at most {MAX_SHIFT:.0%} or {MAX_STDERRS:g} standard errors", not apart,
        "raise burn_in until the loss is level", "doubt",
        f"burn-in averaged in: with the first half left out, λ̂ moves by {shift / reading.scale:.0%}",
    )  # fmt: skip


def check_stationary(reading: Reading) -> Check:
    """Whether the mean is the same over both halves of what is left without the first half."""
    early, late = _halves(reading.late)
    moved = abs(late - early)
    chance = MAX_STDERRS * math.sqrt(2) * _stderr_beside_a_trend(reading.late)
    most = max(MAX_SHIFT * reading.scale, chance)
    return Check(
        "drift", f"{moved / reading.scale:.1%} over the second half", f"at most {MAX_SHIFT:.0%} or chance",
        not moved > most, "run the chains longer",
        reason=f"drift: the mean loss still moves by {moved / reading.scale:.0%} over the second half of the run",
    )  # fmt: skip


def _stderr_beside_a_trend(rows: Array) -> float:
    """The standard error of the mean without the line that all chains follow: a drift makes neighbours alike, and would
    excuse itself by the few effective draws that it leaves."""
    time = np.arange(rows.shape[1]) - (rows.shape[1] - 1) / 2
    level = rows - rows.mean(0) @ time / (time @ time) * time
    size = effective_size(level)
    return float(level.std()) / math.sqrt(size) if size > 0 else math.nan


def check_agreement(reading: Reading) -> Check:
    """Whether chains agree with each other."""
    if len(reading.late) < 2:
        return Check(
            "split-R̂ between chains", "one chain", "at least two", False, "run several chains",
            reason="one chain: nothing tells whether another would agree",
        )  # fmt: skip
    half = reading.late.shape[1] // 2
    halves = np.concatenate([reading.late[:, :half], reading.late[:, half : 2 * half]])
    rhat = split_rhat(halves.mean(1), float(halves.var(1).mean()), half)
    return Check(
        "split-R̂ between chains", f"{rhat:.3f}", f"below {MAX_RHAT:g}", rhat < MAX_RHAT, "run the chains longer",
        reason=f"chains disagree: split-R̂ = {rhat:.3f}",
    )  # fmt: skip


def check_size(reading: Reading) -> Check:
    """Whether there are enough effectively independent draws."""
    return Check(
        "effective draws", f"{reading.ess:.0f} of {reading.late.size}", f"at least {FEWEST_EFFECTIVE:g}",
        reading.ess >= FEWEST_EFFECTIVE, "run more chains, or longer ones",
        reason=f"too few effective draws: {reading.ess:.0f} of {reading.late.size}, as neighbours are alike",
    )  # fmt: skip


def check_bits(chains: ForeignChains, known: SamplingFacts) -> Check:
    """Whether weights were moved in 16 bits, where drifts of less than a rounding of the weight are lost.

    A soft mode drifts by ½ε√γ per step; it is rounded away where that is below 2⁻⁹ of the weight (bfloat16).
    """
    kind = known.dtype if known.dtype in BITS else "" if known.dtype else precision_of(chains.recorded)
    drift = 0.5 * chains.step_size * math.sqrt(chains.gamma) if chains.gamma >= 0 else math.nan
    least = known.weight_scale * 2.0 ** -(BITS[kind] + 1) if kind else 0.0
    safe = not kind or drift >= least
    size = f"; a soft mode drifts by {drift:.1e}, weights are rounded by {least:.1e}" if drift == drift and kind else ""
    return Check(
        "precision of the weights", f"{kind or known.dtype or 'more than 16 bits'}{size}",
        "32 bits, or drifts larger than a rounding", safe, "sample in float32, or with stochastic rounding", "failure",
        f"16-bit weights: in {kind} the drift of soft modes is rounded away while the noise stays, so that λ̂ is too "
        f"large, by ten times and more",
    )  # fmt: skip


def precision_of(values: NDArray[Any]) -> str:
    """The 16-bit type in which all of many distinct values are exact; empty if there is none.

    Examples:
        >>> precision_of(np.linspace(1, 2, 100)), precision_of(np.linspace(1, 2, 129))
        ('', 'bfloat16')
    """
    finite = np.unique(np.asarray(values)[np.isfinite(np.asarray(values, dtype=np.float64))])
    if len(finite) < BITS["bfloat16"] or len(finite) < 40:
        return ""
    if values.dtype == np.float16:
        return "float16"
    single = finite.astype(np.float32)
    if not np.array_equal(single.astype(finite.dtype), finite):
        return ""
    if not np.any(single.view(np.uint32) & 0xFFFF):
        return "bfloat16"
    with np.errstate(over="ignore"):
        return "float16" if np.array_equal(single.astype(np.float16).astype(np.float32), single) else ""


def check_bias(chains: ForeignChains, known: SamplingFacts, reading: Reading) -> Check:
    """How much the step adds to λ̂: (ε/8) E‖∇U‖², of which nβ Tr H is discretization and nβ² Tr C/m the noise."""
    llc = chains.nbeta * (reading.mean - chains.init_loss)
    added, how = _added(chains, known)
    share = abs(added / llc) if llc > 0 else math.nan
    return Check(
        "step-size bias", f"{share:.1%} of λ̂ {how}" if math.isfinite(share) else
        "not known: pass hessian_trace and noise_trace, or the landscape",
        f"at most {MAX_BIAS:.0%}", not share > MAX_BIAS, "sample again with a smaller step_size or a larger batch_size",
        reason=f"step-size bias: discretization and the noise of batches add {share:.0%} to λ̂",
    )  # fmt: skip


def _added(chains: ForeignChains, known: SamplingFacts) -> tuple[float, str]:
    """What the step adds to λ̂, and how that is known."""
    step, nbeta = chains.step_size, chains.nbeta
    if math.isfinite(chains.squared_gradient):
        return step / 8 * chains.squared_gradient, "by the gradients along the chains"
    if math.isfinite(known.hessian_trace):
        noise = nbeta**2 * known.noise_trace / chains.batch_size
        whole = nbeta * known.hessian_trace + (noise if math.isfinite(noise) else 0.0)
        return step / 8 * whole, "by Tr H and the noise of batches" if math.isfinite(noise) else "by Tr H"
    first = chains.losses[:, :_NEWEST] - chains.init_loss
    if first.shape[1] < _NEWEST or not math.isfinite(nbeta):
        return math.nan, ""
    rise = first[:, -1].mean() / (_NEWEST - 1)  # ½ε Tr H a step, where chains start at w*
    error = first.std() / math.sqrt(first.size)
    from_the_minimum = abs(first[:, 0].mean()) < first[:, -1].mean() / 4 and rise > 4 * error
    return (nbeta * rise / 4, "by the loss's first steps") if from_the_minimum else (math.nan, "")


def check_localiser(chains: ForeignChains) -> Check:
    """Whether the run was long enough for the localiser, of relaxation time 2/(εγ), to be felt."""
    reached = localisation(chains)
    is_known = math.isfinite(reached)
    return Check(
        "reach of the localiser", f"the run is that of γ = {reached:.3g}, asked for {chains.gamma:.3g}" if is_known else
        "not known: pass gamma and step_size", "within a factor of two", not (is_known and reached > 2 * chains.gamma),
        "report this γ, or run the chains for several times 2/(εγ)",
        reason=f"another localiser: after so few steps λ̂ belongs to γ ≈ {reached:.3g} rather than {chains.gamma:.3g}",
    )  # fmt: skip


def localisation(chains: ForeignChains) -> float:
    """γ at which a free direction would be as wide as it was on average over the run: 1 / mean of (1 − e^(−εγt))/γ.

    Without a localiser it is 2/(εT): chains that walk freely are as wide as their time lets them.
    """
    step, gamma = chains.step_size, chains.gamma
    if not (step > 0 and gamma >= 0):
        return math.nan
    time = np.arange(chains.burn_in, chains.losses.shape[1]) + 1.0
    width = step * time if gamma == 0 else -np.expm1(-step * gamma * time) / gamma
    return float(1 / width.mean())


def _halves(rows: Array) -> tuple[float, float]:
    half = rows.shape[1] // 2
    return float(rows[:, :half].mean()), float(rows[:, half:].mean())
