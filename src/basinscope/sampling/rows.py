"""Sums over the rows of a matrix, one row per chain."""

from __future__ import annotations

import torch
from torch import Tensor

LONG = 2**14  # entries of a row from which a product of its own is cheaper than an array of all products


def row_dot(a: Tensor, b: Tensor) -> Tensor:
    """Σ_j a_cj b_cj (C,)."""
    if a.device.type == "cpu" and a.shape[1] >= LONG:
        return torch.stack([torch.dot(one, other) for one, other in zip(a, b, strict=True)])
    return (a * b).sum(1)  # long and few rows are what batched products are slowest at


def squared_norm(rows: Tensor) -> Tensor:
    """‖row‖² (C,), summed in float64: energies of large networks need the digits."""
    return torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64).square()
