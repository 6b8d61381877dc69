"""Where the heads of a transformer look."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..landscape import Landscape, math_attention


def attention_patterns(land: Landscape, tokens: Tensor) -> list[Tensor]:
    """softmax(QKᵀ/√d) of every layer at w*, each (m, heads, T, T); row t is what position t looks at.

    Read from models of Hugging Face transformers, from `nn.MultiheadAttention`, and from `zoo.models.transformer`.

    Args:
        land: of the network.
        tokens: token numbers (m, T).

    Examples:
        >>> import torch, basinscope as bs
        >>> net = bs.zoo.models.transformer(8, 6, layers=2, width=4, heads=2)
        >>> data = torch.randint(8, (10, 7))
        >>> land = bs.Landscape(net, "cross_entropy", (data[:, :-1], data[:, 1:]))
        >>> patterns = attention_patterns(land, data[:3, :6])
        >>> len(patterns), patterns[0].shape, bool(torch.allclose(patterns[0].sum(-1), torch.ones(3, 2, 6)))
        (2, torch.Size([3, 2, 6, 6]), True)
    """
    with torch.no_grad(), math_attention():
        if isinstance(land.samples.inputs, Mapping):
            output = land.outputs(land.parameters, {"input_ids": tokens, "output_attentions": True})
            seen = [pattern for pattern in getattr(output, "attentions", None) or () if pattern is not None]
        else:
            seen = _hooked(land, tokens)
    if not seen:
        raise InputError(
            f"no attention that can be read in {type(land.module).__name__}: expected a transformer of Hugging Face, "
            f"of nn.MultiheadAttention, or of zoo.models"
        )
    return seen


def _hooked(land: Landscape, tokens: Tensor) -> list[Tensor]:
    """Patterns from hooks on modules that are known."""
    seen: list[Tensor] = []
    handles: list[Any] = []
    for module in land.module.modules():
        if isinstance(module, nn.MultiheadAttention):
            handles.append(module.register_forward_pre_hook(_asks_for_weights, with_kwargs=True))
            handles.append(module.register_forward_hook(lambda _module, _given, output: seen.append(output[1])))
            continue
        project, heads = getattr(module, "project", None), getattr(module, "heads", None)
        if isinstance(project, nn.Linear) and isinstance(heads, int):
            handles.append(project.register_forward_hook(_from_projection(heads, seen)))
    try:
        land.outputs(land.parameters, tokens)
    finally:
        for handle in handles:
            handle.remove()
    return [pattern for pattern in seen if isinstance(pattern, Tensor) and pattern.ndim == 4]


def _asks_for_weights(_module: nn.Module, given: Any, named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    return given, {**named, "need_weights": True, "average_attn_weights": False}


def _from_projection(heads: int, seen: list[Tensor]) -> Any:
    """A hook that makes the causal pattern of queries and keys, the first two thirds of a joint projection."""

    def take(_module: nn.Module, _given: Any, joint: Tensor) -> None:
        length, size = joint.shape[-2], joint.shape[-1] // (3 * heads)
        query, key = joint.unflatten(-1, (3, heads, size)).movedim(-3, 0).transpose(-3, -2)[:2]
        scores = query @ key.transpose(-2, -1) / math.sqrt(size)
        later = torch.ones(length, length, dtype=torch.bool, device=joint.device).triu(1)
        seen.append(scores.masked_fill(later, -math.inf).softmax(-1))

    return take
