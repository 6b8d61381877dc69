"""E_β[nL_n] at several temperatures: by integration, by the engine, by NUTS; and the slope of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from basinscope.landscape import Landscape
from basinscope.measures.temperature import temperature_regression
from basinscope.sampling.clock import Nominal
from studies.common.collapsed import gaussians
from studies.common.integration.cases import CASES

from .cases import NETWORKS, Network, landscape

Array = NDArray[np.float64]
Row = dict[str, Any]

ENGINE_CHAINS = 8
AMPLE = Nominal(1000)  # seconds, which the draws do not need
_CHUNK = 250  # draws whose features are in memory at a time


def sampled(model: str, samples: int, seed: int, betas: Sequence[float], by_nuts: bool, draws: int) -> list[Row]:
    """A row for each temperature, by the library's own temperature regression, with so many draws of each chain.

    The number of draws is fixed: chains that stop when the excess loss over w* is known would stop at once where w* is
    no minimum. The engine's chains are few and long, so that R̂ can come near 1.
    """
    land, each = landscape(model, samples, seed)
    estimate = temperature_regression(
        land, betas=[beta * each for beta in betas], gamma=1.0, sampler="nuts" if by_nuts else "auto",
        chains=None if by_nuts else ENGINE_CHAINS, draws=draws, budget=AMPLE, seed=1000 * seed, progress=False,
    )  # fmt: skip
    # As for single observations: β smaller and energies larger by one factor, which leaves the slope alone.
    return [
        {
            "beta": point["beta"] / each, "mean": point["mean"] * each, "stderr": point["stderr"] * each,
            "rhat": point["rhat"], "ess": point["ess"], "divergences": point["divergences"],
            "slope": estimate.value, "slope_stderr": estimate.stderr, "r_squared": estimate.diagnostics["r_squared"],
        }
        for point in estimate.diagnostics["points"]
    ]  # fmt: skip


def integrated(model: str, samples: int, seed: int, betas: Sequence[float], draws: int) -> list[Row]:
    """A row for each temperature, by quadrature or, for networks, by weighted draws from the prior."""
    land, each = landscape(model, samples, seed)
    base = float(land.per_sample().sum()) * each
    if model in NETWORKS:
        values = networks(NETWORKS[model], *_data(land), betas, draws, seed)
    else:
        values = np.array([[quadrature(model, *_data(land), each * beta) * each for beta in betas]])
    slopes = [np.polyfit(1 / np.array(betas), own, 1)[0] for own in values]
    mean = values.mean(0)
    explained = np.corrcoef(1 / np.array(betas), mean)[0, 1] ** 2
    halves = len(values) > 1
    shared = {"slope": np.mean(slopes), "slope_stderr": np.ptp(slopes) / 2 if halves else 0.0, "r_squared": explained}
    errors = np.ptp(values, axis=0) / 2 if halves else np.zeros(len(betas))
    return [
        {"beta": beta, "mean": value - base, "stderr": error, **shared}
        for beta, value, error in zip(betas, mean, errors, strict=True)
    ]


def quadrature(model: str, x: Array, y: Array, beta: float) -> float:
    """E_β[nL_n] on the rules of the learning curves."""
    return -float(CASES[model].integrate(x, y, beta, 1.0).log_moments(x, y)[0].sum())


def networks(network: Network, x: Array, y: Array, betas: Sequence[float], draws: int, seed: int) -> Array:
    """E_β[nL_n] at all β, from two independent halves of the draws: (2, temperatures).

    Inner weights are drawn from the prior. Given them the network is linear in its outer weights, which are integrated
    in closed form; what is left of the likelihood^β weights the draws. Temperatures near log n are so warm that many
    draws count.
    """
    rng = np.random.default_rng([seed, draws])
    square, halves = float((y**2).sum()), []
    for _ in range(2):
        grams, crosses = [], []
        for _ in range(-(-draws // (2 * _CHUNK))):
            phi = features(network, rng.normal(size=(_CHUNK, network.hidden, 3)), x)
            grams.append(phi @ phi.transpose(0, 2, 1))
            crosses.append(phi @ y)
        gram, cross = np.concatenate(grams), np.concatenate(crosses)
        given = [gaussians(gram, cross, square, len(x), beta, 1.0, 1.0) for beta in betas]
        halves.append([np.exp(own.log_evidence - logsumexp(own.log_evidence)) @ own.mean_loss for own in given])
    return np.array(halves)


def features(network: Network, inner: Array, x: Array) -> Array:
    """Hidden units and the constant, (G, hidden + 1, n), from inner weights (G, hidden, 3) with the bias last."""
    turned = inner[:, :, :2] @ x.T + inner[:, :, 2:]
    hidden = turned / (1 + np.exp(-turned)) if network.silu else np.maximum(turned, 0)
    return np.concatenate([hidden, np.ones((len(inner), 1, len(x)))], axis=1)


def _data(land: Landscape) -> tuple[Array, Array]:
    return tuple(each.numpy().reshape(land.n, -1) for each in (land.samples.inputs, land.samples.target))
