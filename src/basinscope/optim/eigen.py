"""Eigenvalues of many small symmetric matrices at once, for optimizers that need them every few steps."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch
from torch import Tensor

MIN_GPU_WIDTH = 256  # of a matrix that the card solves itself


def eigen_of(matrices: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Eigenvalues (…, r) and eigenvectors (…, r, r) of symmetric matrices (…, r, r), of whatever shapes.

    A card's solver takes small matrices one by one, a thousand launches each: 1.1 ms for 80 × 80 on an H200, where a
    processor core needs 0.9 ms and there are many cores. So small ones are brought over, and shared out among threads.

    Examples:
        >>> (values, vectors), = eigen_of([torch.tensor([[2.0, 1.0], [1.0, 2.0]])])
        >>> values
        tensor([1., 3.])
    """
    pairs: list[tuple[Tensor, Tensor] | None] = [None] * len(matrices)
    # Matrices of one size, type and device are solved together.
    alike: dict[tuple[int, torch.dtype, torch.device], list[int]] = {}
    for number, matrix in enumerate(matrices):
        alike.setdefault((matrix.shape[-1], matrix.dtype, matrix.device), []).append(number)
    for numbers in alike.values():
        group = [matrices[number] for number in numbers]
        shapes = [matrix.shape for matrix in group]
        flat = torch.cat([matrix.reshape(-1, *matrix.shape[-2:]) for matrix in group])
        counts = [shape[:-2].numel() for shape in shapes]
        values, vectors = (part.split(counts) for part in _eigh(flat))
        for number, shape, value, vector in zip(numbers, shapes, values, vectors, strict=True):
            pairs[number] = value.reshape(shape[:-1]), vector.reshape(shape)
    return [pair for pair in pairs if pair is not None]


def _eigh(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of matrices (B, r, r), on the device that is fastest for their size."""
    if matrices.device.type != "cuda" or matrices.shape[-1] >= MIN_GPU_WIDTH:
        return torch.linalg.eigh(matrices)
    values, vectors = shared_out(matrices.cpu())
    return values.to(matrices.device), vectors.to(matrices.device)


def shared_out(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of matrices (B, r, r) on the processor, a share for each thread."""
    shares = matrices.chunk(min(len(matrices), os.cpu_count() or 1))
    values, vectors = zip(*_threads().map(torch.linalg.eigh, shares), strict=True)
    return torch.cat(values), torch.cat(vectors)


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count() or 1, "eigenvalues")
