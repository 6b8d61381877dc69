"""The loss of sequences from scores over a vocabulary, a piece of the positions at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from ..adapters.hugging_face import IGNORED_LABEL

PIECE = 1 << 24  # scores in float32 that may be in memory at once


def token_losses(scores: Tensor, target: Tensor, *, compiled: bool = False) -> Tensor:
    """−log p of every target, (m, T) 0 where there is none; `scores` are (m, T, vocabulary).

    Probabilities of a piece of the positions are computed at a time, and again for the gradient, so that those of all
    positions are never in memory at once. With `compiled` they never are at all: one kernel goes over the scores, as in
    the compiled training step of a model, and reads them once more for the gradient.

    Examples:
        >>> token_losses(torch.zeros(1, 2, 4), torch.tensor([[3, -100]])).tolist()
        [[1.3862943649291992, 0.0]]
    """
    flat, labels = scores.flatten(0, -2), target.flatten()
    if compiled:
        return _compiled()(flat, labels).view(target.shape)
    rows = max(1, PIECE // scores.shape[-1])
    if len(flat) <= rows:
        return _losses(flat, labels).view(target.shape)
    pieces = zip(flat.split(rows), labels.split(rows), strict=True)
    if not torch.is_grad_enabled():
        return torch.cat([_losses(*piece) for piece in pieces]).view(target.shape)
    each = [checkpoint(_losses, *piece, use_reentrant=False, preserve_rng_state=False) for piece in pieces]
    return torch.cat(each).view(target.shape)


def _losses(scores: Tensor, labels: Tensor) -> Tensor:
    wide = scores if scores.dtype.itemsize > 4 else scores.float()
    return functional.cross_entropy(wide, labels, reduction="none", ignore_index=IGNORED_LABEL)


@cache
def _compiled() -> Callable[[Tensor, Tensor], Tensor]:
    fused: Callable[[Tensor, Tensor], Tensor] = torch.compile(_losses)
    return fused
