"""Quadratic forms zᵀ f(A) z from below and above: Gauss and Gauss–Radau rules on Lanczos runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .operators import Operator


@dataclass(frozen=True)
class Nodes:
    """Two quadrature rules a start vector, nodes and weights (P, m) each; the weights add up to ‖z‖²."""

    gauss: tuple[Tensor, Tensor]
    radau: tuple[Tensor, Tensor]


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


class Runs:
    """Lanczos runs of several start vectors side by side, grown step by step.

    Only the last two vectors of each run are kept. Without reorthogonalization the small matrices get repeated
    eigenvalues, but their quadrature rules stay as good as after a few steps fewer (Greenbaum 1989).
    """

    def __init__(self, operator: Operator, starts: Tensor) -> None:
        self.operator = operator
        starts = starts.to(operator.device, operator.dtype)
        self.squares = starts.double().square().sum(0).cpu()
        norms = self.squares.sqrt().to(starts)
        self._now = starts / torch.where(norms > 0, norms, 1)
        self._last = torch.zeros_like(self._now)
        self._alpha: list[Tensor] = []
        self._beta: list[Tensor] = []

    @property
    def steps(self) -> int:
        return len(self._alpha)

    @property
    def largest(self) -> float:
        """The operator's norm as far as seen, from inside."""
        return float(torch.linalg.eigvalsh(self._matrices()).abs().max())

    @property
    def edge(self) -> float:
        """The smallest eigenvalue as far as seen, from inside."""
        return float(torch.linalg.eigvalsh(self._matrices()).min())

    @property
    def smallest(self) -> float:
        """`edge` less the residual of its approximate eigenvector: an eigenvalue lies in between."""
        values, vectors = torch.linalg.eigh(self._matrices())
        return float((values[:, 0] - self._beta[-1] * vectors[:, -1, 0].abs()).min())

    def grow(self, steps: int) -> None:
        """Spend `steps` products on each run; a run whose Krylov space is exhausted stands still."""
        for _ in range(steps):
            before = self._beta[-1].to(self._now) if self._beta else 0.0
            image = self.operator @ self._now - before * self._last
            alpha = (self._now.double() * image.double()).sum(0)
            image = image - alpha.to(image) * self._now
            beta = image.double().norm(dim=0)
            self._alpha.append(alpha.cpu())
            scale = torch.stack(self._alpha + self._beta).abs().amax(0)
            noise = 10 * torch.finfo(image.dtype).eps * scale
            beta = torch.where(beta.cpu() > noise, beta.cpu(), 0.0)
            self._beta.append(beta)
            self._last, self._now = self._now, image * torch.where(beta > 0, 1 / beta, 0).to(image)

    def nodes(self, left: float) -> Nodes:
        """The rules after the present number of steps; `left` must not lie above the smallest eigenvalue."""
        inner = self._matrices()
        count, m = len(self.squares), self.steps
        # Golub 1973: one more row, chosen such that `left` becomes an eigenvalue.
        unit = torch.zeros(count, m, 1, dtype=torch.float64)
        unit[:, -1, 0] = self._beta[-1] ** 2
        shift = torch.linalg.solve(inner - left * torch.eye(m, dtype=torch.float64), unit)[:, -1, 0]
        outer = torch.zeros(count, m + 1, m + 1, dtype=torch.float64)
        outer[:, :m, :m] = inner
        outer[:, m, m] = left + shift
        outer[:, m - 1, m] = outer[:, m, m - 1] = self._beta[-1]
        return Nodes(self._rule(inner), self._rule(outer))

    def _matrices(self) -> Tensor:
        diagonal, side = torch.stack(self._alpha, 1), torch.stack(self._beta, 1)[:, :-1]
        return torch.diag_embed(diagonal) + torch.diag_embed(side, 1) + torch.diag_embed(side, -1)

    def _rule(self, matrices: Tensor) -> tuple[Tensor, Tensor]:
        values, vectors = torch.linalg.eigh(matrices)
        return values, self.squares[:, None] * vectors[:, 0].square()
