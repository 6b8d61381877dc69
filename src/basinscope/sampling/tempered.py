"""The mean loss over the posterior at one temperature, from the engine or from NUTS."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from ..landscape import Landscape
from ..progress import Report
from .calibration import Resolution
from .chains import ChainLosses
from .diagnostics import summarize
from .local import SAMPLERS, SEEDS, Outcome, Sampler, Settings
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
        drift: of the mean over the last half of the run; NaN where nobody looked (NUTS).
        virial, virial_stderr: the virial ratio E[δ·∇U]/d and its standard error; NaN where nobody looked.
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
    drift: float = math.nan
    virial: float = math.nan
    virial_stderr: float = math.nan


def tempered_means(
    land: Landscape, betas: Sequence[float], gamma: float, settings: Settings, report: Report, *, by_nuts: bool = False
) -> list[TemperedMean]:
    """Sample ∝ exp(−nβ L_n(w) − (γ/2)‖w − w*‖²) at every β as `settings` say, from the coldest on, each from where the
    one before ended; or by NUTS with their chains, draws and seed."""
    coldest_first = sorted(set(betas), reverse=True)
    resolutions = [Resolution(land.n * beta, gamma) for beta in coldest_first]
    if by_nuts:
        seeds = [replace(settings, seed=settings.seed + SEEDS * number) for number in range(len(resolutions))]
        means = [_by_nuts(land, at, each) for at, each in zip(resolutions, seeds, strict=True)]
    else:
        means = [_of(outcome, land) for outcome in Sampler(land, settings).ladder(resolutions, report)]
    means_at = dict(zip(coldest_first, means, strict=True))
    return [means_at[beta] for beta in betas]


def _of(outcome: Outcome, land: Landscape) -> TemperedMean:
    """The mean from chains of the engine."""
    run = outcome.main
    burnt = int(run.discard * run.trace.draws)
    seen = {}
    if run.alive.sum() > 1:
        virial, d = run.summary("virial"), land.dimension
        drift = land.n * run.drift(run.correction())
        seen = {"drift": drift, "virial": virial.mean / d, "virial_stderr": virial.stderr / d}
    return TemperedMean(
        beta=outcome.at.nbeta / land.n,
        mean=land.n * outcome.excess,
        stderr=land.n * outcome.stderr,
        ess=outcome.summary.ess if run.alive.sum() > 1 else math.nan,
        rhat=outcome.rhat,
        chains=int(run.alive.sum()),
        draws=run.trace.draws - burnt,
        warmup=burnt,
        divergences=outcome.diverged,
        sampler=outcome.sampler,
        **seen,
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
