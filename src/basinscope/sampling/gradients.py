"""Whether the gradients that move chains are those of the loss."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from .rows import row_dot
from .target import Target

LINES, SAMPLES = 4, 64  # along which, and on how many, loss and gradient are compared
NODES = (5, 40)  # of Gauss–Legendre rules: the second where the first does not agree
MAX_MISMATCH = 0.2  # of the changes of the loss, that its gradients may leave unexplained


def mismatch(target: Target, position: Tensor, seed: int) -> float:
    """The part of the loss's changes along lines that the integrals of its gradient along them do not explain.

    L(b) − L(a) = ∫ ∇L·dw for every continuous loss, kinks or not. Where the forward and the backward pass are of
    different functions, as with straight-through rounding, the two sides differ. Lines begin at positions of the
    chains and lead in random directions, for one standard deviation of the whitened posterior. A few samples are
    enough, the same for both sides. The sum of the distances is over that of ∫ |∇L·dw|.

    Args:
        target: the posterior.
        position: where lines begin, whitened (C, d).
        seed: of the directions.
    """
    losses, generator = target.losses, torch.Generator(position.device).manual_seed(seed)
    start = position[torch.arange(LINES, device=position.device) % len(position)]
    way = torch.randn(start.shape, generator=generator, dtype=start.dtype, device=start.device)
    start, way = target.whitening(start), target.whitening(way / torch.linalg.vector_norm(way, dim=1, keepdim=True))
    rows = _few(losses.land.n, losses.land.samples.device)
    first, last = (losses.minibatch(end, rows)[0] for end in (start, start + way))
    rounding = target.nbeta * torch.finfo(start.dtype).eps * float(losses.base.abs().mean())

    def slope(place: float) -> Tensor:
        return row_dot(way, losses.minibatch(start + place * way, rows, target.nbeta)[1]).double()

    def unexplained(nodes: int) -> float:
        places, weights = np.polynomial.legendre.leggauss(nodes)
        slopes = torch.stack([slope(0.5 * (1 + float(place))) for place in places], 1)
        shares = torch.as_tensor(0.5 * weights, device=slopes.device)
        off = (target.nbeta * (last - first) - slopes @ shares).abs() - rounding
        changes = float((slopes.abs() @ shares).sum())
        return float(off.clamp(min=0).sum()) / changes if changes > 0 else math.inf if bool((off > 0).any()) else 0.0

    few, many = NODES
    return seen if (seen := unexplained(few)) <= MAX_MISMATCH else unexplained(many)


def _few(n: int, device: torch.device) -> Tensor:
    """The numbers of a few samples from all over the data, the same for every line."""
    count = min(n, SAMPLES)
    return (torch.arange(count, device=device) * (n // count)).expand(LINES, -1)
