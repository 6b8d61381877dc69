"""Mixtures of normals as candidates: what every criterion says of a number of components, and how well it predicts.

Observations are rounded to finitely many places x_m: component c has the probabilities exp(−(x_m − c)²/2σ²)/Z(c). The
weights are exp(u_k)/Σ exp(u_j). All u_k and c_k are N(0, 1/γ) a priori.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp

from .tempering import Sample, tempered

Array = NDArray[np.float64]

PLACES = np.linspace(-4.0, 4.0, 25)
SIGMA = 0.5
_STARTS = 6


@dataclass(frozen=True)
class MixtureTruth:
    """A mixture with `size` components to learn from.

    Attributes:
        title: for tables.
        weights, means: of its components.
    """

    title: str
    weights: tuple[float, ...]
    means: tuple[float, ...]

    @property
    def size(self) -> int:
        """Number of components."""
        return len(self.means)

    @property
    def probabilities(self) -> Array:
        """Of the places."""
        return np.asarray(np.array(self.weights) @ np.exp(log_components(np.array(self.means))), dtype=np.float64)

    def draw(self, n: int, seed: int) -> Array:
        """How many of n observations fall on each place."""
        return np.random.default_rng([seed, n]).multinomial(n, self.probabilities).astype(float)


def log_components(means: Array) -> Array:
    """log-probabilities of the places under components with such means: (…, places)."""
    squares = -0.5 * ((PLACES - means[..., None]) / SIGMA) ** 2
    return np.asarray(squares - logsumexp(squares, axis=-1, keepdims=True), dtype=np.float64)


def log_probabilities(particles: Array) -> Array:
    """log p(x_m|w) from weights w (G, 2, h), the u_k and the c_k: (G, places)."""
    shares = np.exp(particles[:, 0] - particles[:, 0].max(1, keepdims=True))
    # Within the reach of the prior, no exponent is too small for a float.
    parts = np.exp(-0.5 * ((PLACES - particles[:, 1, :, None]) / SIGMA) ** 2)
    scale = shares / (shares.sum(1, keepdims=True) * parts.sum(2))
    return np.asarray(np.log((scale[:, None] @ parts)[:, 0]), dtype=np.float64)


@dataclass(frozen=True)
class Mixture:
    """Mixtures of one size as particles."""

    size: int
    counts: Array
    gamma: float

    def start(self, particles: int, rng: np.random.Generator) -> Array:
        """Draws from the prior."""
        return rng.normal(size=(particles, 2, self.size)) / math.sqrt(self.gamma)

    def evidence(self, particles: Array) -> Callable[[float], Array]:
        """β ↦ β log p(y|w)."""
        whole = log_probabilities(particles) @ self.counts
        return lambda beta: beta * whole

    def moved(self, particles: Array, beta: float, sweeps: int, rng: np.random.Generator) -> Array:
        """Steps of random-walk Metropolis, of the particles' own spread times a random length.

        Components may be exchanged: they are taken in the order of their means, so that the spread is that of one of
        the many equal modes.
        """
        count, d = len(particles), 2 * self.size
        now, density = particles, self._density(particles, beta)
        for _ in range(sweeps):
            now = np.take_along_axis(now, now[:, 1:].argsort(axis=2).repeat(2, axis=1), axis=2)
            root = np.linalg.cholesky(np.cov(now.reshape(count, d).T) + 1e-8 * np.eye(d))
            length = 2.4 / math.sqrt(d) * np.exp(rng.uniform(-3, 0, size=(count, 1)))
            proposed = now + (length * (rng.normal(size=(count, d)) @ root.T)).reshape(now.shape)
            then = self._density(proposed, beta)
            accepted = np.log(rng.uniform(size=count)) < then - density
            now = np.where(accepted[:, None, None], proposed, now)
            density = np.where(accepted, then, density)
        return now

    def _density(self, particles: Array, beta: float) -> Array:
        """Log of the posterior's density at β, up to a constant."""
        prior = -0.5 * self.gamma * (particles**2).sum((1, 2))
        return np.asarray(prior + self.evidence(particles)(beta), dtype=np.float64)


