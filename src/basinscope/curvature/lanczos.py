"""The Lanczos process with full reorthogonalization: a symmetric operator as a small tridiagonal matrix.

One start vector, whose basis is wanted: for eigenvectors, and for the rules of `density`. The runs of `bracket` grow
many start vectors at once and keep as much of their bases as fits, because only the coefficients are wanted there.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError
from .operators import Operator


def tridiagonal(diagonal: Tensor, off_diagonal: Tensor) -> Tensor:
    """The symmetric matrices T (…, m, m) with diagonals α (…, m) and off-diagonals β (…, m), whose last β is left out.

    Examples:
        >>> tridiagonal(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 0.5]))
        tensor([[1., 3.],
                [3., 2.]])
    """
    side = off_diagonal[..., :-1]
    return torch.diag_embed(diagonal) + torch.diag_embed(side, 1) + torch.diag_embed(side, -1)


@dataclass(frozen=True)
class Tridiagonal:
    """A Q = Q T + β_m q_{m+1} e_mᵀ: diagonal α (m,), off-diagonal β (m,) in float64, orthonormal rows Qᵀ (m, d).

    The last β is the norm of what is left over: 0 when the Krylov space is invariant and the run ended early.
    """

    diagonal: Tensor
    off_diagonal: Tensor
    basis: Tensor

    def matrix(self) -> Tensor:
        """T as a dense m × m matrix."""
        return tridiagonal(self.diagonal, self.off_diagonal)


class Krylov:
    """A Lanczos run that grows: each `step` spends one product and adds one row to the basis.

    Rows stay orthogonal to each other and to those of `locked`; they are projected twice, because once loses digits.

    Args:
        operator: A.
        start: a unit vector.
        max_steps: the number of rows that the basis may come to have.
        locked: orthonormal rows (k, d) that the run stays away from.
        scale: ‖A‖ as far as it is known: what counts as a rounding error depends on it.
    """

    def __init__(
        self, operator: Operator, start: Tensor, max_steps: int, locked: Tensor | None = None, scale: float = 0.0
    ) -> None:
        self.operator = operator
        self.locked = start.new_empty(0, operator.dimension) if locked is None else locked
        self.scale = scale
        self.diagonal: list[float] = []
        self.off_diagonal: list[float] = []
        self._max_steps = max_steps
        self._rows = start.new_empty(min(16, max_steps), operator.dimension)
        self._next = start

    def __len__(self) -> int:
        return len(self.diagonal)

    @property
    def basis(self) -> Tensor:
        return self._rows[: len(self)]

    @property
    def exhausted(self) -> bool:
        """Whether the Krylov space has become invariant: the leftover is only rounding error."""
        return len(self) > 0 and self.off_diagonal[-1] == 0

    def step(self) -> None:
        """Spend one product: the next row of the basis, its α, and the β of what is left over."""
        # Room for the basis doubles when it is full, so that rows are copied a bounded number of times each.
        if len(self) == len(self._rows):
            larger = self._rows.new_empty(min(2 * len(self), self._max_steps), self.operator.dimension)
            larger[: len(self)] = self._rows
            self._rows = larger
        vector = self._rows[len(self)] = self._next
        image = self.operator @ vector
        self.diagonal.append(float(vector.double() @ image.double()))
        # Against the whole basis, which takes α q_k and β q_{k−1} off as well.
        image = self.orthogonal(image)
        remainder = float(image.double().norm())
        self.scale = max(self.scale, abs(self.diagonal[-1]), remainder)
        # A remainder the size of rounding errors is none: β = 0 says that the Krylov space is invariant.
        if remainder > 50 * torch.finfo(self.operator.dtype).eps * self.scale:
            self.off_diagonal.append(remainder)
            self._next = image / remainder
        else:
            self.off_diagonal.append(0.0)

    def restart(self, start: Tensor) -> None:
        """Go on from a new vector once exhausted: the old space is invariant, so T falls into blocks."""
        self._next = start

    def orthogonal(self, vector: Tensor) -> Tensor:
        """The vector without its part in the basis and in the locked rows."""
        for _ in range(2):
            for rows in (self.locked, self.basis):
                vector = vector - rows.T @ (rows @ vector)
        return vector

    def result(self) -> Tridiagonal:
        return Tridiagonal(
            torch.tensor(self.diagonal, dtype=torch.float64),
            torch.tensor(self.off_diagonal, dtype=torch.float64),
            self.basis,
        )


def lanczos(operator: Operator, start: Tensor, steps: int) -> Tridiagonal:
    """The Lanczos tridiagonal matrix of `operator` from `start`: A Q = Q T + β_m q_{m+1} e_mᵀ.

    Ends before `steps` when the Krylov space of `start` is exhausted.

    Examples:
        >>> import torch
        >>> from basinscope.curvature.operators import Dense
        >>> run = lanczos(Dense(torch.diag(torch.tensor([1.0, 2.0, 3.0]))), torch.ones(3), steps=3)
        >>> torch.linalg.eigvalsh(run.matrix()).round(decimals=4).tolist()
        [1.0, 2.0, 3.0]
    """
    if steps < 1:
        raise InputError(f"steps must be at least 1, got {steps}")
    norm = float(start.double().norm())
    if not 0 < norm < float("inf"):
        raise InputError(f"start must be a nonzero finite vector, got one of norm {norm}")
    max_steps = min(steps, operator.dimension)
    run = Krylov(operator, start.to(operator.device, operator.dtype) / norm, max_steps)
    while len(run) < max_steps and not run.exhausted:
        run.step()
    return run.result()
