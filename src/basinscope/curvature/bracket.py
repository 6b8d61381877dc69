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

from .lanczos import tridiagonal
from .operators import Operator
from .tiles import DEFAULT_MEMORY


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


def _memory_bound(device: torch.device) -> int:
    """The bytes that the vectors of all runs may take."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory) // 4
    return 4 * DEFAULT_MEMORY


class LanczosRuns:
    """Lanczos runs from several start vectors side by side, grown step by step.

    Each new vector is made orthogonal to those before it. Where these outgrow the memory bound, the first ones are kept
    and the last two: the rules hold without any of this, but take up to eight times the steps when a few eigenvalues
    are large, because each comes back again and again (Greenbaum 1989, https://doi.org/10.1016/0024-3795(89)90285-1).
    """

    def __init__(self, operator: Operator, starts: Tensor) -> None:
        self.operator = operator
        starts = starts.to(operator.device, operator.dtype)
        self.squares = starts.double().square().sum(0).cpu()
        norms = self.squares.sqrt().to(starts)
        self._current = starts / torch.where(norms > 0, norms, 1)
        self._previous = torch.zeros_like(self._current)
        self._basis: list[Tensor] = []
        self._capacity = _memory_bound(operator.device) // (starts.numel() * starts.element_size())
        self._alpha: list[Tensor] = []
        self._beta: list[Tensor] = []
        self._eigen: tuple[Tensor, Tensor] | None = None

    @classmethod
    def from_rayleigh(cls, quotients: Tensor, residuals: Tensor) -> LanczosRuns:
        """Runs of one step from unit vectors u, given uᵀ A u and the residual norms ‖A u − (uᵀ A u) u‖."""
        runs = cls.__new__(cls)
        runs.squares = torch.ones_like(quotients)
        runs._alpha, runs._beta, runs._eigen = [quotients], [residuals], None
        return runs

    @property
    def steps(self) -> int:
        return len(self._alpha)

    @property
    def ends(self) -> SpectrumEnds:
        """The ends of the spectrum, from the steps so far."""
        values, vectors = self._eigensystem()
        return SpectrumEnds(
            largest=float(values.abs().max()),
            smallest=float(values.min()),
            residual=float((self._beta[-1] * vectors[:, -1, 0].abs())[values[:, 0].argmin()]),
        )

    def grow(self, steps: int) -> None:
        """Spend `steps` products on each run; a run whose Krylov space is exhausted stands still."""
        self._eigen = None
        for _ in range(steps):
            # The three-term recurrence β_k q_{k+1} = A q_k − α_k q_k − β_{k−1} q_{k−1}; inner products in float64,
            # because α and β are all that the rules are made of.
            beta_before = self._beta[-1].to(self._current) if self._beta else 0.0
            image = self.operator @ self._current - beta_before * self._previous
            alpha = (self._current.double() * image.double()).sum(0)
            image = image - alpha.to(image) * self._current
            # Rounding makes the recurrence forget earlier vectors, so they are projected out once more.
            if len(self._basis) < self._capacity:
                self._basis.append(self._current)
            for vector in [*self._basis, *self._basis]:  # twice, because once loses digits
                image = image - (vector * image).sum(0) * vector
            beta = image.double().norm(dim=0)
            self._alpha.append(alpha.cpu())
            # A remainder the size of rounding errors means that the Krylov space is exhausted: β = 0 ends that run,
            # where normalizing it would start a new one from noise.
            scale = torch.stack(self._alpha + self._beta).abs().amax(0)
            noise = 10 * torch.finfo(image.dtype).eps * scale
            beta = torch.where(beta.cpu() > noise, beta.cpu(), 0.0)
            self._beta.append(beta)
            self._previous, self._current = self._current, image * torch.where(beta > 0, 1 / beta, 0).to(image)

    def nodes(self, left: float) -> Nodes:
        """The rules after the steps so far; `left`, the Gauss–Radau node, must lie below every Ritz value."""
        inner, (values, vectors) = self._matrices(), self._eigensystem()
        count, m = len(self.squares), self.steps
        # One more row and column of T, with the corner a = left + β_m² e_mᵀ(T − left)⁻¹e_m that makes `left` an
        # eigenvalue (Golub 1973, https://doi.org/10.1137/1015032).
        distance = (values - left).clamp(min=torch.finfo(torch.float64).tiny)  # 0 for the zero matrix alone
        shift = self._beta[-1].square() * (vectors[:, -1].square() / distance).sum(1)
        outer = torch.zeros(count, m + 1, m + 1, dtype=torch.float64)
        outer[:, :m, :m] = inner
        outer[:, m, m] = left + shift
        outer[:, m - 1, m] = outer[:, m, m - 1] = self._beta[-1]
        return Nodes(self._rule(values, vectors), self._rule(*torch.linalg.eigh(outer)))

    def _matrices(self) -> Tensor:
        """The tridiagonal matrices T (P, m, m)."""
        return tridiagonal(torch.stack(self._alpha, 1), torch.stack(self._beta, 1))

    def _eigensystem(self) -> tuple[Tensor, Tensor]:
        """Eigenvalues and eigenvectors of T, kept until the runs grow."""
        if self._eigen is None:
            values, vectors = torch.linalg.eigh(self._matrices())
            self._eigen = values, vectors
        return self._eigen

    def _rule(self, values: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Nodes and weights from the eigenvectors of T (Golub and Welsch 1969)."""
        return values, self.squares[:, None] * vectors[:, 0].square()
