"""The local learning coefficient λ̂."""

from __future__ import annotations

import math
from typing import Any, Unpack, cast

import numpy as np
import torch

from ..landscape import Landscape
from ..language.model import LanguageModel
from ..progress import tracked
from ..sampling.gradients import mismatch
from ..sampling.local import Outcome, Sampler
from ..sampling.quadratic import Quadratic
from .basin import CALIBRATED, note, split
from .coefficient import LearningCoefficient, at_minimum
from .lean import lean_llc, walks_lean
from .llc_by_layer import with_layers
from .llc_checks import llc_checks
from .posterior import Posterior, posterior_of
from .settings import Sampling, takes_settings

_TRACE_BLOCKS = 256
_ROUNDING = {torch.float32: 1e-4, torch.float64: 1e-9}  # relative error of mean losses that no sampling removes
_ROUNDING_OF_DROP = 1e-6


@takes_settings
def llc(
    land: Landscape | LanguageModel | Posterior,
    *,
    per_layer: bool = False,
    progress: bool = True,
    **settings: Unpack[Sampling],
) -> LearningCoefficient:
    """Local learning coefficient λ̂ = nβ (E[L_n(w)] − L_n(w*)) (Lau et al. 2023, https://arxiv.org/abs/2308.12108).

    The mean is over the local posterior ∝ exp(−nβ L_n(w) − (γ/2)‖w − w*‖²). On a quadratic basin λ̂ is half the soft
    rank of the Hessian, ½ Tr H(H + (γ/nβ) I)⁻¹; it is a function of the resolution (nβ, γ), and both are reported.

    Nothing needs to be set.

    Args:
        land: the landscape, or its `posterior`, whose nβ and γ are then those of λ̂; or a `LanguageModel`, whose nβ
            counts its units.
        per_layer: also λ̂ of each layer, all other weights held at w*, at the same nβ, γ and seed, for half the budget:
            the layers of a transformer, or else the modules with parameters of their own. They are in `layers`, and in
            the table and the figure. They do not add up to the whole: what one layer could undo of another counts in
            both.
        progress: show a bar when it takes over a second.
        settings: `nbeta` (n/log n unless given), `gamma`, `sampler`, `budget` and all others of `posterior`.

    Returns:
        An `Estimate`; `diagnostics` holds R̂, ESS, the virial ratio E[δ·∇U]/d (1 in equilibrium), the heat capacity
        (nβ)²Var L, the gradient term, the slope ∂λ̂/∂log γ = −(γ/2) nβ Cov(L, ‖δ‖²), and the chains' traces.

    Examples:
        >>> import torch, basinscope as bs
        >>> x = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
        >>> net = torch.nn.Linear(3, 1, bias=False)
        >>> _ = torch.nn.init.ones_(net.weight)
        >>> est = bs.llc(bs.Landscape(net, "mse", (x, x.sum(1, keepdim=True))), seed=0)
        >>> abs(est.value - 1.5) < 0.15, est.stderr < 0.05
        (True, True)
        >>> list(bs.llc(bs.Landscape(net, "mse", (x, x.sum(1, keepdim=True))), seed=0, per_layer=True).layers)
        ['weight']
    """
    with tracked("llc", progress) as report:
        if per_layer:
            return with_layers(land, llc, settings, report)
        if walks_lean(land, settings):
            return lean_llc(cast(Landscape | LanguageModel, land), settings, report)
        post = posterior_of(land, settings, report)
    return estimate_of(post.sampler, post.outcome)


def estimate_of(sampler: Sampler, outcome: Outcome) -> LearningCoefficient:
    """The estimate with its verdict, from a finished run."""
    value = outcome.at.nbeta * outcome.excess
    drop = outcome.main.target.drop
    rounding = _ROUNDING[sampler.land.dtype] * abs(value + drop), _ROUNDING_OF_DROP * drop
    stderr = math.hypot(outcome.at.nbeta * outcome.stderr, *rounding)
    diagnostics = _diagnostics(sampler, outcome)
    if math.isfinite(value):
        curvature = sampler.quadratic if outcome.sampler in CALIBRATED else None
        diagnostics |= _curvature(curvature, outcome)
        diagnostics |= split(sampler, outcome, stderr)
        diagnostics["at_minimum"] = at_minimum(value, diagnostics)
        diagnostics["note"] = note(outcome, curvature, diagnostics) if diagnostics["at_minimum"] == "no" else ""
    checks = llc_checks(value, stderr, diagnostics)
    return LearningCoefficient("llc", value, stderr, checks, diagnostics, outcome.freedom)


