"""Mixtures of normals as candidates: what every criterion says of a number of components, and how well it predicts.

Observations are rounded to finitely many places x_m: a component c has the probabilities exp(−(x_m − c)²/2σ²)/Z(c). The
components of a mixture weigh the same, and their means c_k are N(0, 1/γ) a priori, so that a posterior is a sum over
unordered sets of means. Two components make a truth that four contain, in pairs, and three do not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp

from studies.common.collapsed import NEGLIGIBLE

from .lattices import SHIFTS, unordered

Array = NDArray[np.float64]

PLACES = np.linspace(-4.0, 4.0, 25)
SIGMA = 0.5
STEPS = {1: 0.3, 2: 0.7, 3: 1.5, 4: 2.0}  # between lattice points, over the root of nβ
_WIDEST = 0.2  # step
_STARTS = 4


@dataclass(frozen=True)
class MixtureTruth:
    """A mixture to learn from.

    Attributes:
        title: for tables.
        means: of its components.
    """

    title: str
    means: tuple[float, ...]

    @property
    def size(self) -> int:
        """Number of components."""
        return len(self.means)

    @property
    def probabilities(self) -> Array:
        """Of the places."""
        return np.asarray(components(np.array(self.means)).mean(0), dtype=np.float64)

    def draw(self, n: int, seed: int) -> Array:
        """How many of n observations fall on each place."""
        return np.random.default_rng([seed, n]).multinomial(n, self.probabilities).astype(float)


def components(means: Array) -> Array:
    """Probabilities of the places under components with these means: (means, places)."""
    parts = np.exp(-0.5 * ((PLACES - means[:, None]) / SIGMA) ** 2)
    return np.asarray(parts / parts.sum(1, keepdims=True), dtype=np.float64)


@dataclass(frozen=True)
class Posterior:
    """Mixtures on a lattice of their means.

    Attributes:
        means: (G, size).
        log_probabilities: (G, places).
        weights: (G,), normalized.
        log_evidence: log ∫ p(y|c)^β φ(c) dc.
    """

    means: Array
    log_probabilities: Array
    weights: Array
    log_evidence: float

    def mean_loss(self, counts: Array) -> float:
        """E[nL_n]."""
        return -float(self.weights @ self.log_probabilities @ counts)


def integrated(size: int, counts: Array, beta: float, gamma: float, shift: float) -> Posterior:
    """The posterior at inverse temperature β. The lattice is finer, and reaches less far, the more the data say."""
    root = math.sqrt(counts.sum() * beta)
    step = min(_WIDEST, STEPS[size] / root)
    reach = min(5.0 / math.sqrt(gamma), 1.5 + 12 / root)
    points = np.arange(-reach, reach, step) + shift * step
    weights = step * math.sqrt(gamma / (2 * math.pi)) * np.exp(-0.5 * gamma * points**2)
    sets, log_prior = unordered(weights, size)
    each = components(points) / size
    total = each[sets[:, 0]]
    for column in range(1, size):
        total += each[sets[:, column]]
    log_probabilities = np.log(total)
    log_joint = log_prior + beta * log_probabilities @ counts
    considered = log_joint > log_joint.max() + math.log(NEGLIGIBLE)
    shares = np.exp(log_joint[considered] - logsumexp(log_joint[considered]))
    return Posterior(points[sets[considered]], log_probabilities[considered], shares, float(logsumexp(log_joint)))


def candidate(
    truth: MixtureTruth, size: int, n: int, gamma: float, seed: int
) -> tuple[dict[str, float], list[dict[str, float]]]:
    """The criteria at the fit, and what either lattice says of the others."""
    counts = truth.draw(n, seed)
    tried = []
    for shift in SHIFTS:
        warm, cold = (integrated(size, counts, beta, gamma, shift) for beta in (1 / math.log(n), 1.0))
        evidence = {"wbic": warm.mean_loss(counts), "free_energy": -cold.log_evidence}
        tried.append(evidence | predictive(truth, cold, counts))
    return maximum(fitted(cold, counts, gamma), counts, gamma), tried


def predictive(truth: MixtureTruth, posterior: Posterior, counts: Array) -> dict[str, float]:
    """WAIC, leave-one-out and the Bayes error, n times each: sums over the places."""
    each, weights, true = posterior.log_probabilities, posterior.weights, truth.probabilities
    mean = weights @ each
    predicted = np.log(weights @ np.exp(each))
    left_out = logsumexp(np.log(weights)[:, None] - each, axis=0)
    return {
        "waic": float(counts @ (weights @ (each - mean) ** 2 - predicted)),
        "loo": float(counts @ left_out),
        "error": float(counts.sum() * true @ (np.log(true) - predicted)),
    }


def fitted(posterior: Posterior, counts: Array, gamma: float) -> Array:
    """The means of the highest posterior density, from the likeliest points of the lattice."""
    likely = posterior.log_probabilities @ counts - 0.5 * gamma * (posterior.means**2).sum(1)

    def objective(means: Array) -> tuple[float, Array]:
        value = -float(np.log(components(means).mean(0)) @ counts) + 0.5 * gamma * float(means @ means)
        return value, gamma * means - scores(means).T @ counts

    starts = posterior.means[np.argsort(-likely)[:_STARTS]]
    tried = [minimize(objective, start, jac=True, method="BFGS") for start in starts]
    return np.asarray(min(tried, key=lambda each: each.fun).x, dtype=np.float64)


def scores(means: Array) -> Array:
    """Derivatives of log p(x_m|c) in the c_k: (places, size)."""
    parts = components(means)
    pull = (PLACES - means[:, None]) / SIGMA**2
    centred = pull - (parts * pull).sum(1, keepdims=True)
    return np.asarray((parts / parts.sum(0) * centred).T, dtype=np.float64)


def maximum(means: Array, counts: Array, gamma: float) -> dict[str, float]:
    """AIC, TIC and BIC at the fit."""
    n, size, slopes, mixture = counts.sum(), len(means), scores(means), components(means).mean(0)
    loss = -float(np.log(mixture) @ counts)
    fisher = n * (slopes.T * mixture) @ slopes + gamma * np.eye(size)
    penalty = float(np.trace(np.linalg.solve(fisher, (slopes.T * counts) @ slopes)))
    return {"aic": loss + size, "tic": loss + penalty, "bic": loss + 0.5 * size * math.log(n)}
