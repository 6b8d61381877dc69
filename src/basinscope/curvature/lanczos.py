"""The Lanczos process: a symmetric operator as small tridiagonal matrices, one for each start vector."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from .operators import Operator
from .tiles import DEFAULT_MEMORY

CHUNK = 8  # vectors that memory is taken for at once
ROUNDING = 50  # units of rounding, relative to ‖A‖, below which what a product leaves over counts as nothing


@dataclass(frozen=True)
class Tridiagonal:
    """T of P runs, A Q = Q T + β_m q_{m+1} e_mᵀ for each, on the CPU in float64.

    Attributes:
        diagonal: α (P, m).
        off_diagonal: β (P, m). The last one is the norm of what is left over: 0 where the Krylov space is invariant.
        squares: the squared lengths (P,) of the start vectors.
    """

    diagonal: Tensor
    off_diagonal: Tensor
    squares: Tensor

    @property
    def steps(self) -> int:
        """m, the products spent on each run."""
        return self.diagonal.shape[1]

    @property
    def matrices(self) -> Tensor:
        """T (P, m, m).

        Examples:
            >>> Tridiagonal(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 0.5]]), torch.ones(1)).matrices
            tensor([[[1., 3.],
                     [3., 2.]]])
        """
        side = self.off_diagonal[:, :-1]
        return torch.diag_embed(self.diagonal) + torch.diag_embed(side, 1) + torch.diag_embed(side, -1)

    @cached_property
    def eigensystem(self) -> tuple[Tensor, Tensor]:
        """The Ritz values (P, m), ascending, and the eigenvectors (P, m, m) of T."""
        values, vectors = torch.linalg.eigh(self.matrices)
        return values, vectors

    @property
    def residuals(self) -> Tensor:
        """‖A x − θ x‖ (P, m) of the Ritz values θ: an eigenvalue lies within this distance of each."""
        return self.off_diagonal[:, -1:] * self.eigensystem[1][:, -1].abs()


class LanczosRuns:
    """Lanczos runs from several start vectors side by side, grown step by step.

    Each new vector is made orthogonal to `locked` and to those before it. Where these outgrow the memory bound, the
    first ones are kept and the last two: quadrature holds without any of this, but takes up to eight times the steps
    when a few eigenvalues are large, because each comes back again and again (Greenbaum 1989,
    https://doi.org/10.1016/0024-3795(89)90285-1).

    Args:
        operator: A.
        starts: (d, P), or (d,) for a single run, of any lengths; their parts in `locked` are taken off.
        locked: orthonormal rows (k, d) that the runs stay away from.
        scale: ‖A‖ as far as it is known: what counts as a rounding error depends on it.
        memory: bytes that the vectors may take; `math.inf` keeps all of them.

    Examples:
        >>> from basinscope.curvature.operators import Dense
        >>> runs = LanczosRuns(Dense(torch.diag(torch.tensor([1.0, 2.0, 3.0]))), torch.ones(3))
        >>> runs.grow(3)
        >>> runs.tridiagonal.eigensystem[0].round(decimals=4).tolist()
        [[1.0, 2.0, 3.0]]
    """

    def __init__(
        self, operator: Operator, starts: Tensor, *, locked: Tensor | None = None, scale: float = 0.0,
        memory: float | None = None,
    ) -> None:  # fmt: skip
        self.operator = operator
        self._locked = locked
        rows = starts.reshape(operator.dimension, -1).to(operator.device, operator.dtype).T
        self._chunks: list[Tensor] = []  # of the vectors kept, (P, CHUNK, d) each, the last one padded with zeros
        self._count = 0
        bound = _memory_bound(operator.device) if memory is None else memory
        self._capacity = bound / (rows.numel() * rows.element_size())
        self._scale = torch.full((len(rows),), scale, dtype=torch.float64)
        self._alpha: list[Tensor] = []
        self._beta: list[Tensor] = []
        self._tridiagonal: Tridiagonal | None = None
        self._current, self._squares = self._unit(rows)
        self._previous = torch.zeros_like(rows)

    @property
    def steps(self) -> int:
        return len(self._alpha)

    @property
    def basis(self) -> Tensor:
        """The vectors kept, (P, m, d): all of them if memory allows."""
        return torch.cat(self._chunks, 1)[:, : self._count]

    @property
    def exhausted(self) -> Tensor:
        """Which runs (P,) have found an invariant space: what is left over is only rounding error."""
        return self._beta[-1] == 0 if self._beta else torch.zeros(len(self._scale), dtype=torch.bool)

    @property
    def tridiagonal(self) -> Tridiagonal:
        """The coefficients of all runs so far."""
        if self._tridiagonal is None:
            self._tridiagonal = Tridiagonal(torch.stack(self._alpha, 1), torch.stack(self._beta, 1), self._squares)
        return self._tridiagonal

    def grow(self, steps: int) -> None:
        """Spend up to `steps` products on each run; one whose Krylov space is exhausted stands still."""
        for _ in range(steps):
            if self.steps and not bool(self._current.any()):
                return
            self._tridiagonal = None
            # The three-term recurrence β_k q_{k+1} = A q_k − α_k q_k − β_{k−1} q_{k−1}; inner products in float64,
            # because α and β are all that quadrature is made of.
            before = self._beta[-1].to(self._current)[:, None] if self._beta else 0.0
            image = (self.operator @ self._current.T).T - before * self._previous
            alpha = (self._current.double() * image.double()).sum(1)
            # Rounding makes the recurrence forget earlier vectors, so they are projected out once more.
            self._keep(self._current)
            image = self._orthogonal(image - alpha.to(image)[:, None] * self._current)
            beta = image.double().norm(dim=1).cpu()
            self._alpha.append(alpha.cpu())
            self._scale = torch.stack([self._scale, self._alpha[-1].abs(), beta]).amax(0)
            # A remainder the size of rounding errors means that the Krylov space is exhausted: β = 0 ends that run,
            # where normalizing it would start a new one from noise.
            noise = ROUNDING * torch.finfo(image.dtype).eps * self._scale
            self._beta.append(torch.where(beta > noise, beta, 0.0))
            inverse = torch.where(beta > noise, 1 / beta, 0.0).to(image)
            self._previous, self._current = self._current, image * inverse[:, None]

    def restart(self, starts: Tensor) -> None:
        """Go on from new vectors (d, P) once exhausted: the old spaces are invariant, so T falls into blocks."""
        self._current, _ = self._unit(starts.reshape(self.operator.dimension, -1).T)
        self._previous = torch.zeros_like(self._current)

    def _unit(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Unit vectors along what the rows add to the vectors kept, and the squared lengths of that."""
        rows = self._orthogonal(rows)
        squares = rows.double().square().sum(1)
        norms = squares.sqrt().to(rows)
        return rows / torch.where(norms > 0, norms, 1)[:, None], squares.cpu()

    def _orthogonal(self, rows: Tensor) -> Tensor:
        """The rows (P, d) without their parts in `locked` and in the vectors kept; twice, because once loses digits."""
        for _ in range(2):
            if self._locked is not None:
                rows = rows - (rows @ self._locked.T) @ self._locked
            for chunk in self._chunks:
                rows = rows - torch.bmm(torch.bmm(rows[:, None], chunk.mT), chunk)[:, 0]
        return rows

    def _keep(self, rows: Tensor) -> None:
        if self._count >= self._capacity:
            return
        place = self._count % CHUNK
        if place == 0:
            self._chunks.append(rows.new_zeros(len(rows), CHUNK, rows.shape[1]))
        self._chunks[-1][:, place] = rows
        self._count += 1


def _memory_bound(device: torch.device) -> int:
    """The bytes that the vectors of all runs may take."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory) // 4
    return 4 * DEFAULT_MEMORY
