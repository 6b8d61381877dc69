"""The k-gons of the toy model of superposition: where they are, how high their loss is, and λ from the geometry.

The model is f(x) = relu(WᵀWx + b) with two hidden dimensions, inputs are x = μe_i with i uniform and μ uniform on
[0, 1] (Elhage et al. 2022; Chen, Lau, Mendel, Wei and Murfet 2023, https://arxiv.org/abs/2310.06301). At a k-gon the
columns of W for k of the features are the corners of a regular polygon. Each other feature has W_i = 0: either it is
dead, b_i < 0, or it answers with its mean, b_i = 1/(2c), which a plus marks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FEATURES = 6
_DEAD = -1.0  # bias of a dead feature: far from firing, as far as chains reach
_STARTS = {5: (1.2, -0.3), 6: (1.3, -0.6)}  # near the length and bias of the corners; (1, 0) below


@dataclass(frozen=True)
class Kgon:
    """A k-gon among the critical points of the model with six features.

    Attributes:
        name: k, with a plus for every feature that answers with its mean.
        corners: k.
        means: features that answer with their mean; the rest are dead.
        published: the loss that Chen et al. print, as far as it is remembered; nothing is calculated from it.
    """

    name: str
    corners: int
    means: int
    published: float | None = None

    @property
    def dead(self) -> int:
        return FEATURES - self.corners - self.means


KGONS = (
    Kgon("3", 3, 0), Kgon("4", 4, 0), Kgon("4+", 4, 1), Kgon("4++", 4, 2),
    Kgon("5", 5, 0, 0.06874), Kgon("5+", 5, 1, 0.06180), Kgon("6", 6, 0, 0.04819),
)  # fmt: skip
BY_NAME = {kgon.name: kgon for kgon in KGONS}


def coefficient(kgon: Kgon) -> float:
    """λ of a k-gon that is a minimum: half the number of directions in which the loss rises.

    Near each of these minima L − L* is, to leading order, homogeneous of degree 2 and positive outside a flat set, so
    that λ = ½(d − dim of that set), also where the ReLU makes L quadratic on either side of a kink with two different
    curvatures. Of each corner the length and the bias count, and of the angles those that cost anything: none of the
    triangle, whose corners do not see each other, and k − 1 of the others, as the rotation is free. A feature with its
    mean has all three of its directions. Of a dead feature the bias is free. So is its W where the corners have
    negative biases, as from k = 5 on; with b = 0 any W_i ≠ 0 makes a corner fire, and both directions count.

    Examples:
        >>> [(kgon.name, coefficient(kgon)) for kgon in KGONS]
        [('3', 6.0), ('4', 7.5), ('4+', 8.0), ('4++', 8.5), ('5', 7.0), ('5+', 8.5), ('6', 8.5)]
    """
    angles = 0 if kgon.corners == 3 else kgon.corners - 1
    pinned = 2 * kgon.dead if kgon.corners < 5 else 0
    return 0.5 * (2 * kgon.corners + angles + 3 * kgon.means + pinned)


def potential(weights: Array, bias: Array) -> float:
    """E‖f(x) − x‖² over all inputs, in closed form.

    Of output j on input i the pre-activation is aμ + b with a = W_i·W_j. Where it is positive, for μ between two ends
    s and t, its part is ∫(aμ + b − δ_ij μ)² dμ; elsewhere it is ∫(δ_ij μ)² dμ.
    """
    gram = weights.T @ weights
    count = len(bias)
    total = 0.0
    for i in range(count):
        for j in range(count):
            a, b, own = float(gram[i, j]), float(bias[j]), float(i == j)
            low, high = _firing(a, b)
            slope = a - own
            inside = slope**2 * (high**3 - low**3) / 3 + slope * b * (high**2 - low**2) + b**2 * (high - low)
            total += inside + own * (1 - high**3 + low**3) / 3
    return total / count


def _firing(a: float, b: float) -> tuple[float, float]:
    """The part of [0, 1] on which aμ + b > 0."""
    if a == 0:
        return (0.0, 1.0) if b > 0 else (0.0, 0.0)
    edge = min(1.0, max(0.0, -b / a))
    return (edge, 1.0) if a > 0 else (0.0, edge)


def place(kgon: Kgon) -> tuple[Array, Array]:
    """(W, b) of a k-gon, with length and bias of the corners where the loss is lowest."""
    from scipy.optimize import minimize

    def at(length: float, bias: float) -> tuple[Array, Array]:
        angles = 2 * math.pi * np.arange(kgon.corners) / kgon.corners
        weights = np.zeros((2, FEATURES))
        weights[:, : kgon.corners] = length * np.stack([np.cos(angles), np.sin(angles)])
        of_means = np.full(kgon.means, 1 / (2 * FEATURES))
        biases = np.concatenate([np.full(kgon.corners, bias), of_means, np.full(kgon.dead, _DEAD)])
        return weights, biases

    if kgon.corners not in _STARTS:
        return at(1.0, 0.0)  # corners at right angles or more do not see each other: the fit is exact
    options = {"xatol": 1e-12, "fatol": 1e-16, "maxiter": 4000}
    minimum = minimize(lambda p: potential(*at(*p)), _STARTS[kgon.corners], method="Nelder-Mead", options=options)
    return at(*minimum.x)
