"""The damping of a Fisher matrix before it is inverted, and the rescaling of the result."""

from __future__ import annotations

import torch
from torch import Tensor


def kappa(trace: Tensor, dimension: int, alpha: float, epsilon: float) -> Tensor:
    """The damping κ = (α/d)·max(tr F, ε) of F_s = F + κI; ε acts only where it exceeds tr F.

    Saghir, Raghavendra, Liu and Gunter, "NGD converges to less degenerate solutions than SGD" (2024,
    https://arxiv.org/abs/2409.04913), eq. 7.

    Examples:
        >>> kappa(torch.tensor(6.0), 3, alpha=0.5, epsilon=1e-10)
        tensor(1.)
    """
    return trace.clamp_min(epsilon) * (alpha / dimension)


def damped_factor(matrix: Tensor, alpha: float, epsilon: float) -> Tensor:
    """The Cholesky factor of F + κI, or F + κI itself where F is diagonal and given as a vector.

    A matrix with NaN gives NaN, so that the program need not wait for the device to report it.
    """
    size = matrix.shape[-1]
    if matrix.ndim == 1:
        return matrix + kappa(matrix.sum(), size, alpha, epsilon)
    damping = kappa(matrix.diagonal().sum(), size, alpha, epsilon)
    identity = torch.eye(size, dtype=matrix.dtype, device=matrix.device)
    factor, _ = torch.linalg.cholesky_ex(torch.addcmul(matrix, damping, identity))
    return factor


def divided(right: Tensor, factor: Tensor) -> Tensor:
    """(F + κI)⁻¹ right, for a matrix of columns and a factor as `damped_factor` makes it.

    Examples:
        >>> factor = damped_factor(torch.diag(torch.tensor([1.0, 3.0])), alpha=1.0, epsilon=0.0)  # κ = 2
        >>> divided(torch.ones(2, 1), factor)[:, 0]
        tensor([0.3333, 0.2000])
    """
    return right / factor[:, None] if factor.ndim == 1 else torch.cholesky_solve(right, factor)


def with_norm_of(gradient: Tensor, direction: Tensor, axes: tuple[int, ...] | None = None) -> Tensor:
    """`direction` scaled to the norm of `gradient`, over all axes or the given ones; zero stays zero.

    Examples:
        >>> with_norm_of(torch.tensor([3.0, 4.0]), torch.tensor([0.0, 2.0]))
        tensor([0., 5.])
    """
    dimensions = tuple(range(direction.ndim)) if axes is None else axes
    # In double precision: squares of small numbers vanish in single precision.
    target = torch.linalg.vector_norm(gradient, dim=dimensions, keepdim=True, dtype=torch.float64)
    length = torch.linalg.vector_norm(direction, dim=dimensions, keepdim=True, dtype=torch.float64)
    return direction * torch.where(length > 0, target / length, torch.ones_like(length)).to(direction.dtype)
