"""Networks of several widths, the data that one of them makes, and the best fit of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import least_squares
from torch import Tensor, nn

from basinscope.landscape import Landscape

Array = NDArray[np.float64]
Data = tuple[Array, Array]

NOISE = 0.5
RIDGE = 0.1  # precision of the weights in the fit, which keeps them finite
_STARTS = 24
_WIDE = 4  # inputs and outputs of the reduced-rank regressions


class Units(nn.Module):
    """y = Σ_j a_j φ(b_j x + c_j) + d with one input and one output.

    Args:
        hidden: number of units.
        activation: φ, `tanh` or `relu`.
    """

    def __init__(self, hidden: int, activation: str) -> None:
        super().__init__()
        self.hidden, self.activation = hidden, activation
        self.weights = nn.Parameter(torch.zeros(3 * hidden + 1, dtype=torch.float64))  # a, b, c, d

    def forward(self, x: Tensor) -> Tensor:
        out, slope, shift, bias = self.weights.split([self.hidden] * 3 + [1])
        inner = x * slope + shift
        return (getattr(torch, self.activation)(inner) * out).sum(-1, keepdim=True) + bias


class Factors(nn.Module):
    """y = A B x with `hidden` units between."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.zeros(hidden, _WIDE, dtype=torch.float64))
        self.second = nn.Parameter(torch.zeros(_WIDE, hidden, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.first.T @ self.second.T


@dataclass(frozen=True)
class Candidates:
    """A family: how its true network draws data, and how a candidate is fitted to them."""

    draw: Callable[[int, int, int], Data]  # samples, true width, seed
    fit: Callable[[int, Data, int], nn.Module]  # width, data, seed


def fitted(family: str, width: int, data: Data, seed: int) -> Landscape:
    """The landscape of the candidate at its best fit, with the noise known.

    Examples:
        >>> fitted("tanh", 2, FAMILIES["tanh"].draw(30, 2, 0), 0).dimension
        7
    """
    net = FAMILIES[family].fit(width, data, seed)
    return Landscape(net, "gaussian", tuple(map(torch.as_tensor, data)), sigma=NOISE)


def _draw_factors(samples: int, width: int, seed: int) -> Data:
    """A random map with `width` singular values 1."""
    rng = np.random.default_rng([seed, samples])
    left, right = (np.linalg.qr(rng.normal(size=(_WIDE, _WIDE)))[0] for _ in range(2))
    x = rng.normal(size=(samples, _WIDE))
    return x, x @ left[:, :width] @ right[:width] + NOISE * rng.normal(size=(samples, _WIDE))


def _fit_factors(width: int, data: Data, seed: int) -> nn.Module:
    """The minimum in closed form: least squares, projected on the leading directions of the fitted values."""
    x, y = data
    full, *_ = np.linalg.lstsq(x, y, rcond=None)
    _, sizes, directions = np.linalg.svd(x @ full, full_matrices=False)
    kept = directions[:width]
    balance = np.sqrt(sizes[:width] / np.sqrt(len(x)))[:, None]  # both factors equally large
    net = Factors(width)
    with torch.no_grad():
        net.first.copy_(torch.as_tensor((kept @ full.T) / balance))
        net.second.copy_(torch.as_tensor((kept * balance).T))
    return net


def _drawing(activation: str) -> Callable[[int, int, int], Data]:
    """Units that bend at different places of [−2, 2], all with a slope that data can tell from none."""

    def draw(samples: int, width: int, seed: int) -> Data:
        rng = np.random.default_rng([seed, samples])
        places = np.linspace(-1, 1, width) + rng.uniform(-0.2, 0.2, size=width)
        slopes = rng.choice([-1, 1], size=width) * rng.uniform(1.5, 2.5, size=width)
        outs = rng.choice([-1, 1], size=width) * rng.uniform(1.0, 1.5, size=width)
        x = rng.uniform(-2, 2, size=samples)
        weights = np.concatenate([outs, slopes, -slopes * places, [0.0]])
        y = _units(weights, x, activation)[0] + NOISE * rng.normal(size=samples)
        return x[:, None], y[:, None]

    return draw


def _fitting(activation: str) -> Callable[[int, Data, int], nn.Module]:
    """The lowest of many minima of Σ (y − f)²/(2σ²) + (r/2)‖w‖², by Levenberg–Marquardt from random starts."""

    def fit(width: int, data: Data, seed: int) -> nn.Module:
        x, y = data[0][:, 0], data[1][:, 0]
        rng = np.random.default_rng([seed, width])

        def residuals(weights: Array) -> Array:
            return np.concatenate([(_units(weights, x, activation)[0] - y) / NOISE, RIDGE**0.5 * weights])

        def jacobian(weights: Array) -> Array:
            slopes = _units(weights, x, activation)[1] / NOISE
            return np.concatenate([slopes, RIDGE**0.5 * np.eye(len(weights))])

        starts = rng.normal(size=(_STARTS, 3 * width + 1)) * np.r_[np.ones(width), 2 * np.ones(2 * width), 1]
        tried = [least_squares(residuals, start, jacobian, method="lm", max_nfev=300) for start in starts]
        net = Units(width, activation)
        with torch.no_grad():
            net.weights.copy_(torch.as_tensor(min(tried, key=lambda each: each.cost).x))
        return net

    return fit


def _units(weights: Array, x: Array, activation: str) -> tuple[Array, Array]:
    """Outputs (n,) and their derivatives in the weights (n, 3h + 1)."""
    out, slope, shift = np.split(weights[:-1], 3)
    inner = x[:, None] * slope + shift
    if activation == "tanh":
        value = np.tanh(inner)
        steep = 1 - value**2
    else:
        value, steep = np.maximum(inner, 0), (inner > 0).astype(float)
    by_shift = steep * out
    derivatives = np.concatenate([value, by_shift * x[:, None], by_shift, np.ones((len(x), 1))], axis=1)
    return value @ out + weights[-1], derivatives


FAMILIES = {
    "reduced-rank": Candidates(_draw_factors, _fit_factors),
    "tanh": Candidates(_drawing("tanh"), _fitting("tanh")),
    "relu": Candidates(_drawing("relu"), _fitting("relu")),
}
