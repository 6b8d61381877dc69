"""The local learning coefficient λ̂."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from ..errors import InputError
from ..estimates import Estimate, Verdict
from ..landscape import Landscape
from ..progress import tracked
from ..sampling.calibration import Resolution, resolution
from ..sampling.local import Outcome, Sampler, Settings
from ..sampling.runs import BELOW

_TRACE_BLOCKS = 256
_ROUNDING = {torch.float32: 1e-4, torch.float64: 1e-9}  # relative error of mean losses that no sampling removes


def llc(
    land: Landscape,
    *,
    nbeta: float | None = None,
    gamma: float | None = None,
    sampler: str = "auto",
    chains: int | None = None,
    draws: int | None = None,
    step_size: float | None = None,
    batch_size: int | None = None,
    burn_in: float | None = None,
    rtol: float = 0.02,
    budget: float = 60.0,
    seed: int = 0,
    progress: bool = True,
) -> Estimate:
    """Local learning coefficient λ̂ = nβ (E[L_n(w)] − L_n(w*)) (Lau et al.; papers 000–003).

    The mean is over the local posterior ∝ exp(−nβ L_n(w) − (γ/2)‖w − w*‖²). On a quadratic basin λ̂ is half the soft
    rank of the Hessian, ½ Tr H(H + (γ/nβ) I)⁻¹; it is a function of the resolution (nβ, γ), and both are reported.

    Nothing needs to be set. Curvature from Lanczos scales every direction; Hamiltonian Monte Carlo on all data runs
    where it is affordable, otherwise Langevin chains with momentum on minibatches at three step sizes, extrapolated to
    zero.

    Args:
        land: the landscape.
        nbeta: inverse temperature nβ; n/log n unless given.
        gamma: localisation γ; d/‖w*‖² unless given.
        sampler: `auto`, `hmc` (all data), `minibatch` (extrapolated), or a plain kernel with nothing corrected:
            `sgld`, `rmsprop-sgld`, `leimkuhler-matthews`, `baoab`, `sgnht`, `mala`.
        chains, draws, step_size, batch_size, burn_in: settings of the sampler; chosen unless given.
        rtol: wanted standard error relative to λ̂.
        budget: most work, in nominal seconds; counted in arithmetic, so that a seed gives the same bits every time.
            A few transitions are made whatever they cost; where they do not suffice, the verdict says so.
        seed: of all random numbers.
        progress: show a bar when it takes over a second.

    Returns:
        An `Estimate`; `diagnostics` holds R̂, ESS, the virial ratio E[δ·∇U]/d (1 in equilibrium), the heat capacity
        (nβ)²Var L, the gradient term, λ̂ at γ/3 and 3γ, and the chains' traces.

    Examples:
        >>> import torch, basinscope as bs
        >>> x = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
        >>> net = torch.nn.Linear(3, 1, bias=False)
        >>> _ = torch.nn.init.ones_(net.weight)
        >>> est = bs.llc(bs.Landscape(net, "mse", (x, x.sum(1, keepdim=True))), seed=0)
        >>> abs(est.value - 1.5) < 0.15, est.stderr < 0.05
        (True, True)
    """
    if not isinstance(land, Landscape):
        raise InputError(
            f"land must be a Landscape, got {type(land).__name__} — make one with bs.Landscape(model, ...)"
        )
    settings = Settings(sampler, chains, draws, step_size, batch_size, burn_in, rtol, budget, seed)
    at = resolution(land, nbeta, gamma)
    with tracked("llc", progress) as report:
        measured = Sampler(land, settings)
        outcome = measured.run(at, report)
        sides = _sides(measured, outcome, report)
    return judged(measured, outcome, sides)


def _sides(measured: Sampler, outcome: Outcome, report: Any) -> dict[float, tuple[float, float]]:
    """λ̂ and its standard error at γ/3 and 3γ, from where the chains are; none for a run that was cut short or is a
    plain kernel."""
    if outcome.sampler not in ("hmc", "minibatch") or outcome.interrupted or outcome.diverged:
        return {}
    try:
        return {
            gamma: _told(measured.run(Resolution(outcome.at.nbeta, gamma), report, outcome))
            for gamma in (outcome.at.gamma / 3, 3 * outcome.at.gamma)
        }
    except KeyboardInterrupt:
        return {}


def _told(outcome: Outcome) -> tuple[float, float]:
    """λ̂ and its standard error."""
    return outcome.at.nbeta * outcome.excess, outcome.at.nbeta * outcome.stderr


def judged(measured: Sampler, outcome: Outcome, sides: dict[float, tuple[float, float]]) -> Estimate:
    """The estimate with its verdict, from a finished run."""
    value, sampled = _told(outcome)
    stderr = math.hypot(sampled, _ROUNDING[measured.land.dtype] * abs(value))
    diagnostics = _diagnostics(measured, outcome, sides)
    failures, doubts = _reasons(value, stderr, outcome, diagnostics)
    verdict: Verdict = "failed" if failures else "doubtful" if doubts else "ok"
    return Estimate("llc", value, stderr, verdict, (*failures, *doubts), diagnostics)


def _diagnostics(measured: Sampler, outcome: Outcome, sides: dict[float, tuple[float, float]]) -> dict[str, Any]:
    at, land, run = outcome.at, measured.land, outcome.main
    found: dict[str, Any] = {
        "nbeta": at.nbeta,
        "gamma": at.gamma,
        "n": land.n,
        "dimension": land.dimension,
        "loss": float(measured.losses.base.mean()),
        "sampler": outcome.sampler,
        "chains": len(run.alive) if len(outcome.runs) == 1 else int(run.alive.sum()),
        "diverged": outcome.diverged,
        "draws": run.trace.draws,
        "burn_in": int(run.discard * run.trace.draws),
        "step_sizes": [each.step_size for each in outcome.runs],
        "batch_size": outcome.batch_size,
        "persistence": None if outcome.pace is None else outcome.pace.persistence,
        "control_variates": outcome.control_variates,
        "interrupted": outcome.interrupted,
        "exhausted": outcome.exhausted,
        "batched": measured.losses.batched,
        **_curvature(measured, outcome),
        **run.settings,
    }
    if run.alive.sum() < 2:
        return found
    summary, virial = run.summary(), run.summary("virial")
    found |= {
        "rhat": outcome.rhat,
        "ess": summary.ess,
        "acceptance": run.summary("acceptance").mean,
        "virial": virial.mean / land.dimension,
        "virial_stderr": virial.stderr / land.dimension,
        "drift": at.nbeta * run.drift(),
        "distance": math.sqrt(run.summary("distance").mean),
        "heat_capacity": at.nbeta**2 * summary.variance if outcome.batch_size is None else None,
        "by_step_size": [
            (each.step_size, at.nbeta * each.summary().mean) for each in outcome.runs if each.alive.sum() > 1
        ],
        "slope": outcome.slope,
        "gamma_curve": [(gamma, *side) for gamma, side in sorted({**sides, at.gamma: _told(outcome)}.items())],
        "trace": _trace(at.nbeta, outcome),
    }
    return found


def _curvature(measured: Sampler, outcome: Outcome) -> dict[str, Any]:
    """What curvature at w* says; not measured for a plain kernel, whose cost it would outweigh."""
    if outcome.sampler not in ("hmc", "minibatch"):
        return {"gradient_term": None, "largest_eigenvalue": None, "half_soft_rank": None}
    known = measured.geometry
    return {
        "gradient_term": known.gradient_term(outcome.at),
        "largest_eigenvalue": float(known.values[0]),
        "half_soft_rank": known.half_soft_rank(outcome.at) if known.complete else None,
    }


def _trace(nbeta: float, outcome: Outcome) -> np.ndarray[Any, Any]:
    """nβ·excess of the living chains, (chains, at most 256 or so blocks)."""
    rows = outcome.main.trace.values("excess", chains=outcome.main.alive)
    stride = max(1, rows.shape[1] // _TRACE_BLOCKS)
    whole = rows.shape[1] // stride * stride
    return nbeta * rows[:, :whole].reshape(len(rows), -1, stride).mean(2)


def _reasons(value: float, stderr: float, outcome: Outcome, found: dict[str, Any]) -> tuple[list[str], list[str]]:
    """What makes the number wrong, and what makes it doubtful, in words."""
    failures: list[str] = []
    doubts: list[str] = []
    diverged, chains = outcome.diverged, sum(len(run.alive) for run in outcome.runs[:1])
    if not math.isfinite(value):
        failures.append(f"diverged: {diverged} of {chains} chains diverged — use a smaller step_size or a larger gamma")
        return failures, doubts
    if diverged:
        doubts.append(f"diverged chains: {diverged} of {chains} were stopped and left out — use a smaller step_size")
    if outcome.interrupted:
        doubts.append("partial: sampling was interrupted before the standard error target was met")
    gradient = found["gradient_term"]
    if value <= 0:
        failures.append(
            f"not at a minimum: λ̂ = {value:.3g} is not positive, so chains found lower loss than w* has — train "
            f"longer, or raise gamma"
        )
    elif gradient is not None and gradient > 0.1 * value:
        doubts.append(
            f"not at a minimum: the gradient term ½(nβ)²gᵀA⁻¹g = {gradient:.3g} is {gradient / value:.0%} of λ̂ — train "
            f"longer, or read λ̂ as a lower value"
        )
    if not math.isfinite(stderr):
        doubts.append("imprecise: too few draws for a standard error — raise draws or lower burn_in")
    if found["acceptance"] < 0.1:
        doubts.append(f"not converged: only {found['acceptance']:.0%} of proposals are accepted — lower step_size")
    if not found["rhat"] < 1.5 or (found["rhat"] > 1.1 and stderr > 0.01 * abs(value)):
        doubts.append(f"not converged: split-R̂ = {found['rhat']:.3f} between chains — raise budget")
    drift = abs(found["drift"])
    if drift > max(0.05 * abs(value), 4 * math.sqrt(2) * stderr):
        doubts.append(
            f"not converged: λ̂ still moves by {drift / abs(value):.0%} over the run's last half — raise budget"
        )
    if stderr > 0.1 * abs(value) and value > -BELOW * stderr:  # below that no more draws are wanted
        doubts.append(f"imprecise: the standard error is {stderr / abs(value):.0%} of λ̂ — raise budget")
    off = abs(found["virial"] - 1)
    if off > 0.1 and off > 4 * found["virial_stderr"]:
        doubts.append(
            f"not in equilibrium: the virial ratio is {found['virial']:.2f} instead of 1 — "
            + ("use a smaller step_size" if found["virial"] > 1 else "raise budget")
        )
    if math.isfinite(outcome.slope) and abs(outcome.slope) > 0.15:
        doubts.append(
            f"step-size bias: the smallest step is {outcome.slope:.0%} off the extrapolation — raise batch_size or "
            f"budget"
        )
    doubts += _prior_dominated(found, value)
    return failures, doubts


def _prior_dominated(found: dict[str, Any], value: float) -> list[str]:
    """λ̂ that the localiser decides: no direction is stiffer than γ and λ̂ grows nearly in proportion to 1/γ."""
    curve = found["gamma_curve"]
    if len(curve) < 3 or curve[0][1] < 2.2 * value or found["nbeta"] * found["largest_eigenvalue"] > found["gamma"]:
        return []
    return [
        f"prior-dominated: no direction is stiffer than gamma={found['gamma']:.3g}, and λ̂ triples with 1/gamma — lower "
        f"gamma or raise nbeta"
    ]
