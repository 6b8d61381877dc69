"""Quadratic forms zᵀ f(A) z from below and above: Gauss and Gauss–Radau rules on Lanczos runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .operators import Operator
from .tiles import DEFAULT_MEMORY


@dataclass(frozen=True)
class Nodes:
    """Two quadrature rules a start vector, nodes and weights (P, m) each; the weights add up to ‖z‖²."""

    gauss: tuple[Tensor, Tensor]
    radau: tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Ritz:
    """The spectrum's ends as seen from inside: an eigenvalue lies within `residual` of `smallest`."""

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


def _bound(device: torch.device) -> int:
    """Bytes for the vectors of all runs."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory) // 4
    return 4 * DEFAULT_MEMORY


class Runs:
    """Lanczos runs of several start vectors side by side, grown step by step.

    Each new vector is made orthogonal to those before it. Where these outgrow the memory bound, the first ones are kept
    and the last two: the rules hold without any of this, but take up to eight times the steps when a few eigenvalues
    are large, because each comes back again and again (Greenbaum 1989).
    """

    def __init__(self, operator: Operator, starts: Tensor) -> None:
        self.operator = operator
        starts = starts.to(operator.device, operator.dtype)
        self.squares = starts.double().square().sum(0).cpu()
        norms = self.squares.sqrt().to(starts)
        self._now = starts / torch.where(norms > 0, norms, 1)
        self._last = torch.zeros_like(self._now)
        self._basis: list[Tensor] = []
        self._room = _bound(operator.device) // (starts.numel() * starts.element_size())
        self._alpha: list[Tensor] = []
        self._beta: list[Tensor] = []
        self._eigen: tuple[Tensor, Tensor] | None = None

    @classmethod
    def known(cls, values: Tensor, residuals: Tensor) -> Runs:
        """Runs of one step from unit vectors, given their Rayleigh quotients and residual norms."""
        runs = cls.__new__(cls)
        runs.squares = torch.ones_like(values)
        runs._alpha, runs._beta, runs._eigen = [values], [residuals], None
        return runs

    @property
    def steps(self) -> int:
        return len(self._alpha)

    @property
    def ritz(self) -> Ritz:
        """What the runs have seen of the spectrum so far."""
        values, vectors = self._solved()
        return Ritz(
            largest=float(values.abs().max()),
            smallest=float(values.min()),
            residual=float((self._beta[-1] * vectors[:, -1, 0].abs())[values[:, 0].argmin()]),
        )

    def grow(self, steps: int) -> None:
        """Spend `steps` products on each run; a run whose Krylov space is exhausted stands still."""
        self._eigen = None
        for _ in range(steps):
            before = self._beta[-1].to(self._now) if self._beta else 0.0
            image = self.operator @ self._now - before * self._last
            alpha = (self._now.double() * image.double()).sum(0)
            image = image - alpha.to(image) * self._now
            if len(self._basis) < self._room:
                self._basis.append(self._now)
            for vector in [*self._basis, *self._basis]:  # twice, because once loses digits
                image = image - (vector * image).sum(0) * vector
            beta = image.double().norm(dim=0)
            self._alpha.append(alpha.cpu())
            scale = torch.stack(self._alpha + self._beta).abs().amax(0)
            noise = 10 * torch.finfo(image.dtype).eps * scale
            beta = torch.where(beta.cpu() > noise, beta.cpu(), 0.0)
            self._beta.append(beta)
            self._last, self._now = self._now, image * torch.where(beta > 0, 1 / beta, 0).to(image)

    def nodes(self, left: float) -> Nodes:
        """The rules after the present number of steps; `left` must lie below all that the runs have seen."""
        inner, (values, vectors) = self._matrices(), self._solved()
        count, m = len(self.squares), self.steps
        # Golub 1973: one more row, chosen such that `left` becomes an eigenvalue.
        distance = (values - left).clamp(min=torch.finfo(torch.float64).tiny)  # 0 for the zero matrix alone
        shift = self._beta[-1].square() * (vectors[:, -1].square() / distance).sum(1)
        outer = torch.zeros(count, m + 1, m + 1, dtype=torch.float64)
        outer[:, :m, :m] = inner
        outer[:, m, m] = left + shift
        outer[:, m - 1, m] = outer[:, m, m - 1] = self._beta[-1]
        return Nodes(self._rule(values, vectors), self._rule(*torch.linalg.eigh(outer)))

    def _matrices(self) -> Tensor:
        diagonal, side = torch.stack(self._alpha, 1), torch.stack(self._beta, 1)[:, :-1]
        return torch.diag_embed(diagonal) + torch.diag_embed(side, 1) + torch.diag_embed(side, -1)

    def _solved(self) -> tuple[Tensor, Tensor]:
        if self._eigen is None:
            values, vectors = torch.linalg.eigh(self._matrices())
            self._eigen = values, vectors
        return self._eigen

    def _rule(self, values: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
        return values, self.squares[:, None] * vectors[:, 0].square()
