"""Normal crossings: a network whose output is a monomial of its weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor, nn

import basinscope as bs
from basinscope import exact

from .case import Case, Reference, arrays, design, unexplained, weights
from .quadrature import crossing


class Monomial(nn.Module):
    """f(x) = Π w_i^{k_i} · x."""

    def __init__(self, point: Tensor, powers: tuple[int, ...]) -> None:
        super().__init__()
        self.w = nn.Parameter(point)
        self.powers = powers

    def forward(self, x: Tensor) -> Tensor:
        product = torch.ones((), dtype=x.dtype)
        for index, power in enumerate(self.powers):
            product = product * self.w[index] ** power
        return product * x


@dataclass(frozen=True)
class Crossing(Case):
    """y = m·x + noise with m = Π w*_i^{k_i}, so that L_n = (c/2)(Π w_i^{k_i} − m)² + const with c = mean x².

    Attributes:
        powers: k_i. Away from the origin the last one must be 1.
        point: w*; the origin when empty.
        noise: standard deviation of the noise in y, made orthogonal to x.
    """

    powers: tuple[int, ...]
    point: tuple[float, ...] = ()
    n: int = 1000
    noise: float = 1.0
    double: bool = False

    @property
    def name(self) -> str:
        text = "·".join(f"w{i}^{k}" if k > 1 else f"w{i}" for i, k in enumerate(self.powers, 1))
        where = f"at ({', '.join(f'{value:g}' for value in self.point)})" if self.point else "at origin"
        parts = [f"crossing {text} {where}"]
        parts += [f"n {self.n}"] if self.n != 1000 else []
        parts += [] if self.noise else ["noiseless"]
        parts += ["float64"] if self.double else []
        return ", ".join(parts)

    @property
    def star(self) -> tuple[float, ...]:
        return self.point or (0.0,) * len(self.powers)

    def landscape(self) -> bs.Landscape:
        rng = self.rng()
        x = self.cast(design(rng, self.n, [1.0]))
        target = math.prod(value**power for value, power in zip(self.star, self.powers, strict=True))
        y = self.cast(target * x + self.noise * unexplained(rng, x, 1))
        model = Monomial(self.tensor(np.array(self.star)), self.powers)
        return bs.Landscape(model, "mse", (self.tensor(x), self.tensor(y)))

    def coefficient(self) -> Fraction:
        crossing_here = [power for value, power in zip(self.star, self.powers, strict=True) if value == 0]
        return exact.normal_crossing(crossing_here)[0] if crossing_here else exact.regular(1)[0]

    def reference(self, land: bs.Landscape, nbeta: float, gamma: float) -> Reference:
        x, y = arrays(land)
        curvature = float(np.mean(x**2))
        star = weights(land)["w"].tolist()
        if not any(star):
            value = exact.finite.monomial_localized(self.powers, nbeta, gamma, scale=curvature / 2)
        else:
            value = crossing(self.powers, star, float(np.mean(x * y)) / curvature, curvature, nbeta, gamma)
        return Reference(value, 0.0, "quadrature")
