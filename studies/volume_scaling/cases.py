"""Landscapes without noise at their minimum and their exact exponents; densities and their exact mean energies."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

import basinscope as bs
from basinscope import exact
from studies.common.planted import Bottleneck, Tanh

PLACES = torch.tensor(stats.norm.ppf((np.arange(40) + 0.5) / 40))[:, None]


class Function(nn.Module):
    """A residual r(w), whose half square is K."""

    def __init__(self, residual: Callable[[Tensor], Tensor], dimension: int) -> None:
        super().__init__()
        self.residual = residual
        self.w = nn.Parameter(torch.zeros(dimension, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.residual(self.w).expand(len(x), -1)


def function(residual: Callable[[Tensor], Tensor], dimension: int) -> bs.Landscape:
    """K = ½‖r(w)‖² at w = 0."""
    outputs = len(residual(torch.zeros(dimension, dtype=torch.float64)))
    zeros = torch.zeros(1, outputs, dtype=torch.float64)
    return bs.Landscape(Function(residual, dimension), "mse", (zeros[:, :1], zeros))


def noiseless(net: nn.Module, x: Tensor) -> bs.Landscape:
    """The network's own outputs as targets."""
    with torch.no_grad():
        return bs.Landscape(net, "mse", (x, net(x)))


def _reduced_rank(outputs: int, rank: int) -> bs.Landscape:
    inputs = torch.randn(40, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return noiseless(Bottleneck(2, 2, outputs, rank), torch.linalg.qr(inputs)[0] * math.sqrt(40))


@dataclass(frozen=True)
class Case:
    """A landscape, and its learning coefficient with the multiplicity."""

    landscape: Callable[[], bs.Landscape]
    coefficient: exact.Coefficient


CASES = {
    "regular, 3 parameters": Case(lambda: function(lambda w: w, 3), exact.regular(3)),
    "hyperbola (xy)²": Case(lambda: function(lambda w: w.prod()[None], 2), exact.normal_crossing([1, 1])),
    "cusp (x² − y³)²": Case(lambda: function(lambda w: (w[0] ** 2 - w[1] ** 3)[None], 2), exact.curve_squared(2, 3)),
    "reduced rank 2–2–2, rank 0": Case(lambda: _reduced_rank(2, 0), exact.reduced_rank(2, 2, 2, 0)),
    "reduced rank 2–2–3, rank 1": Case(lambda: _reduced_rank(3, 1), exact.reduced_rank(2, 2, 3, 1)),
    "two tanh units": Case(lambda: noiseless(Tanh(2), PLACES), exact.tanh_one_input(2)),
}


@dataclass(frozen=True)
class Density:
    """exp(−nβ K(w) − ‖w‖²/2) in two dimensions, and E[nβ (K − K(0))] under it."""

    residual: Callable[[Tensor], Tensor]
    energy: Callable[[float], float]


DENSITIES = {
    "hyperbola": Density(lambda w: w.prod()[None], lambda nbeta: exact.finite.hyperbola(nbeta, 1.0)),
    # ½(y − (x² − 1)/2)², whose K at the origin is 1/8, which the samplers subtract.
    "banana": Density(lambda w: (w[1] - 0.5 * (w[0] ** 2 - 1))[None], lambda nbeta: banana(nbeta) - nbeta / 8),
}


def banana(nbeta: float) -> float:
    """E[(nβ/2)(y − m(x))²] under exp(−(nβ/2)(y − m)² − x²/2 − y²/2): given x, y is Gaussian; a sum over a grid of x."""
    x = np.linspace(-9, 9, 20001)
    m = 0.5 * (x**2 - 1)
    shrunk = nbeta / (nbeta + 1)
    weight = np.exp(-0.5 * x**2 - 0.5 * shrunk * m**2)
    energy = 0.5 * nbeta * ((shrunk * m - m) ** 2 + 1 / (nbeta + 1))
    return float((weight * energy).sum() / weight.sum())
