"""What every criterion says of a candidate, and how well it predicts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from studies.common.collapsed import Collapsed

from .lattices import SHIFTS
from .mixtures import MixtureTruth
from .mixtures import candidate as mixture
from .quadrature import integrated
from .ranks import sampled
from .sums import Rung, Sums, sums
from .truths import Candidates, Truth

Array = NDArray[np.float64]

_STARTS = 12
_NOISE_POINTS = {1: 9, 4: 3}  # Gauss–Hermite points per output, by the number of outputs


def row(
    truth: Truth | MixtureTruth, size: int, n: int, gamma: float, particles: int, repeats: int, seed: int
) -> dict[str, float]:
    """Criteria in nats (n times a loss, or a free energy), n times the Bayes error, and their numerical errors.

    Every number that comes from a sampler or a lattice is the mean over independent repeats, or over two lattices;
    `NAME_stderr` is the standard error of that mean.
    """
    if isinstance(truth, MixtureTruth):
        fit, tried = mixture(truth, size, n, gamma, seed)
    else:
        fit, tried = regression(truth, size, n, gamma, particles, repeats, seed)
    values = {name: np.array([each[name] for each in tried]) for name in tried[0]}
    errors = {
        f"{name}_stderr": float(each.std(ddof=1) / math.sqrt(len(each))) if len(each) > 1 else 0.0
        for name, each in values.items()
    }
    return {**fit, **{name: float(each.mean()) for name, each in values.items()}, **errors}


def regression(
    truth: Truth, size: int, n: int, gamma: float, particles: int, repeats: int, seed: int
) -> tuple[dict[str, float], list[dict[str, float]]]:
    """The criteria at the fit of a regression, and what every sampler or lattice says of the others."""
    at, y = truth.draw(n, seed)
    data = sums(truth, at, y, gamma)
    x = truth.places[at]
    tried = []
    for warm, cold in posteriors(truth.candidates, size, data, particles, repeats, [seed, n, size]):
        criteria = {"wbic": warm.mean_loss, "free_energy": -cold.log_evidence, **predictive(cold.posterior, x, y)}
        tried.append(criteria | {"error": n * bayes_error(truth, cold.posterior)})
    weights = fitted(truth.candidates, size, data, cold.posterior)
    loss, penalty = maximum(truth.candidates, size, weights, x, y, gamma)
    count = truth.candidates.parameters(size, y.shape[1])
    return {"aic": loss + count, "tic": loss + penalty, "bic": loss + 0.5 * count * math.log(n)}, tried


def posteriors(
    candidates: Candidates, size: int, data: Sums, particles: int, repeats: int, seed: Sequence[int]
) -> Iterator[list[Rung]]:
    """The posteriors at β = 1/log n and 1: from independent samplers, from both lattices, or in closed form."""
    stops = (1 / math.log(data.counts.sum()), 1.0)
    if candidates.bilinear:
        for number in range(repeats):
            yield sampled(candidates, size, data, stops, particles, np.random.default_rng([*seed, number]))
    else:
        for shift in SHIFTS if candidates.inner else SHIFTS[:1]:
            yield integrated(candidates, size, data, stops, shift)


def predictive(posterior: Collapsed, x: Array, y: Array) -> dict[str, float]:
    """WAIC and leave-one-out, n times the loss."""
    trained = -float(posterior.log_mean_power(1.0, x, y).sum())
    return {
        "waic": trained + float(posterior.log_moments(x, y)[1].sum()),
        "loo": float(posterior.log_mean_power(-1.0, x, y).sum()),
    }


def bayes_error(truth: Truth, posterior: Collapsed) -> float:
    """Kullback–Leibler divergence from the truth to the prediction: a sum over places, Gauss–Hermite in the noise."""
    outputs = truth.values.shape[1]
    points, weights = np.polynomial.hermite_e.hermegauss(_NOISE_POINTS[outputs])
    noise = np.array(list(itertools.product(points, repeat=outputs)))
    shares = np.array(list(itertools.product(weights / weights.sum(), repeat=outputs))).prod(1)
    x, noises = np.repeat(truth.places, len(noise), axis=0), np.tile(noise, (len(truth.places), 1))
    y = np.repeat(truth.values, len(noise), axis=0) + noises
    log_truth = -0.5 * (noises**2).sum(1) - 0.5 * outputs * math.log(2 * math.pi)
    return float(np.tile(shares, len(truth.places)) @ (log_truth - posterior.log_mean_power(1.0, x, y))) / len(
        truth.places
    )


def fitted(candidates: Candidates, size: int, data: Sums, posterior: Collapsed) -> tuple[Array, Array]:
    """Inner and outer weights of the highest posterior density, by least squares from the likeliest particles."""
    best = np.argsort(-posterior.gaussians.log_evidence)[:_STARTS]
    roots = np.sqrt(np.where(data.counts > 0, data.counts, 1))[:, None]
    targets = data.totals / roots
    outputs, inner = targets.shape[1], candidates.inner
    width = size * inner

    def parts(weights: Array) -> tuple[Array, Array]:
        return weights[:width].reshape(size, inner), weights[width:].reshape(size, outputs)

    def residuals(weights: Array) -> Array:
        node, outer = parts(weights)
        values = candidates.features(node[None], data.x)[0] @ outer
        return np.concatenate([((values * data.counts[:, None]) / roots - targets).ravel(), data.gamma**0.5 * weights])

    def jacobian(weights: Array) -> Array:
        slopes = gradients(candidates, *parts(weights), data.x) * (data.counts[:, None] / roots)[..., None]
        return np.concatenate([slopes.reshape(-1, len(weights)), data.gamma**0.5 * np.eye(len(weights))])

    starts = [np.concatenate([posterior.nodes[i].ravel(), posterior.gaussians.mean[i].ravel()]) for i in best]
    tried = [least_squares(residuals, start, jacobian, method="lm") for start in starts]
    return parts(min(tried, key=lambda each: each.cost).x)


def gradients(candidates: Candidates, node: Array, outer: Array, x: Array) -> Array:
    """Derivatives of the outputs in all weights, inner ones first: (n, outputs, d)."""
    phi = candidates.features(node[None], x)[0]
    outputs = outer.shape[1]
    by_inner = candidates.slopes(node, outer, x).reshape(len(x), outputs, -1)
    by_outer = np.einsum("nh,kj->nkhj", phi, np.eye(outputs)).reshape(len(x), outputs, -1)
    return np.concatenate([by_inner, by_outer], axis=2)


def maximum(
    candidates: Candidates, size: int, weights: tuple[Array, Array], x: Array, y: Array, gamma: float
) -> tuple[float, float]:
    """nL_n at the fit, and TIC's penalty Tr(C H⁻¹) with H the Fisher matrix plus the prior's precision."""
    node, outer = weights
    residual = y - candidates.features(node[None], x)[0] @ outer
    slopes = gradients(candidates, node, outer, x)
    each = np.einsum("nk,nkd->nd", residual, slopes)
    fisher = np.einsum("nkd,nke->de", slopes, slopes) + gamma * np.eye(slopes.shape[2])
    loss = 0.5 * float((residual**2).sum()) + 0.5 * y.size * math.log(2 * math.pi)
    return loss, float(np.trace(np.linalg.solve(fisher, each.T @ each)))
