"""Posteriors of regressions that are linear in their last weights: nodes for the other weights, Gaussians for these.

y = Aᵀφ_b(x) + σ·noise, with every weight N(0, 1/γ) a priori. Given b, the columns of A are Gaussian a posteriori, also
at inverse temperature β, and their integral is known in closed form. What remains is an integral over b: a weighted sum
over nodes, of a quadrature rule (exact) or of a sampler.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

Array = NDArray[np.float64]
Features = Callable[[Array, Array], Array]  # (nodes, …) and (n, inputs) to (nodes, n, h)

NEGLIGIBLE = 1e-11  # nodes of less weight than this share of the largest are left out
_CHUNK = 4_000_000  # numbers in memory at a time


@dataclass(frozen=True)
class Gaussians:
    """The posterior of A given each node b.

    Attributes:
        mean: (nodes, h, outputs).
        covariance: (nodes, h, h), the same for every output.
        log_evidence: (nodes,), log ∫ p(y|x, A, b)^β φ(A) dA.
        mean_loss: (nodes,), E[nL_n] over A.
    """

    mean: Array
    covariance: Array
    log_evidence: Array
    mean_loss: Array


def gaussians(gram: Array, cross: Array, square: float, n: int, beta: float, gamma: float, sigma: float) -> Gaussians:
    """The posteriors of A from sums over the data.

    Args:
        gram: (nodes, h, h), Σ φφᵀ.
        cross: (nodes, h, outputs), Σ φyᵀ.
        square: Σ |y|².
        n: number of samples.
        beta: inverse temperature.
        gamma: precision of the prior.
        sigma: of the noise.
    """
    width, outputs = cross.shape[-2:]
    scale = beta / sigma**2
    covariance = np.asarray(np.linalg.inv(scale * gram + gamma * np.eye(width)), dtype=np.float64)
    mean = scale * covariance @ cross
    constant = n * outputs * 0.5 * math.log(2 * math.pi * sigma**2)
    explained = np.einsum("ghk,ghk->g", cross, mean)
    determinant = np.linalg.slogdet(covariance)[1] + width * math.log(gamma)
    residual = square - 2 * explained + np.einsum("ghk,ghk->g", mean, gram @ mean)
    spread = outputs * np.einsum("gij,gji->g", gram, covariance)
    return Gaussians(
        mean,
        covariance,
        0.5 * outputs * determinant - 0.5 * scale * (square - explained) - beta * constant,
        constant + 0.5 * (residual + spread) / sigma**2,
    )


@dataclass(frozen=True)
class Collapsed:
    """A posterior as weighted nodes with a Gaussian each.

    Attributes:
        features: φ_b(x) of all nodes at all inputs.
        nodes: (nodes, …), the weights b.
        log_weights: (nodes,), normalized.
        gaussians: of A.
        sigma: of the noise.
    """

    features: Features
    nodes: Array
    log_weights: Array
    gaussians: Gaussians
    sigma: float

    def log_mean_power(self, power: float, x: Array, y: Array) -> Array:
        """log E_w[p(y_i|x_i, w)^power] for each observation; −∞ < power, and what it integrates must exist."""
        outputs = y.shape[1]
        parts = []
        for mean, variance, targets in self._predicted(x, y):
            spread = 1 + power * variance / self.sigma**2
            square = ((targets - mean) ** 2).sum(-1) / self.sigma**2
            parts.append(logsumexp(
                self.log_weights[:, None] - 0.5 * (outputs * np.log(spread) + power * square / spread), axis=0
            ))  # fmt: skip
        return np.concatenate(parts) - power * self._constant(outputs)

    def log_moments(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Mean and variance of log p(y_i|x_i, w) over the posterior, for each observation."""
        weights, outputs = np.exp(self.log_weights), y.shape[1]
        means, variances = [], []
        for mean, variance, targets in self._predicted(x, y):
            square = ((targets - mean) ** 2).sum(-1) / self.sigma**2
            noise = variance / self.sigma**2
            each = -0.5 * (square + outputs * noise)
            average = weights @ each
            within = 0.5 * outputs * noise**2 + noise * square
            means.append(average)
            variances.append(weights @ (within + (each - average) ** 2))
        return np.concatenate(means) - self._constant(outputs), np.concatenate(variances)

    def mean_loss(self) -> float:
        """E_w[nL_n]."""
        return float(np.exp(self.log_weights) @ self.gaussians.mean_loss)

    def _constant(self, outputs: int) -> float:
        return 0.5 * outputs * math.log(2 * math.pi * self.sigma**2)

    def _predicted(self, x: Array, y: Array) -> Iterator[tuple[Array, Array, Array]]:
        """Mean (nodes, m, outputs) and variance (nodes, m) of the regression at some observations, and their y.

        Neighbours with the same x share them, which saves most of the work where data are in the order of few places.
        """
        size = max(1, _CHUNK // (len(self.nodes) * (self.gaussians.mean.shape[1] + y.shape[1])))
        for first in range(0, len(x), size):
            rows = x[first : first + size]
            new = np.append(True, (rows[1:] != rows[:-1]).any(1))
            phi, at = self.features(self.nodes, rows[new]), np.cumsum(new) - 1
            variance = np.einsum("gnh,gnh->gn", phi @ self.gaussians.covariance, phi)
            mean = phi @ self.gaussians.mean
            yield (mean, variance, y[first : first + size]) if new.all() else (
                mean[:, at], variance[:, at], y[first : first + size]
            )  # fmt: skip


def collapsed(
    features: Features, nodes: Array, log_prior: Array, given: Gaussians, sigma: float
) -> tuple[Collapsed, float, Array]:
    """The posterior on nodes of a quadrature rule, the log of the integral, and the weights of all nodes.

    Args:
        features: φ_b(x).
        nodes: (nodes, …).
        log_prior: (nodes,), log of the rule's weight times the prior's density.
        given: posteriors of A at the nodes.
        sigma: of the noise.
    """
    log_joint = log_prior + given.log_evidence
    total = float(logsumexp(log_joint))
    likely = log_joint > log_joint.max() + math.log(NEGLIGIBLE)
    parts = (given.mean, given.covariance, given.log_evidence, given.mean_loss)
    posteriors = Gaussians(*(part[likely] for part in parts))
    weights = log_joint[likely] - logsumexp(log_joint[likely])
    return Collapsed(features, nodes[likely], weights, posteriors, sigma), total, np.exp(log_joint - total)
