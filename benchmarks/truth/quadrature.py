"""The posterior mean of a monomial's loss by quadrature, at any point of its landscape."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

REACH = 9.0  # in standard deviations of the localiser: what lies beyond weighs e⁻⁴⁰


def crossing(
    powers: Sequence[int],
    point: Sequence[float],
    target: float,
    curvature: float,
    nbeta: float,
    gamma: float,
    points: int = 1501,
) -> float:
    """λ_t of K = (c/2)(Π w_i^{k_i} − m)² minus its value at w*, the last power being 1.

    Given the others, whose monomial is p, the last variable w is Gaussian with precision a = tcp² + γ and mean
    (tcpm + γw*)/a. What is left are one or two dimensions: a trapezoidal sum, which converges exponentially for
    analytic integrands, on a sinh grid that is dense around zero, where the valleys meet.
    """
    if powers[-1] != 1 or not 2 <= len(powers) <= 3:
        raise ValueError(f"expected two or three powers, the last one 1: got {tuple(powers)}")
    stiff = nbeta * curvature
    log_weight: NDArray[np.float64] = np.zeros(())
    monomial: NDArray[np.float64] = np.ones(())
    for power, star in zip(powers[:-1], point[:-1], strict=True):
        w, log_jacobian = _grid(star, stiff, gamma, points)
        log_weight = log_weight[..., None] - 0.5 * gamma * (w - star) ** 2 + log_jacobian
        monomial = monomial[..., None] * w**power
    last = point[-1]
    precision = stiff * monomial**2 + gamma
    mean = (stiff * monomial * target + gamma * last) / precision
    # What integrating w out leaves: the Gaussian's volume and the value of the exponent at its mean.
    exponent = 0.5 * stiff * (monomial * mean - target) ** 2 + 0.5 * gamma * (mean - last) ** 2
    log_weight = log_weight - 0.5 * np.log(precision) - exponent
    energy = 0.5 * stiff * ((monomial * mean - target) ** 2 + monomial**2 / precision)
    weight = np.exp(log_weight - log_weight.max())
    star_monomial = np.prod([star**power for star, power in zip(point, powers, strict=True)])
    return float((weight * energy).sum() / weight.sum()) - 0.5 * stiff * float(star_monomial - target) ** 2


def _grid(star: float, stiff: float, gamma: float, points: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Points w = b sinh s that cover the localiser around w*, and log dw/ds."""
    reach = REACH / np.sqrt(gamma)
    finest = min(0.05 * reach, gamma / (3 * np.sqrt(stiff)))  # a valley's width where the other factor is large
    s = np.linspace(np.arcsinh((star - reach) / finest), np.arcsinh((star + reach) / finest), points)
    return finest * np.sinh(s), np.log(finest * np.cosh(s))
