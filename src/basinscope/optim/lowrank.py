"""The online low-rank Fisher matrix of Povey, Zhang and Khudanpur, as pure functions of its state.

D. Povey, X. Zhang and S. Khudanpur, "Parallel training of DNNs with natural gradient and parameter averaging" (2015,
https://arxiv.org/abs/1410.7455), and its implementation in Kaldi.

Every function takes leading axes: many matrices of one shape are handled at once, each with its own α and ε if these
are tensors.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .damping import with_norm_of

_LONGEST_SUM = 256  # terms of a sum that a GPU adds one after another
INITIAL_UPDATES = 3  # on the first batch: a few rounds of subspace iteration towards its leading directions


class LowRank(NamedTuple):
    """F = RᵀDR + ρI: `basis` R (…, r, D) with orthonormal rows, `spectrum` D (…, r), `floor` ρ (…)."""

    basis: Tensor
    spectrum: Tensor
    floor: Tensor


def initial(
    rows: Tensor, rank: int, *, eta: float, epsilon: float | Tensor, delta: float, single: bool = False
) -> LowRank:
    """The state before the first step: ε·I, then a few updates with the first rows (…, N, D).

    The first basis has rows proportional to (1.1, 0, …, 1, 0, …): every coordinate takes part in one of them, and no
    two coordinates weigh the same in all.
    """
    size = rows.shape[-1]
    place = torch.arange(size, device=rows.device)
    basis = (place % rank == torch.arange(rank, device=rows.device)[:, None]).double()
    basis = basis * torch.where(place < rank, 1.1, 1.0)
    basis = (basis / basis.norm(dim=1, keepdim=True)).to(rows.dtype).expand(*rows.shape[:-2], rank, size)
    small = torch.as_tensor(epsilon, dtype=torch.float64, device=rows.device).expand(rows.shape[:-2]).clone()
    state = LowRank(basis, small[..., None].expand(*small.shape, rank), small)
    for _ in range(INITIAL_UPDATES):
        update = due(state, rows, eta=eta, epsilon=epsilon, delta=delta, single=single)
        if single:
            state = advanced(update, *torch.linalg.eigh(update.gram))
        else:
            state = _advanced(update, *_by_singular_values(update.projection))
    return state


def preconditioned(
    state: LowRank, rows: Tensor, *, alpha: float | Tensor, rescale: bool, single: bool = False
) -> Tensor:
    """X G⁻¹ for rows X (…, N, D) with G = F + (α/D) tr F · I, or that scaled to ‖X‖.

    With `single`, X itself where that is not finite, as in the published code: rounding may make it so.

    G⁻¹ = (I − RᵀER)/β with β = ρ(1 + α) + (α/D) tr D and E = D/(D + β).

    Examples:
        >>> basis = torch.tensor([[1.0, 0.0]])
        >>> state = LowRank(basis, torch.tensor([3.0]).double(), torch.tensor(1.0).double())  # F = diag(4, 1)
        >>> preconditioned(state, torch.tensor([[1.0, 1.0]]), alpha=0.4, rescale=False)  # G = diag(5, 2)
        tensor([[0.2000, 0.5000]])
    """
    # G⁻¹X = (X − shrunken part of X in the span of R) / β.
    size = rows.shape[-1]
    smoothed = state.floor * (1 + alpha) + state.spectrum.sum(-1) * (alpha / size)
    share = (state.spectrum / (state.spectrum + smoothed[..., None])).to(rows.dtype)
    direction = rows - (rows @ state.basis.mT * share[..., None, :]) @ state.basis
    if single:
        direction = torch.where(torch.isfinite(direction).all(-1).all(-1)[..., None, None], direction, rows)
    if rescale:  # 1/β drops out
        return with_norm_of(rows, direction, axes=(-2, -1))
    return direction / smoothed.to(rows.dtype)[..., None, None]


class PendingUpdate(NamedTuple):
    """A state, and the terms of its update: Y = R T, Y Yᵀ, tr T, and the floors ε and δ.

    Smaller eigenvalues of Y Yᵀ than `least` are taken for rounding errors; None stands for the precision's own bound.
    """

    state: LowRank
    projection: Tensor
    gram: Tensor
    total: Tensor
    epsilon: float | Tensor
    delta: float
    least: Tensor | None


def due(
    state: LowRank, rows: Tensor, *, eta: float, epsilon: float | Tensor, delta: float, single: bool = False
) -> PendingUpdate:
    """The pending update of a state with rows X (…, N, D): T = ηS + (1 − η)F with S = XᵀX/N.

    In double precision and from Y as it is, R' comes out orthonormal whatever R was. The published PyTorch code
    (`single`) stays in the precision of the network and takes R to be orthonormal: with H = XRᵀ and J = HᵀX,

        Y Yᵀ = (η/N)² J Jᵀ + (η/N)(1 − η)[HᵀH (D + ρ) + (D + ρ) HᵀH] + (1 − η)² (D + ρ)²

    In float32 that is true to 1e-7 of its largest eigenvalue, no more than what δ lets through, and nothing brings rows
    of R back that have lost their length: most of what then becomes of a gradient is rounding.
    """
    # Y = R T from H = XRᵀ and J = HᵀX, so that no D × D matrix is ever formed.
    weight, factors = eta / rows.shape[-2], state.spectrum + state.floor[..., None]
    h = _product(rows, state.basis.mT)
    j = _product(h.mT, rows)
    least = None
    if single:
        past = ((1 - eta) * factors).to(rows.dtype)
        projection = weight * j + past[..., None] * state.basis
        cross = weight * _product(h.mT, h) * past[..., None, :]
        squared = weight**2 * _product(j, j.mT) + cross + cross.mT + torch.diag_embed(past.square())
        least = ((1 - eta) * state.floor).square()
    else:
        projection = j.double() * weight + (1 - eta) * (factors[..., None] * state.basis.double())
    total = eta * _mean_square(rows) + (1 - eta) * (rows.shape[-1] * state.floor + state.spectrum.sum(-1))
    # A batch that is not finite must change nothing, and finding out must not wait for the device.
    finite = torch.isfinite(total) & torch.isfinite(projection).all(-1).all(-1)
    # It is marked by a trace of NaN; R stands for Y there, since it can be decomposed.
    projection = torch.where(finite[..., None, None], projection, state.basis.to(projection.dtype))
    if single:
        finite = finite & torch.isfinite(squared).all(-1).all(-1)
        gram = torch.where(
            finite[..., None, None], squared, torch.eye(squared.shape[-1], dtype=squared.dtype, device=squared.device)
        )
    else:
        gram = projection @ projection.mT
    total = torch.where(finite, total, torch.full_like(total, torch.nan))
    return PendingUpdate(state, projection, gram, total, epsilon, delta, least)


def advanced(update: PendingUpdate, values: Tensor, vectors: Tensor) -> LowRank:
    """The next state, from Y Yᵀ = U C Uᵀ.

    R' = C^−½ Uᵀ Y;  ρ' = (tr T − tr C^½) / (D − r);  D' = C^½ − ρ'. ρ' and D' are then raised to at least
    max(ε, δ·max C^½), after D' was made from ρ'. A batch that is not finite changes nothing.
    """
    return _advanced(update, *_by_squares(update.projection, values, vectors, update.least))


def updated(state: LowRank, rows: Tensor, *, eta: float, epsilon: float, delta: float) -> LowRank:
    """The state after seeing rows X (…, N, D)."""
    update = due(state, rows, eta=eta, epsilon=epsilon, delta=delta)
    return advanced(update, *torch.linalg.eigh(update.gram))


def _advanced(update: PendingUpdate, root: Tensor, basis: Tensor) -> LowRank:
    """The next state from C^½ and R'."""
    state, finite = update.state, torch.isfinite(update.total)
    floor = (update.total - root.sum(-1)) / (basis.shape[-1] - basis.shape[-2])
    smallest = (update.delta * root.amax(-1)).clamp_min(update.epsilon)
    spectrum = (root - floor[..., None]).maximum(smallest[..., None])
    return LowRank(
        # Laid out as it comes back from a checkpoint: on some processors products round by how matrices lie in memory.
        torch.where(finite[..., None, None], basis.to(state.basis.dtype), state.basis).contiguous(),
        torch.where(finite[..., None], spectrum, state.spectrum),
        torch.where(finite, floor.maximum(smallest), state.floor),
    )


