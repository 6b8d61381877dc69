"""What a job measures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

import basinscope as bs
from basinscope.exact import deep_linear
from basinscope.measures.planting import plant

from . import gibbs
from .cases import coefficient, units, valley, valley_exact

Row = dict[str, Any]


def depth(
    width: int, rank: int, layers: int, ladder: Sequence[float], chains: int, sweeps: int, seed: int
) -> list[Row]:
    """λ_T of a deep linear network at every T of the ladder, by Gibbs sampling, γ = 1."""
    widths = [width] * (layers + 1)
    exact, theta = deep_linear(widths, rank)
    sweep = gibbs.linear(widths, rank, 1.0, chains, np.random.default_rng([seed, layers]))
    rungs = gibbs.climbed(sweep, ladder, sweeps)
    shared = {"exact": float(exact), "multiplicity": theta, "parameters": layers * width**2}
    return [{**shared, "t": rung.t, "llc": rung.mean, "stderr": rung.stderr} for rung in rungs]


def depth_by_engine(width: int, rank: int, layers: int, t: float, budget: float, seed: int) -> Row:
    """The same at one T by `bs.llc`."""
    planted = plant([width] * (layers + 1), rank, 4 * width, noise=0.0, seed=seed, dtype=torch.float64)
    estimate = bs.llc(planted.land, nbeta=t, gamma=1.0, rtol=0.01, budget=bs.Nominal(budget), seed=seed, progress=False)
    return {"t": t, "llc": estimate.value, "stderr": estimate.stderr, "verdict": estimate.verdict}


def additive(name: str, gamma: float, ladder: Sequence[float], chains: int, sweeps: int, seed: int) -> list[Row]:
    """λ_T of a ReLU network at every T, in units of γ, of the ladder."""
    exact, theta = coefficient(name)
    network = units(name, seed)
    sweep = gibbs.relu(network, gamma, chains, np.random.default_rng([seed, 1]))
    rungs = gibbs.climbed(sweep, [t * gamma for t in ladder], sweeps)
    shared = {"exact": float(exact), "multiplicity": theta, "parameters": network.inner.size + network.outer.size}
    return [{**shared, "t": rung.t / gamma, "llc": rung.mean, "stderr": rung.stderr} for rung in rungs]


def resolved(nbeta: float, gamma: float, budget: float, seed: int) -> Row:
    """λ̂ of the valley at one γ by `bs.llc`, beside the integral."""
    land, seconds = valley(), bs.Nominal(budget)
    estimate = bs.llc(land, nbeta=nbeta, gamma=gamma, rtol=0.02, budget=seconds, seed=seed, progress=False)
    exact = valley_exact(nbeta, gamma)
    return {"exact": exact, "llc": estimate.value, "stderr": estimate.stderr, "verdict": estimate.verdict}
