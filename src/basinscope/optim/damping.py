"""How a Fisher matrix is smoothed before it is inverted, and how the result is scaled back."""

from __future__ import annotations

import torch
from torch import Tensor


def kappa(trace: Tensor, dimension: int, alpha: float, epsilon: float) -> Tensor:
    """The damping κ = (α/d)·max(tr F, ε) of F_s = F + κI (papers 000/001, eq. 7); ε acts only where it exceeds tr F.

    Examples:
        >>> kappa(torch.tensor(6.0), 3, alpha=0.5, epsilon=1e-10)
        tensor(1.)
    """
    return trace.clamp_min(epsilon) * (alpha / dimension)


def damped_inverse(matrix: Tensor, alpha: float, epsilon: float) -> Tensor:
    """(F + κI)⁻¹ of a matrix, or of a diagonal given as a vector; batched over leading axes of matrices.

    A matrix with NaN gives NaN: nothing waits for the device to say so.

    Examples:
        >>> damped_inverse(torch.diag(torch.tensor([1.0, 3.0])), alpha=1.0, epsilon=0.0).diagonal()
        tensor([0.3333, 0.2000])
    """
    size = matrix.shape[-1]
    if matrix.ndim == 1:
        return 1 / (matrix + kappa(matrix.sum(), size, alpha, epsilon))
    trace = matrix.diagonal(dim1=-2, dim2=-1).sum(-1)
    damping = kappa(trace, size, alpha, epsilon)[..., None, None]
    identity = torch.eye(size, dtype=matrix.dtype, device=matrix.device)
    factor, _ = torch.linalg.cholesky_ex(matrix + damping * identity)
    return torch.cholesky_solve(identity, factor)  # cholesky_inverse would wait for the device


def with_norm_of(gradient: Tensor, direction: Tensor, axes: tuple[int, ...] | None = None) -> Tensor:
    """`direction` scaled to the norm of `gradient`, over all axes or the given ones; zero stays zero.

    Examples:
        >>> with_norm_of(torch.tensor([3.0, 4.0]), torch.tensor([0.0, 2.0]))
        tensor([0., 5.])
    """
    dimensions = tuple(range(direction.ndim)) if axes is None else axes
    # In double precision: squares of small numbers vanish in single precision.
    wanted = torch.linalg.vector_norm(gradient, dim=dimensions, keepdim=True, dtype=torch.float64)
    found = torch.linalg.vector_norm(direction, dim=dimensions, keepdim=True, dtype=torch.float64)
    return direction * torch.where(found > 0, wanted / found, 1).to(direction.dtype)