def _diagnostics(sampler: Sampler, outcome: Outcome) -> dict[str, Any]:
    at, land, run = outcome.at, sampler.land, outcome.main
    diagnostics: dict[str, Any] = {
        "nbeta": at.nbeta,
        "gamma": at.gamma,
        "n": land.n,
        "dimension": land.dimension,
        "loss": float(sampler.losses.base.mean()),
        "sampler": outcome.sampler,
        "chains": len(run.alive) - outcome.diverged,
        "started": len(run.alive),
        "diverged": outcome.diverged,
        "draws": run.trace.draws,
        "burn_in": int(run.discard * run.trace.draws),
        "step_sizes": [each.step_size for each in outcome.runs],
        "batch_size": outcome.batch_size,
        "persistence": None if outcome.pace is None else outcome.pace.persistence,
        "control_variates": outcome.control_variates,
        "rtol": sampler.settings.rtol,
        "interrupted": outcome.interrupted,
        "exhausted": outcome.exhausted,
        "batched": sampler.losses.batched,
        "seconds": outcome.seconds,
        "least_seconds": None if outcome.plan is None else outcome.plan.least_seconds,
        "schedule": None if outcome.schedule is None else outcome.schedule.to_dict(),
        **run.settings,
    }
    if run.alive.sum() < 2:
        return diagnostics
    summary, virial = run.summary(), run.summary("virial")
    slope, slope_stderr = run.slope_in_gamma()
    diagnostics |= {
        "rhat": outcome.rhat,
        "virial_correction": run.profits(),
        "ess": summary.ess,
        "acceptance": run.summary("acceptance").mean,
        "virial": virial.mean / land.dimension,
        "virial_stderr": virial.stderr / land.dimension,
        "drift": at.nbeta * run.drift(run.correction()),
        "distance": math.sqrt(run.summary("distance").mean),
        "heat_capacity": at.nbeta**2 * summary.variance if outcome.batch_size is None else None,
        "by_step_size": [
            (each.step_size, at.nbeta * each.summary().mean) for each in outcome.runs if each.alive.sum() > 1
        ],
        "slope": outcome.slope,
        "gamma_slope": at.nbeta * slope,
        "gamma_slope_stderr": at.nbeta * slope_stderr,
        "trace": _trace(at.nbeta, outcome),
        "gradient_mismatch": mismatch(run.target, run.position[run.alive.nonzero()[0]], sampler.settings.seed),
    }
    return diagnostics


def _curvature(curvature: Quadratic | None, outcome: Outcome) -> dict[str, Any]:
    """What curvature at w* says."""
    if curvature is None:
        return dict.fromkeys(("largest_eigenvalue", "smallest_eigenvalue", "half_soft_rank", "rounding"))
    largest = float(curvature.values[0])
    condition = 1 + outcome.at.nbeta * max(largest, 0.0) / outcome.at.gamma
    return {
        "largest_eigenvalue": largest,
        "rounding": torch.finfo(outcome.runs[0].position.dtype).eps * math.sqrt(condition),
        "smallest_eigenvalue": curvature.least,
        "half_soft_rank": curvature.basin(outcome.at) if curvature.complete else None,
    }


def _trace(nbeta: float, outcome: Outcome) -> np.ndarray[Any, Any]:
    """nβ·excess of the living chains, (chains, at most 256 or so blocks)."""
    rows = outcome.main.trace.values("excess", chains=outcome.main.alive)
    stride = max(1, rows.shape[1] // _TRACE_BLOCKS)
    whole = rows.shape[1] // stride * stride
    return nbeta * rows[:, :whole].reshape(len(rows), -1, stride).mean(2)
