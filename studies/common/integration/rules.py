"""Quadrature rules over the weights of the three models, dense where their posteriors are.

Each rule is for a total inverse temperature t = nβ and has `fineness` times as many points per axis as the usual one.
Trapezoidal sums converge exponentially for smooth integrands that vanish at both ends; where the posterior has a ridge
of width 1/√t with slow tails, x = sinh(τ)/√t spreads the points evenly over all its scales.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Rule:
    """Points and weights of an integral over the prior.

    Attributes:
        nodes: (G, parameters).
        log_prior: (G,), log of the weight times the prior's density.
        edge: (G,), whether a node lies at a cut end of the rule, where the posterior must be negligible.
    """

    nodes: Array
    log_prior: Array
    edge: NDArray[np.bool_]


def gauss_hermite(count: int) -> tuple[Array, Array]:
    """Points and weights of expectations over N(0, 1)."""
    points, weights = np.polynomial.hermite_e.hermegauss(count)
    return points, weights / weights.sum()


def mixture(t: float, beta: float, fineness: float = 1.0) -> Rule:
    """Log-odds u, and both means of a mixture aN(b, 1) + (1 − a)N(c, 1), all N(0, 1) a priori.

    In m = ab + (1 − a)c and s = b − c the data decide m to 1/√t and, to leading order, ta²(1 − a)²s⁴. Exchange of the
    parts maps (u, m, s) to (−u, m, −s): half the values of s suffice.
    """
    u, step_u = _middles(-7.5, 7.5, 0.5 / fineness)
    v, step_v = _middles(0, 7, 0.2 / fineness)
    reach = 6 + 4.5 * math.sqrt(beta)
    m, step_m = (each / math.sqrt(t) for each in _middles(-reach, reach, 0.75 / fineness))
    cell = 2 * step_u * step_v * step_m / (2 * math.pi) ** 1.5  # exchange, and the constant of the prior
    u, v, m = (each.ravel() for each in np.meshgrid(u, v, m, indexing="ij"))
    a = 1 / (1 + np.exp(-u))
    scale = 1 / (1 / 1.5 + (t * (a * (1 - a)) ** 2 / 4) ** 0.25)
    s = v * scale
    b, c = m + (1 - a) * s, m - a * s
    log_prior = math.log(cell) + np.log(scale) - 0.5 * (u**2 + b**2 + c**2)
    edge = (v == v.max()) | (np.abs(m) == m.max()) | (np.abs(u) == u.max())
    return Rule(np.stack([u, b, c], 1), log_prior, edge)


def tanh(t: float, beta: float, fineness: float = 1.0) -> Rule:
    """Both inner weights of a₁ tanh(b₁x) + a₂ tanh(b₂x), N(0, 1) a priori, in polar coordinates.

    Signs and exchange leave the angles from 0 to π/4. The posterior has ridges at both ends, where one unit vanishes
    and where both are the same.
    """
    near = 1 / math.sqrt(1 + t)
    log_radius, radial = _legendre(0, math.asinh(7 / near), round(44 * fineness))
    along, angular = _legendre(0, math.asinh(math.pi / 8 / near), round(18 * fineness))
    turn, turned = near * np.sinh(along), angular * near * np.cosh(along)
    angle, angle_weight = np.concatenate([turn, math.pi / 4 - turn]), np.concatenate([turned, turned])
    radius, radius_weight = near * np.sinh(log_radius), radial * near * np.cosh(log_radius)
    r, angle = (each.ravel() for each in np.meshgrid(radius, angle, indexing="ij"))
    weight = np.outer(radius_weight, angle_weight).ravel()
    log_prior = math.log(8 / (2 * math.pi)) + np.log(weight) + np.log(r) - 0.5 * r**2
    return Rule(np.stack([r * np.cos(angle), r * np.sin(angle)], 1), log_prior, r == r.max())


def rank(t: float, beta: float, fineness: float = 1.0) -> Rule:
    """R = (r₁₁, r₁₂; 0, r₂₂) of B = QR, for a 2 × 2 matrix B of N(0, 1) entries: r₁₁ ~ χ₂, r₁₂ ~ N(0, 1), r₂₂ ~ |N|.

    The output is AQRx, and AQ is as normal as A. The first column of the map is 1 in length, the second zero, so that
    r₁₂ is of the order of r₁₁(r₂₂² + 1/t)^½. Where data are few, maps near zero keep a share of the posterior
    and set no scale at all: the rule then reaches further.
    """
    near = 1 / math.sqrt(1 + t)
    depth, step_depth = _middles(-2.8 - 150 / t, 2, 0.25 / fineness)
    far, step_far = _middles(0, math.asinh(6 / near), 0.4 / fineness)
    reach = 7 + 5 * math.sqrt(beta) + 2000 / t
    z, step_z = _middles(-reach, reach, 0.7 / fineness)
    cell = step_depth * step_far * step_z / math.pi  # with both normal densities, one of them folded
    depth, far, z = (each.ravel() for each in np.meshgrid(depth, far, z, indexing="ij"))
    first, last = np.exp(depth), near * np.sinh(far)
    scale = first * np.hypot(last, near)
    cross = z * scale
    log_jacobian = depth + np.log(near * np.cosh(far)) + np.log(scale)
    log_prior = math.log(cell) + stats.chi.logpdf(first, 2) - 0.5 * cross**2 - 0.5 * last**2 + log_jacobian
    edge = (depth == depth.max()) | (depth == depth.min()) | (np.abs(z) == z.max()) | (far == far.max())
    return Rule(np.stack([first, cross, last], 1), log_prior, edge)


def _middles(low: float, high: float, longest: float) -> tuple[Array, float]:
    """Middles of equal steps, at most as long as asked, and their length."""
    count = math.ceil((high - low) / longest)
    step = (high - low) / count
    return low + np.arange(0.5, count, dtype=np.float64) * step, step


def _legendre(low: float, high: float, count: int) -> tuple[Array, Array]:
    points, weights = np.polynomial.legendre.leggauss(count)
    return low + (points + 1) / 2 * (high - low), weights * (high - low) / 2