def _by_squares(projection: Tensor, values: Tensor, vectors: Tensor, least: Tensor | None) -> tuple[Tensor, Tensor]:
    """C^½ and R' from Y Yᵀ = U C Uᵀ: cheap, and accurate while ρ is at least 1e-8 of the largest eigenvalue."""
    if least is None:
        # Below this an eigenvalue is rounding, and its direction must not grow out of bounds.
        lowest = values.amax(-1, keepdim=True) * (torch.finfo(values.dtype).eps * values.shape[-1])
    else:
        lowest = least[..., None].to(values.dtype)
    root = values.maximum(lowest).clamp_min(torch.finfo(values.dtype).tiny).sqrt()
    return root, (vectors.mT @ projection) / root[..., None]


def _by_singular_values(projection: Tensor) -> tuple[Tensor, Tensor]:
    """C^½ and R' from Y itself, for the first updates, which start ten orders of magnitude below the gradient."""
    _, root, basis = torch.linalg.svd(projection, full_matrices=False)
    return root, basis


def _product(one: Tensor, other: Tensor) -> Tensor:
    """The product of two matrices, rounded as a processor rounds it.

    A GPU adds all terms of an entry one after another, and is off by 2.4e-7 of the factors' norms over 784 terms, where
    a processor's library adds in blocks and is off by 0.7e-7 to 1.0e-7. With `single` that decides what is learned:
    trained on an H200 without blocks, networks of 256 units ended at six times the published training loss.
    """
    if not one.is_cuda or one.shape[-1] <= _LONGEST_SUM:
        return one @ other
    return _product_in_blocks(one, other)


def _product_in_blocks(one: Tensor, other: Tensor) -> Tensor:
    """The product of two matrices, each sum of at most `_LONGEST_SUM` terms on its own before they are added."""
    count = -(-one.shape[-1] // _LONGEST_SUM)
    blocks = zip(one.chunk(count, dim=-1), other.chunk(count, dim=-2), strict=True)
    return torch.stack([part @ of_other for part, of_other in blocks]).sum(0)


def _mean_square(rows: Tensor) -> Tensor:
    """tr S = ‖X‖²/N in float64."""
    return torch.linalg.vector_norm(rows, dim=(-2, -1), dtype=torch.float64).square() / rows.shape[-2]


def weight_of_batch(rows: int, history: float) -> float:
    """Kaldi's η = min(0.9, 1 − exp(−N/history)): the past fades over `history` rows.

    Examples:
        >>> round(weight_of_batch(256, 2000), 4)
        0.1201
    """
    return min(0.9, -math.expm1(-rows / history))