def repeat(
    truth: MixtureTruth, size: int, counts: Array, gamma: float, particles: int, rng: np.random.Generator
) -> tuple[dict[str, float], Array]:
    """What one sampler says of all criteria that need a posterior, and its particles at β = 1."""
    n = counts.sum()
    warm, cold = tempered(Mixture(size, counts, gamma), (1 / math.log(n), 1.0), particles, rng)
    drawn = np.concatenate(cold.snapshots)
    return {
        "wbic": mean_loss(warm, counts),
        "free_energy": -cold.log_evidence,
        **predictive(truth, drawn, counts),
    }, drawn


def mean_loss(sample: Sample, counts: Array) -> float:
    """E[nL_n]."""
    return -float(np.mean([log_probabilities(each) @ counts for each in sample.snapshots]))


def predictive(truth: MixtureTruth, particles: Array, counts: Array) -> dict[str, float]:
    """WAIC, leave-one-out and the Bayes error, n times each: sums over the places."""
    each = log_probabilities(particles)
    predicted = logsumexp(each, axis=0) - math.log(len(each))
    left_out = logsumexp(-each, axis=0) - math.log(len(each))
    true = truth.probabilities
    return {
        "waic": float(counts @ (each.var(0) - predicted)),
        "loo": float(counts @ left_out),
        "error": float(counts.sum() * true @ (np.log(true) - predicted)),
    }


def fitted(size: int, counts: Array, gamma: float, particles: Array) -> Array:
    """The weights (2, h) of the highest posterior density, from the likeliest particles."""
    likely = log_probabilities(particles) @ counts - 0.5 * gamma * (particles**2).sum((1, 2))

    def objective(flat: Array) -> tuple[float, Array]:
        w = flat.reshape(2, size)
        value = -float(log_probabilities(w[None])[0] @ counts) + 0.5 * gamma * float(flat @ flat)
        return value, gamma * flat - scores(w).T @ counts

    starts = particles[np.argsort(-likely)[:_STARTS]]
    tried = [minimize(objective, start.ravel(), jac=True, method="BFGS") for start in starts]
    return np.asarray(min(tried, key=lambda each: each.fun).x.reshape(2, size), dtype=np.float64)


def scores(w: Array) -> Array:
    """Derivatives of log p(x_m|w) in the u_k and the c_k: (places, 2h)."""
    parts = log_components(w[1])
    shares = np.exp(w[0] - logsumexp(w[0]))
    taken = shares[:, None] * np.exp(parts - log_probabilities(w[None]))
    pull = (PLACES - w[1][:, None]) / SIGMA**2
    centred = pull - (np.exp(parts) * pull).sum(1, keepdims=True)
    return np.concatenate([taken - shares[:, None], taken * centred]).T


def maximum(size: int, w: Array, counts: Array, gamma: float) -> dict[str, float]:
    """AIC, TIC and BIC at the fit; 2h − 1 weights count, as the u_k have a sum that nothing depends on."""
    n, slopes, own = counts.sum(), scores(w), log_probabilities(w[None])[0]
    loss = -float(own @ counts)
    fisher = n * (slopes.T * np.exp(own)) @ slopes + gamma * np.eye(2 * size)
    penalty = float(np.trace(np.linalg.solve(fisher, (slopes.T * counts) @ slopes)))
    free = 2 * size - 1
    return {"aic": loss + free, "tic": loss + penalty, "bic": loss + 0.5 * free * math.log(n)}


def candidate(
    truth: MixtureTruth, size: int, n: int, gamma: float, particles: int, repeats: int, seed: int
) -> tuple[dict[str, float], list[dict[str, float]]]:
    """The criteria at the fit, and what every independent sampler says of the others."""
    counts = truth.draw(n, seed)
    tried = [
        repeat(truth, size, counts, gamma, particles, np.random.default_rng([seed, n, size, number]))
        for number in range(repeats)
    ]
    return maximum(size, fitted(size, counts, gamma, tried[-1][1]), counts, gamma), [each for each, _ in tried]
