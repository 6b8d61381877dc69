"""The posterior of a mixture of two normals on a quadrature rule.

log p(x|w) is a smooth function of x: 80 Chebyshev points give it everywhere to rounding. Sums over any number of data
are then products with one vector, and expectations over the posterior are needed at these points alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from studies.common.collapsed import NEGLIGIBLE

Array = NDArray[np.float64]

REACH = 6.5  # data beyond it have probability 1e-10 each
POINTS = 80
_PLACES = np.cos(np.pi * (np.arange(POINTS) + 0.5) / POINTS)


@dataclass(frozen=True)
class Mixtures:
    """A posterior as weighted mixtures.

    Attributes:
        log_density: (nodes, points), at the Chebyshev points.
        log_weights: (nodes,), normalized.
    """

    log_density: Array
    log_weights: Array

    def log_mean_power(self, power: float, x: Array, y: Array) -> Array:
        """log E_w[p(x_i|w)^power] for each observation."""
        return interpolation(x[:, 0]) @ logsumexp(self.log_weights[:, None] + power * self.log_density, axis=0)

    def log_moments(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Mean and variance of log p(x_i|w) over the posterior, for each observation."""
        weights = np.exp(self.log_weights)
        mean = weights @ self.log_density
        variance = weights @ (self.log_density - mean) ** 2
        through = interpolation(x[:, 0])
        return through @ mean, through @ variance


def log_density(nodes: Array, x: Array) -> Array:
    """log of aN(b, 1) + (1 − a)N(c, 1) at x, for nodes (log-odds of a, b, c)."""
    odds, first, second = (each[:, None] for each in nodes.T)
    one = -np.logaddexp(0, -odds) - 0.5 * (x - first) ** 2
    other = -np.logaddexp(0, odds) - 0.5 * (x - second) ** 2
    return np.logaddexp(one, other) - 0.5 * math.log(2 * math.pi)


def interpolation(x: Array) -> Array:
    """The matrix from values at the Chebyshev points to values at x (barycentric formula)."""
    if np.abs(x).max() > REACH:
        raise ValueError(f"data must lie within ±{REACH}, got {np.abs(x).max():.3g} — enlarge REACH and POINTS")
    signs = np.where(np.arange(POINTS) % 2, -1.0, 1.0) * np.sqrt(1 - _PLACES**2)
    gaps = x[:, None] / REACH - _PLACES
    exact = np.abs(gaps) < 1e-14
    shares = signs / np.where(exact, 1.0, gaps)
    shares = np.where(exact.any(1, keepdims=True), exact.astype(float), shares)
    return shares / shares.sum(1, keepdims=True)


def posterior(nodes: Array, log_prior: Array, x: Array, beta: float) -> tuple[Mixtures, Array]:
    """The posterior given data x, and the weights of all nodes."""
    table = log_density(nodes, REACH * _PLACES)
    log_joint = log_prior + beta * table @ interpolation(x[:, 0]).sum(0)
    log_joint -= logsumexp(log_joint)
    considered = log_joint > log_joint.max() + math.log(NEGLIGIBLE)
    return Mixtures(table[considered], log_joint[considered] - logsumexp(log_joint[considered])), np.exp(log_joint)
