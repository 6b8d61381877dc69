"""Linear regression: a quadratic basin with any spectrum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from torch import nn

import basinscope as bs
from basinscope import exact

from .case import Array, Case, Reference, arrays, design, least_squares, weights


@dataclass(frozen=True)
class Regression(Case):
    """y = Wx + noise at the least-squares fit.

    Attributes:
        inputs: number of inputs.
        condition: ratio of the largest to the smallest positive Hessian eigenvalue; they are spaced geometrically.
        top: the largest eigenvalue.
        flat: how many inputs are redundant: that many eigenvalues are zero.
        outputs: number of outputs; every eigenvalue occurs that often.
        size: standard deviation of the weights; 0 puts w* at the origin.
        noise: standard deviation of the noise in y.
    """

    inputs: int
    condition: float
    n: int = 1000
    top: float = 1.0
    flat: int = 0
    outputs: int = 1
    size: float = 1.0
    noise: float = 1.0
    double: bool = False

    @property
    def name(self) -> str:
        parts = [f"quadratic {self.inputs}x{self.outputs} condition {self.condition:g}"]
        parts += [f"top {self.top:g}"] if self.top != 1 else []
        parts += [f"flat {self.flat}"] if self.flat else []
        parts += ["origin"] if self.size == 0 else [f"weights {self.size:g}"] if self.size != 1 else []
        parts += [] if self.noise else ["noiseless"]
        parts += [f"n {self.n}"] if self.n != 1000 else []
        parts += ["float64"] if self.double else []
        return ", ".join(parts)

    def landscape(self) -> bs.Landscape:
        rng = self.rng()
        live = self.inputs - self.flat
        spectrum = self.top * np.geomspace(1, 1 / self.condition, live)
        x = design(rng, self.n, spectrum)
        mixing = np.eye(self.inputs, live)
        if self.flat:  # redundant inputs repeat combinations of the others: halves, which are exact in float32
            mixing[live:] = rng.choice([-0.5, 0.5], size=(self.flat, live)) * (rng.random((self.flat, live)) < 2 / live)
        x = self.cast(self.cast(x) @ mixing.T)
        planted = self.size * rng.standard_normal((self.outputs, self.inputs))
        y = self.cast(x @ planted.T + self.noise * rng.standard_normal((self.n, self.outputs)))
        fitted = planted + least_squares(x, y - x @ planted.T).T
        if self.size == 0:  # take the fit out of the targets instead, so that the origin is the minimum
            y, fitted = self.cast(y - x @ fitted.T), np.zeros_like(fitted)
        model = nn.Linear(self.inputs, self.outputs, bias=False)
        model.weight = nn.Parameter(self.tensor(fitted))
        return bs.Landscape(model, "mse", (self.tensor(x), self.tensor(y)))

    def coefficient(self) -> Fraction:
        return exact.regular((self.inputs - self.flat) * self.outputs)[0]

    def reference(self, land: bs.Landscape, nbeta: float, gamma: float) -> Reference:
        x, y = arrays(land)
        eigenvalues, basis = np.linalg.eigh(x.T @ x / land.n)
        gradient: Array = (weights(land)["weight"] @ x.T - y.T) @ x / land.n @ basis
        value = exact.finite.quadratic(
            np.tile(np.maximum(eigenvalues, 0), self.outputs).tolist(), nbeta, gamma, gradient.ravel().tolist()
        )
        return Reference(value, 0.0, "closed form")


@dataclass(frozen=True)
class Displaced(Regression):
    """The same seen from weights that are off the least-squares fit, as those of an unfinished training are.

    Attributes:
        shift: standard deviation of each weight's displacement, in units of 1/√n.
    """

    shift: float = 3.0

    @property
    def name(self) -> str:
        return f"{super().name}, displaced by {self.shift:g}/√n"

    def landscape(self) -> bs.Landscape:
        land = super().landscape()
        fitted = weights(land)["weight"]
        moved = fitted + self.shift / math.sqrt(self.n) * self.rng().standard_normal(fitted.shape)
        return land.at({"weight": self.tensor(moved)})
