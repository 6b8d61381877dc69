"""Soft rank and log-det of a minibatch, differentiable: upper bounds to train against."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..landscape import Landscape, Parameters, check_landscape, math_attention
from ..samples import Samples
from .decay import read_decay
from .likelihood import head, roots
from .samplewise import side_by_side


def penalty(
    land: Landscape,
    parameters: nn.Module | Mapping[str, Tensor],
    batch: Tensor | Samples,
    *,
    weight_decay: float | Mapping[str, float | Tensor],
    kind: Literal["soft_rank", "log_det"] = "soft_rank",
) -> Tensor:
    """(n/m) h((m/n) F_B / Λ), a minibatch's upper bound of rank_Λ(F) or ½ log det(I + F/Λ), with a gradient.

    Over the batches of an epoch F = Σ_B (m_B/n) F_B, and h is concave with h(0) = 0, so
    h(F/Λ) ≤ Σ_B h((m_B/n) F_B/Λ): the mean over batches is never below the whole (Shoham, Mor-Yosef and Avron,
    "Flatness After All?", 2025, https://arxiv.org/abs/2506.17809, Theorem C.3). Added to the training loss, it makes
    the soft rank smaller. F needs no labels.

    Args:
        land: the training problem: model, loss and all n samples.
        parameters: the point, usually the module in training; the gradient flows to its parameters.
        batch: indices of m samples, or the samples. Time and memory grow with (m · classes)², so take few.
        weight_decay: λ > 0, or a dict from name patterns to numbers or tensors.
        kind: `soft_rank` or `log_det`.

    Examples:
        >>> import torch, basinscope as bs
        >>> net = torch.nn.Linear(2, 3)
        >>> land = bs.Landscape(net, "cross_entropy", (torch.randn(40, 2), torch.arange(40) % 3))
        >>> prices = [bs.penalty(land, net, batch, weight_decay=0.1) for batch in torch.arange(40).split(8)]
        >>> bool(torch.stack(prices).mean() >= bs.soft_rank(land, weight_decay=0.1).value)
        True
        >>> prices[0].backward()  # reaches net.weight.grad
    """
    check_landscape(land)
    if kind not in ("soft_rank", "log_det"):
        raise InputError(f"kind must be 'soft_rank' or 'log_det', got {kind!r}")
    decay = read_decay(land, weight_decay, single=True)
    samples = batch if isinstance(batch, Samples) else land.take(batch)
    point = _point(land, parameters)
    rows = _rows(land, point, samples)
    if decay.whitening is not None:
        rows = rows * decay.whitening.to(rows)
    rows = rows / (land.n * decay.level) ** 0.5
    matrix = rows @ rows.T if len(rows) <= land.dimension else rows.T @ rows
    root = torch.linalg.cholesky(matrix + torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device))
    if kind == "log_det":
        value = root.diagonal().log().sum()
    else:
        value = (matrix * torch.cholesky_inverse(root)).sum()
    return value * land.n / samples.n


def _rows(land: Landscape, point: Parameters, batch: Samples) -> Tensor:
    """The gradient rows J_iᵀ s_ik (m·r, d), themselves functions of the point."""
    with math_attention():
        value = head(land, "fisher", point, batch)
        cotangents = list(roots(land, "fisher", value, batch.target))
        stacked = torch.stack(cotangents, 1) if cotangents else value.new_zeros(batch.n, 0, *value.shape[1:])
        rows = side_by_side(land, "fisher", point, batch, stacked)
    return torch.cat([rows[name].flatten(2) for name in land.parameters], 2).flatten(0, 1)


def _point(land: Landscape, parameters: nn.Module | Mapping[str, Tensor]) -> Parameters:
    """The landscape's parameters, as tensors of the module or mapping that gradients flow to."""
    named = dict(parameters.named_parameters()) if isinstance(parameters, nn.Module) else dict(parameters)
    missing = [name for name in land.parameters if name not in named]
    if missing:
        raise InputError(f"parameters must hold all of the landscape's: {missing[:3]} are missing")
    return {name: named[name] for name in land.parameters}
