"""The toy model of superposition with two features in one dimension, at a critical point that is known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor, nn
from truth.case import Array, Case, Reference, arrays

import basinscope as bs

REACH = 5.0  # of the grid, in standard deviations of the localiser


class Superposition(nn.Module):
    """f(x) = ReLU(WᵀWx + b) of Elhage et al. (2022), W of shape (dimensions, features)."""

    def __init__(self, w: Tensor, b: Tensor) -> None:
        super().__init__()
        self.w, self.b = nn.Parameter(w), nn.Parameter(b)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x @ self.w.T @ self.w + self.b)


@dataclass(frozen=True)
class Pair(Case):
    """Two features as an antipodal pair, W = (1, −1) and b = 0, on inputs with one feature each: a loss of zero.

    Attributes:
        sizes: how many sizes of a feature there are, evenly spaced up to 1.
    """

    sizes: int = 10
    n: int = 1000
    double: bool = False

    @property
    def name(self) -> str:
        return "superposition, 2 features in 1 dimension, antipodal"

    def landscape(self) -> bs.Landscape:
        sizes = np.arange(1, self.sizes + 1) / self.sizes
        rows = np.concatenate([np.outer(sizes, [1.0, 0.0]), np.outer(sizes, [0.0, 1.0])])
        x = self.tensor(np.tile(rows, (self.n // len(rows), 1)))
        model = Superposition(self.tensor(np.array([[1.0, -1.0]])), self.tensor(np.zeros(2)))
        return bs.Landscape(model, "mse", (x, x))

    def coefficient(self) -> Fraction | None:
        return None  # the loss is not analytic at the kink, on which b = 0 lies

    def reference(self, land: bs.Landscape, nbeta: float, gamma: float) -> Reference:
        x, _ = arrays(land)
        return Reference(pair(np.unique(x[x > 0]), nbeta, gamma), 0.0, "quadrature")


def pair(sizes: Array, nbeta: float, gamma: float, points: int = 301) -> float:
    """λ_t of the antipodal pair by quadrature.

    Output i on inputs s·e_j is ReLU(w_i w_j s + b_i): given both weights the biases are independent, so that the
    integral over four parameters is one over two weights of a product of two over a bias each.
    """
    t, reach = nbeta / (2 * len(sizes)), REACH / math.sqrt(gamma)
    shift = np.linspace(-reach, reach, points)
    pull = 0.5 * gamma * shift**2
    logs, energies = [], []
    for one in 1 + shift:
        other = -1 + shift
        parts = [_bias(own, one * other, sizes, t, shift, pull) for own in (np.full(points, one**2), other**2)]
        logs.append(sum(log for log, _ in parts) - 0.5 * gamma * (one - 1) ** 2 - pull)
        energies.append(sum(energy for _, energy in parts))
    density = np.exp(np.array(logs) - np.max(logs))
    return float((density * np.array(energies)).sum() / density.sum())


def _bias(own: Array, other: Array, sizes: Array, t: float, b: Array, pull: Array) -> tuple[Array, Array]:
    """log of the sum over one bias, and the mean there of its part of nβL: the output's error on inputs with its own
    feature, where s is wanted, and on those with the other, where 0 is."""
    loss = np.zeros((len(own), len(b)))
    for s in sizes:
        loss += np.square(np.maximum(own[:, None] * s + b, 0) - s) + np.square(np.maximum(other[:, None] * s + b, 0))
    loss *= 0.5 * t
    exponent = -loss - pull
    peak = exponent.max(1)
    density = np.exp(exponent - peak[:, None])
    whole = density.sum(1)
    return peak + np.log(whole), (density * loss).sum(1) / whole
