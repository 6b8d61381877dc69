"""The mean loss over the posterior at one temperature, from the engine or from NUTS."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ..landscape import Landscape
from ..progress import Report
from .calibration import Resolution
from .chains import ChainLosses
from .diagnostics import summarize
from .local import SAMPLERS, Sampler, Settings
from .nuts import local_density, nuts

Array = NDArray[np.float64]

NUTS_DRAWS = 500  # of each chain, after as many of warm-up, unless told otherwise
NUTS_CHAINS = 4
_PIECE = 512  # draws whose losses are computed at once
TEMPERED_SAMPLERS = (*SAMPLERS, "nuts")


@dataclass(frozen=True)
class TemperedMean:
    """E[n(L_n(w) − L_n(w*))] over the local posterior at inverse temperature β.

    Attributes:
        beta: β.
        mean, stderr: the mean and its Monte Carlo standard error, autocorrelation included.
        ess, rhat: effective draws, and split-R̂ between the chains.
        chains, draws, warmup: how much was sampled; of each chain, warm-up left out of `draws`.
        divergences: transitions after warm-up that diverged (NUTS), or chains that did (the engine).
        sampler: which.
    """

    beta: float
    mean: float
    stderr: float
    ess: float
    rhat: float
    chains: int
    draws: int
    warmup: int
    divergences: int
    sampler: str


def tempered_mean(
    land: Landscape, beta: float, gamma: float, settings: Settings, report: Report, *, by_nuts: bool = False
) -> TemperedMean:
    """Sample ∝ exp(−nβ L_n(w) − (γ/2)‖w − w*‖²) as `settings` say, or by NUTS with their chains, draws and seed."""
    at = Resolution(land.n * beta, gamma)
    if by_nuts:
        return _by_nuts(land, at, settings)
    outcome = Sampler(land, settings).run(at, report)
    run = outcome.main
    summary = outcome.summary if run.alive.sum() > 1 else None
    burnt = int(run.discard * run.trace.draws)
    return TemperedMean(
        beta=beta,
        mean=land.n * outcome.excess,
        stderr=land.n * outcome.stderr,
        ess=math.nan if summary is None else summary.ess,
        rhat=outcome.rhat,
        chains=int(run.alive.sum()),
        draws=run.trace.draws - burnt,
        warmup=burnt,
        divergences=outcome.diverged,
        sampler=outcome.sampler,
    )


def _by_nuts(land: Landscape, at: Resolution, settings: Settings) -> TemperedMean:
    losses = ChainLosses(land)
    run = nuts(
        local_density(losses, at.nbeta, at.gamma),
        torch.zeros(losses.dimension),
        draws=settings.draws or NUTS_DRAWS,
        warmup=settings.draws or NUTS_DRAWS,
        chains=settings.chains or NUTS_CHAINS,
        seed=settings.seed,
    )
    chains, draws, d = run.draws.shape
    positions = torch.as_tensor(run.draws.reshape(-1, d)).to(losses.origin)
    excess = torch.cat([losses.excess(piece) for piece in positions.split(_PIECE)])
    values = land.n * excess.cpu().numpy().reshape(chains, draws)
    summary = summarize(values, values**2, width=1)
    return TemperedMean(
        beta=at.nbeta / land.n,
        mean=summary.mean,
        stderr=summary.stderr,
        ess=summary.ess,
        rhat=summary.rhat,
        chains=chains,
        draws=draws,
        warmup=run.warmup,
        divergences=int(run.divergences.sum()),
        sampler="nuts",
    )
