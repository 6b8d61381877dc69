"""Quadratic forms zᵀ f(A) z between two bounds: Lanczos quadrature with Gauss and Gauss–Radau rules.

The m Ritz values θ_j of a Lanczos run from z, with weights ‖z‖² times the squares of the first entries of the
eigenvectors of its tridiagonal matrix T, are the nodes and weights of the Gauss rule for zᵀ f(A) z. The Gauss–Radau
rule has one node more, placed at the left of the spectrum. For many functions the two err in opposite directions, so
that the value lies between them (Golub and Meurant, *Matrices, Moments and Quadrature with Applications*, 2010).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .lanczos import Tridiagonal


@dataclass(frozen=True)
class Nodes:
    """The two quadrature rules of P start vectors, each as nodes and weights (P, m); the weights add up to ‖z‖²."""

    gauss: tuple[Tensor, Tensor]
    radau: tuple[Tensor, Tensor]


@dataclass(frozen=True)
class SpectrumEnds:
    """The ends of the spectrum as Ritz values show them, from inside.

    Attributes:
        largest: the largest absolute value.
        smallest: the smallest Ritz value; an eigenvalue lies within `residual` of it.
    """

    largest: float
    smallest: float
    residual: float


@dataclass(frozen=True)
class Function:
    """f = rising + falling, split so that quadrature brackets it.

    All even derivatives of `rising` are ≤ 0 and all odd ones ≥ 0 (like x/(x+λ) and log(1+x)); for `falling` it is the
    other way round (like 1/(x+λ)). Then a Gauss rule overestimates the first and underestimates the second, and a
    Gauss–Radau rule with a node at or below the spectrum's left end does the opposite.
    """

    rising: Callable[[Tensor], Tensor] | None
    falling: Callable[[Tensor], Tensor] | None = None

    def __call__(self, x: Tensor) -> Tensor:
        parts = [part(x) for part in (self.rising, self.falling) if part is not None]
        return torch.stack(parts).sum(0)

    def bracket(self, nodes: Nodes) -> tuple[Tensor, Tensor]:
        """Lower and upper bounds of zᵀ f(A) z for every start vector."""
        low = torch.zeros(len(nodes.gauss[0]), dtype=torch.float64)
        high = low.clone()
        for part, under, over in (
            (self.rising, nodes.radau, nodes.gauss),
            (self.falling, nodes.gauss, nodes.radau),
        ):
            if part is not None:
                low = low + (under[1] * part(under[0])).sum(1)
                high = high + (over[1] * part(over[0])).sum(1)
        return low, high


def ends_of(runs: Tridiagonal) -> SpectrumEnds:
    """The ends of the spectrum, from the steps so far."""
    values, _ = runs.eigensystem
    return SpectrumEnds(
        largest=float(values.abs().max()),
        smallest=float(values.min()),
        residual=float(runs.residuals[values[:, 0].argmin(), 0]),
    )


def nodes_of(runs: Tridiagonal, left: float) -> Nodes:
    """The rules after the steps so far; `left`, the Gauss–Radau node, must lie below every Ritz value."""
    (values, vectors), (count, m) = runs.eigensystem, runs.diagonal.shape
    # One more row and column of T, with the corner a = left + β_m² e_mᵀ(T − left)⁻¹e_m that makes `left` an
    # eigenvalue (Golub 1973, https://doi.org/10.1137/1015032).
    last = runs.off_diagonal[:, -1]
    distance = (values - left).clamp(min=torch.finfo(torch.float64).tiny)  # 0 for the zero matrix alone
    outer = torch.zeros(count, m + 1, m + 1, dtype=torch.float64)
    outer[:, :m, :m] = runs.matrices
    outer[:, m, m] = left + last.square() * (vectors[:, -1].square() / distance).sum(1)
    outer[:, m - 1, m] = outer[:, m, m - 1] = last
    return Nodes(gauss_rule(runs), _rule(runs.squares, *torch.linalg.eigh(outer)))


def gauss_rule(runs: Tridiagonal) -> tuple[Tensor, Tensor]:
    """The nodes and weights (P, m) of the Gauss rules, the nodes ascending."""
    return _rule(runs.squares, *runs.eigensystem)


def _rule(squares: Tensor, values: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes and weights from the eigenvectors of T (Golub and Welsch 1969)."""
    return values, squares[:, None] * vectors[:, 0].square()
