"""What a job measures: volumes at falling levels of the loss, or the mean energy of a density by a sampler."""

from __future__ import annotations

from typing import Any

import torch

import basinscope as bs
from basinscope.sampling.chains import ChainLosses
from basinscope.sampling.clock import Nominal
from basinscope.sampling.diagnostics import summarize
from basinscope.sampling.local import Settings
from basinscope.sampling.nuts import local_density, nuts
from basinscope.sampling.tempered import tempered_means

from .cases import CASES, DENSITIES, function

Row = dict[str, Any]


def volumes(name: str, particles: int, smallest: float, seed: int) -> list[Row]:
    """λ̂ of a landscape from its volumes, γ = 1 and θ known: a row for each level of the ladder."""
    case = CASES[name]
    theta = case.coefficient[1]
    estimate = bs.volume_scaling(
        case.landscape(), gamma=1.0, smallest=smallest, multiplicity=theta, particles=particles, seed=seed,
        progress=False,
    )  # fmt: skip
    columns = ("levels", "log_volume", "log_volume_stderr", "step_stderr")
    shared = {name: estimate.diagnostics[name] for name in ("offset", "fitted_points", "evaluations")}
    shared |= {"llc": estimate.value, "stderr": estimate.stderr, "verdict": estimate.verdict}
    levels = zip(*(estimate.diagnostics[column] for column in columns), strict=True)
    return [{**shared, **dict(zip(columns, level, strict=True))} for level in levels]


def energy(name: str, nbeta: float, acceptance: float, seed: int) -> Row:
    """E[nβ (K − K(0))] of a density by NUTS that aims at an acceptance, or by the engine where that is 0."""
    land = function(DENSITIES[name].residual, 2)
    if not acceptance:
        engine = Settings("hmc", rtol=0.01, budget=Nominal(20), seed=seed)
        mean = tempered_means(land, [nbeta], 1.0, engine, lambda fraction, text: None)[0]
        # n = 1: energies are those of one sample
        return {"mean": mean.mean * nbeta, "stderr": mean.stderr * nbeta, "divergences": mean.divergences}
    losses = ChainLosses(land)
    run = nuts(local_density(losses, nbeta, 1.0), torch.zeros(2), draws=1500, acceptance=acceptance, seed=seed)
    excess = losses.excess(torch.as_tensor(run.draws.reshape(-1, 2))).numpy().reshape(4, -1)
    summary = summarize(nbeta * excess, (nbeta * excess) ** 2, 1)
    return {"mean": summary.mean, "stderr": summary.stderr, "divergences": int(run.divergences.sum())}
