"""The networks and the landscape of the study, with what is known of them."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import basinscope as bs
from basinscope.exact import Coefficient, relu_three_layer

from .gibbs import Units

Array = NDArray[np.float64]

_PER_GROUP = 8  # inputs
_AWAY = 4.0  # of every group's inputs from the origin

GROUPS: dict[str, tuple[int, tuple[tuple[int, int], ...]]] = {
    "1 output, 3 units": (1, ((3, 1),)),
    "1 output, 3 + 2 units": (1, ((3, 1), (2, 1))),
    "2 outputs, 2 + 2 units of rank 2": (2, ((2, 2), (2, 2))),
    "2 outputs, 2 + 3 + 2 units of rank 2": (2, ((2, 2), (3, 2), (2, 2))),
}


def coefficient(name: str) -> Coefficient:
    """(λ, θ) by the additive rule, two inputs."""
    outputs, groups = GROUPS[name]
    return relu_three_layer(2, outputs, groups)


def units(name: str, seed: int) -> Units:
    """A network with these (units, rank) groups: two inputs, in clusters that see only the units of their group."""
    outputs, groups = GROUPS[name]
    rng = np.random.default_rng([seed, len(groups)])
    inner, outer, x, of_unit, of_input = [], [], [], [], []
    for number, (count, rank) in enumerate(groups):
        angle = 2 * math.pi * number / max(3, len(groups))
        centre = np.array([math.cos(angle), math.sin(angle)])
        spread = np.linalg.qr(np.column_stack([np.ones(_PER_GROUP), rng.normal(size=(_PER_GROUP, 2))]))[0][:, 1:]
        x.append(_AWAY * centre + math.sqrt(_PER_GROUP) * 0.5 * spread)
        across = np.array([-centre[1], centre[0]])
        directions = [np.append(centre + tilt * across, -1.5) for tilt in np.linspace(-0.25, 0.25, rank)]
        mixed = np.eye(count, rank) + np.where(np.arange(count)[:, None] < rank, 0, 1 / rank)
        inner.append(mixed @ np.stack(directions))
        outer.append(np.linalg.qr(rng.normal(size=(max(outputs, count), max(outputs, count))))[0][:outputs, :count])
        of_unit += [number] * count
        of_input += [number] * _PER_GROUP
    whole = np.concatenate(x)
    with_constant = np.column_stack([whole, np.ones(len(whole))]).T
    return Units(
        np.concatenate(inner), np.concatenate(outer, axis=1), with_constant, np.array(of_unit), np.array(of_input)
    )


class Valley(nn.Module):
    """The residual r = x y², whose K = x²y⁴/2: λ = ½ on the line x = 0, and ¼ where it meets y = 0."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([0.0, 1.0], dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return (self.w[0] * self.w[1] ** 2).expand(len(x), 1)


def valley() -> bs.Landscape:
    """K at w* = (0, 1)."""
    zero = torch.zeros(1, 1, dtype=torch.float64)
    return bs.Landscape(Valley(), "mse", (zero, zero))


def valley_exact(nbeta: float, gamma: float) -> float:
    """E[nβK] under exp(−nβK − (γ/2)‖w − w*‖²).

    Given y, x is normal with precision nβy⁴ + γ. What is left is an integral over y, with a peak at w* and one
    at y = 0, of width (γ/nβ)^¼.
    """
    width = (gamma / nbeta) ** 0.25
    near = width * np.sinh(np.linspace(-math.asinh(50 / width), math.asinh(50 / width), 200_001))
    about = 1 + np.linspace(-9, 9, 20_001) / math.sqrt(gamma)
    y = np.unique(np.concatenate([near, about]))
    steep = nbeta * y**4
    log_density = -0.5 * np.log(steep + gamma) - 0.5 * gamma * (y - 1) ** 2
    density = np.exp(log_density - log_density.max())
    return float(np.trapezoid(density * 0.5 * steep / (steep + gamma), y) / np.trapezoid(density, y))
