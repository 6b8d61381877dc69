"""What every landscape with a known answer offers."""

from __future__ import annotations

import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from numpy.typing import NDArray

import basinscope as bs

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Reference:
    """λ_t = E[nβ(L_n(w) − L_n(w*))] under the local posterior.

    Attributes:
        value: λ_t.
        stderr: its standard error; 0 for closed forms and quadrature.
        method: `closed form`, `quadrature` or `gibbs`.
        split_rhat: agreement of the reference chains with each other, 1 where there are none.
        seconds: of processor time it took.
    """

    value: float
    stderr: float
    method: str
    split_rhat: float = 1.0
    seconds: float = 0.0


class Case(ABC):
    """A landscape and its exact answers. Concrete cases are frozen dataclasses: their repr is their definition."""

    n: int
    double: bool

    @property
    @abstractmethod
    def name(self) -> str:
        """Unique and readable: the definition in short."""

    @abstractmethod
    def landscape(self) -> bs.Landscape:
        """The model at w* with its data: the same bits on every call."""

    @abstractmethod
    def coefficient(self) -> Fraction | None:
        """The learning coefficient λ at w*, the limit of λ_t; None where no theorem gives it."""

    @abstractmethod
    def reference(self, land: bs.Landscape, nbeta: float, gamma: float) -> Reference:
        """λ_t from the very tensors the estimator sees, rounded to float32 or not, in double precision."""

    def rng(self) -> np.random.Generator:
        return np.random.default_rng(zlib.crc32(self.name.encode()))

    def cast(self, array: Array) -> Array:
        """The array after a trip through the model's floating-point type."""
        return array if self.double else array.astype(np.float32).astype(np.float64)

    def tensor(self, array: Array) -> torch.Tensor:
        return torch.tensor(array, dtype=torch.float64 if self.double else torch.float32)


def default_resolution(land: bs.Landscape) -> tuple[float, float]:
    """(nβ, γ) that `bs.llc` takes when told nothing: n/log n and d/‖w*‖² (1 at the origin).

    Only to prepare references in advance: the benchmark itself reads the resolution off the estimate.
    """
    square = sum(float(tensor.double().square().sum()) for tensor in land.parameters.values())
    return land.n / math.log(land.n), land.dimension / square if square > 0 else 1.0


def design(rng: np.random.Generator, n: int, spectrum: Sequence[float] | Array, *, centred: bool = False) -> Array:
    """Inputs X (n × k) with XᵀX/n = V diag(spectrum) Vᵀ exactly, V a random rotation."""
    raw = rng.standard_normal((n, len(spectrum)))
    if centred:
        raw -= raw.mean(axis=0)
    white = np.linalg.solve(np.linalg.cholesky(raw.T @ raw / n), raw.T).T
    return white * np.sqrt(spectrum) @ rotation(rng, len(spectrum)).T


def rotation(rng: np.random.Generator, rows: int, columns: int | None = None) -> Array:
    """Orthonormal columns in uniformly random directions."""
    q, r = np.linalg.qr(rng.standard_normal((rows, rows if columns is None else columns)))
    uniform: Array = q * np.sign(np.diagonal(r))  # without the signs LAPACK's convention would favour some directions
    return uniform


def unexplained(rng: np.random.Generator, inputs: Array, outputs: int, *, centred: bool = False) -> Array:
    """Unit noise in the targets that no linear map of the inputs can explain, so that it does not move the minimum."""
    noise = rng.standard_normal((len(inputs), outputs))
    if centred:
        noise -= noise.mean(axis=0)
    return noise - inputs @ least_squares(inputs, noise)


def least_squares(x: Array, y: Array) -> Array:
    """The smallest B that minimises ‖y − xB‖, to rounding.

    The normal equations square the condition number, which solving again for what is left over makes up for; they are
    much cheaper than an SVD of x when n is large.
    """
    values, basis = np.linalg.eigh(x.T @ x)
    live = values > 1e-11 * values[-1]
    inverse = basis[:, live] / values[live] @ basis[:, live].T
    solution: Array = inverse @ (x.T @ y)
    for _ in range(2):
        solution = solution + inverse @ (x.T @ (y - x @ solution))
    return solution


def arrays(land: bs.Landscape) -> tuple[Array, Array]:
    """The landscape's inputs and targets in double precision."""
    return land.samples.inputs.double().numpy(), land.samples.target.double().numpy()


def weights(land: bs.Landscape) -> dict[str, Array]:
    """w* in double precision."""
    return {name: tensor.double().numpy() for name, tensor in land.parameters.items()}
