"""Deep linear networks: singular landscapes of any size whose posterior can be sampled exactly."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Literal

import numpy as np
from torch import nn

import basinscope as bs
from basinscope import exact

from .case import Array, Case, Reference, arrays, design, least_squares, rotation, unexplained, weights
from .convergence import gibbs_mean
from .gibbs import LinearPosterior

Point = Literal["origin", "balanced", "generic"]
Noise = Literal["none", "unexplained", "fitted"]


@dataclass(frozen=True)
class Network(Case):
    """y = W_L…W_1 x (+ b) + noise at a global minimum.

    Attributes:
        widths: from input to output.
        rank: of the product at w*.
        point: `balanced`: every factor has that rank and the same singular values, the rest is zero, the most singular
            minimum; `generic`: W_1 has that rank, the others are random and full; `origin`: all factors zero.
        noise: `unexplained` by any linear map, so that the planted map stays the minimum; `fitted`: w* is the
            reduced-rank regression on noisy data, which needs rank = the narrowest width.
        condition: of the inputs' second moment Σ, whose largest eigenvalue is 1.
        size: the planted map's singular values lie between size/2 and 2·size.
        bias: an output bias is learned.
    """

    widths: tuple[int, ...]
    rank: int
    point: Point = "balanced"
    noise: Noise = "unexplained"
    condition: float = 1.0
    n: int = 1000
    size: float = 1.0
    bias: bool = False
    double: bool = False

    def __post_init__(self) -> None:
        if (self.point == "origin") and self.rank:
            raise ValueError("the origin has rank 0")
        if self.noise == "fitted" and self.rank != min(self.widths):
            raise ValueError("a fit to noisy data has the largest rank the widths allow")

    @property
    def name(self) -> str:
        parts = [f"network {'-'.join(map(str, self.widths))} rank {self.rank} {self.point}"]
        parts += [] if self.noise == "unexplained" else ["noiseless" if self.noise == "none" else "fitted"]
        parts += [f"condition {self.condition:g}"] if self.condition != 1 else []
        parts += [f"size {self.size:g}"] if self.size != 1 else []
        parts += ["bias"] if self.bias else []
        parts += [f"n {self.n}"] if self.n != 1000 else []
        parts += ["float64"] if self.double else []
        return ", ".join(parts)

    def landscape(self) -> bs.Landscape:
        rng = self.rng()
        inputs, outputs = self.widths[0], self.widths[-1]
        x = self.cast(design(rng, self.n, np.geomspace(1, 1 / self.condition, inputs), centred=self.bias))
        bias = self.cast(rng.standard_normal(outputs)) if self.bias else np.zeros(outputs)
        singular = self.size * np.geomspace(2, 0.5, self.rank) if self.rank > 1 else np.full(self.rank, self.size)
        wanted = rotation(rng, outputs, self.rank) * singular @ rotation(rng, inputs, self.rank).T
        if self.noise == "fitted":
            noise = rng.standard_normal((self.n, outputs))
            y = self.cast(x @ wanted.T + noise - noise.mean(axis=0) + bias)
            factors = [self.cast(factor) for factor in self._factors(rng, _reduced_rank(x, y - bias, self.rank))]
        else:
            factors = [self.cast(factor) for factor in self._factors(rng, wanted)]
            y = x @ _product(factors).T + bias
            if self.noise == "unexplained":
                y = y + unexplained(rng, x, outputs, centred=self.bias)
            y = self.cast(y)
        layers = [nn.Linear(*sizes, bias=False) for sizes in pairwise(self.widths)]
        for layer, factor in zip(layers, factors, strict=True):
            layer.weight = nn.Parameter(self.tensor(factor))
        if self.bias:
            layers[-1].bias = nn.Parameter(self.tensor(bias))
        return bs.Landscape(nn.Sequential(*layers), "mse", (self.tensor(x), self.tensor(y)))

    def _factors(self, rng: np.random.Generator, wanted: Array) -> list[Array]:
        """Factors, input side first, whose product is `wanted`."""
        if self.point == "origin":
            return [np.zeros((rows, columns)) for columns, rows in pairwise(self.widths)]
        u, s, vt = np.linalg.svd(wanted, full_matrices=False)
        u, s, vt = u[:, : self.rank], s[: self.rank], vt[: self.rank]
        depth = len(self.widths) - 1
        if self.point == "balanced":
            bases = [vt.T, *(rotation(rng, width, self.rank) for width in self.widths[1:-1]), u]
            return [upper * s ** (1 / depth) @ lower.T for lower, upper in pairwise(bases)]
        random = [_moderate(rng, rows, columns) for columns, rows in pairwise(self.widths)]
        entry = rotation(rng, self.widths[1], self.rank)
        seen = _product([entry, *random[1:-1]])  # how the last layer sees the input's r directions
        unseen = np.eye(len(seen)) - seen @ np.linalg.pinv(seen)
        first = entry * np.sqrt(s) @ vt
        last = u * np.sqrt(s) @ np.linalg.pinv(seen) + random[-1] @ unseen
        return [first, *random[1:-1], last]

    def coefficient(self) -> Fraction | None:
        outputs, inputs = self.widths[-1], self.widths[0]
        extra = Fraction(outputs, 2) if self.bias else Fraction(0)
        if self.point != "generic" or self.rank == min(self.widths):
            return exact.deep_linear(self.widths, self.rank)[0] + extra
        if len(self.widths) == 3:
            ranks = (min(outputs, self.widths[1]), self.rank)
            return exact.deep_linear_local(self.widths[::-1], self.rank, ranks)[0] + extra
        if min(self.widths[1:]) == outputs:  # W_1 alone reaches every map: a regular point
            return exact.regular(outputs * inputs)[0] + extra
        return None

    def posterior(self, land: bs.Landscape, nbeta: float, gamma: float) -> LinearPosterior:
        x, y = arrays(land)
        star = weights(land)
        factors = tuple(star[f"{index}.weight"] for index in range(len(self.widths) - 1))
        if self.bias:
            y = y - star[f"{len(factors) - 1}.bias"]
        return LinearPosterior(x.T @ x / land.n, y.T @ x / land.n, factors, nbeta, gamma)

    def reference(self, land: bs.Landscape, nbeta: float, gamma: float) -> Reference:
        if self.point == "origin" and len(self.widths) == 3 and min(self.widths) <= 4 and self.condition == 1:
            scale = float(np.mean(arrays(land)[0] ** 2))
            value = exact.finite.matrix_product(*self.widths[::-1], nbeta=nbeta * scale, gamma=gamma)
            found = Reference(value, 0.0, "quadrature")
        else:
            found = gibbs_mean(self.posterior(land, nbeta, gamma), seed=0)
        # Inputs and residuals have mean zero, so that the bias is independent of the weights.
        extra = 0.5 * self.widths[-1] * nbeta / (nbeta + gamma) if self.bias else 0.0
        return Reference(found.value + extra, found.stderr, found.method, found.split_rhat, found.seconds)


def _moderate(rng: np.random.Generator, rows: int, columns: int) -> Array:
    """A random matrix with singular values between ½ and 3/2: products of Gaussian ones are close to singular."""
    rank = min(rows, columns)
    return rotation(rng, rows, rank) * rng.uniform(0.5, 1.5, rank) @ rotation(rng, columns, rank).T


def _product(factors: list[Array]) -> Array:
    product = factors[0]
    for factor in factors[1:]:
        product = factor @ product
    return product


def _reduced_rank(x: Array, y: Array, rank: int) -> Array:
    """The map of given rank with the least squared error: least squares, projected on the leading fitted directions."""
    full = least_squares(x, y).T
    leading: Array = np.linalg.svd(full @ x.T @ x @ full.T)[0][:, :rank]
    return leading @ leading.T @ full
