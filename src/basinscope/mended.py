"""Functions whose derivatives torch gets wrong or lacks, made of others whose derivatives it gets right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from .errors import InputError


def _prelu(input: Tensor, weight: Tensor) -> Tensor:
    """x where x > 0, else a x: batched over samples and roots at once, torch mixes them up in the gradient in a."""
    if weight.numel() > 1:
        weight = weight.view(-1, *[1] * (input.ndim - 2))
    return torch.where(input > 0, input, weight * input)


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """v g/‖v‖: torch's second derivative of its fused form is not even symmetric."""
    return v * (g / torch.norm_except_dim(v, 2, dim))


def _embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of a table, whose gradient is dense and nothing but the gradient."""
    _refuse_renormalizing(max_norm)
    return functional.embedding(input, weight, padding_idx)


def _is_plain(options: Mapping[str, Any]) -> bool:
    return all(options.get(name) in (None, False) for name in ("max_norm", "scale_grad_by_freq", "sparse"))


def _embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Rows of a table put together bag by bag, which torch cannot differentiate twice."""
    _refuse_renormalizing(max_norm)
    if input.ndim != 2:
        raise InputError(
            "EmbeddingBag needs bags of one length, of shape (n, T), so that a sample has a loss of its own: got "
            "offsets — pad the bags and name padding_idx"
        )
    rows = functional.embedding(input, weight)
    present = torch.ones_like(input, dtype=torch.bool) if padding_idx is None else input != padding_idx
    count = present.sum(1, keepdim=True)
    if mode == "max":
        top = rows.masked_fill(~present.unsqueeze(-1), -torch.inf).max(1).values
        return torch.where(count > 0, top, 0.0)
    weights = present.to(rows.dtype) if per_sample_weights is None else present * per_sample_weights
    total = (weights.unsqueeze(-1) * rows).sum(1)
    return total / count.clamp(min=1) if mode == "mean" else total


def _refuse_renormalizing(max_norm: float | None) -> None:
    if max_norm is not None:
        raise InputError(
            f"the model must be a fixed function of its weights, but an embedding with max_norm={max_norm:g} rescales "
            f"them as it is called — rescale the rows once and set max_norm=None"
        )


def _cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = None) -> Tensor:
    """‖x − y‖ for all pairs of rows, with torch's slope of 0 where they coincide; it has no second derivative there."""
    gaps = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    if p != 2:
        return torch.linalg.vector_norm(gaps, p, -1)
    squares = gaps.square().sum(-1)
    apart = squares > 0
    return torch.where(apart, torch.where(apart, squares, 1.0).sqrt(), 0.0)


_REPLACEMENTS: dict[Any, Callable[..., Tensor]] = {
    torch.prelu: _prelu,
    torch.Tensor.prelu: _prelu,
    torch._weight_norm: _weight_norm,
    torch.cdist: _cdist,
    functional.embedding: _embedding,
    functional.embedding_bag: _embedding_bag,
}


class Mended(TorchFunctionMode):
    """A mode that replaces those functions; `used` says whether any of them was called.

    Examples:
        >>> with Mended() as mode:
        ...     torch.nn.PReLU()(torch.tensor([-4.0, 4.0])).tolist()
        [-1.0, 4.0]
        >>> mode.used
        True
    """

    used = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        replacement = _REPLACEMENTS.get(func)
        if replacement is _embedding and _is_plain(kwargs or {}):
            replacement = None  # torch's own is right, and the factored routes know it
        self.used |= replacement is not None
        return (replacement or func)(*args, **(kwargs or {}))
