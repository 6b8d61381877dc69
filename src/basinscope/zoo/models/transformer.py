"""A small decoder-only transformer in plain matrix products: differentiable twice, batched by vmap."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ...checks import whole
from ...errors import InputError


def transformer(
    vocabulary: int, context: int, *, layers: int = 2, width: int = 64, heads: int = 4, predict: str = "next",
    feedforward: bool = True,
) -> Transformer:  # fmt: skip
    """A decoder-only transformer: token and position embeddings, pre-normalized blocks, a linear read-out.

    Args:
        vocabulary: number of tokens.
        context: the longest sequence.
        layers: blocks of attention and a feedforward part of 4·width units with GELU.
        width: length of the residual stream, a multiple of `heads`.
        heads: attention heads.
        predict: `next` gives scores at every position, (m, T, vocabulary); `last` at the last one, (m, vocabulary).
        feedforward: whether blocks have their feedforward part; without it they are attention alone.

    Examples:
        >>> net = transformer(28, 16, layers=1, width=8, heads=2)
        >>> tuple(net(torch.zeros(3, 16, dtype=torch.long)).shape)
        (3, 16, 28)
    """
    if predict not in ("next", "last"):
        raise InputError(f"predict must be 'next' or 'last', got {predict!r}")
    width, heads = whole("width", width, least=1), whole("heads", heads, least=1)
    if width % heads:
        raise InputError(f"width must be a multiple of heads, got width={width} and heads={heads}")
    return Transformer(
        whole("vocabulary", vocabulary, least=2),
        whole("context", context, least=1),
        whole("layers", layers, least=1),
        width,
        heads,
        predict == "last",
        feedforward,
    )


class Transformer(nn.Module):
    """A decoder-only transformer; the function `transformer` makes one and documents its arguments."""

    def __init__(self, vocabulary: int, context: int, layers: int, width: int, heads: int, last: bool,
                 feedforward: bool = True) -> None:  # fmt: skip
        super().__init__()
        self.context, self.last = context, last
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(0.02 * torch.randn(context, width))
        self.blocks = nn.ModuleList(TransformerBlock(context, width, heads, feedforward) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.readout = nn.Linear(width, vocabulary, bias=False)
        with torch.no_grad():
            self.tokens.weight.mul_(0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[-1]
        if length > self.context:
            raise InputError(f"a sequence has {length} tokens: expected at most context={self.context}")
        stream = self.tokens(tokens) + self.positions[:length]
        for block in self.blocks:
            stream = block(stream)
        if self.last:
            stream = stream[..., -1, :]
        return self.readout(self.norm(stream))


class TransformerBlock(nn.Module):
    """Causal self-attention, then a feedforward part if there is one, each added to the residual stream."""

    def __init__(self, context: int, width: int, heads: int, feedforward: bool = True) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(context, width, heads)
        self.feedforward: nn.Sequential | None = None
        if not feedforward:
            return
        self.norm = nn.LayerNorm(width)
        self.feedforward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, stream: Tensor) -> Tensor:
        stream = stream + self.attention(self.attention_norm(stream))
        return stream if self.feedforward is None else stream + self.feedforward(self.norm(stream))


class Attention(nn.Module):
    """softmax(Q Kᵀ/√(width/heads)) V per head, without later keys: fused kernels would have no second derivative."""

    later: Tensor

    def __init__(self, context: int, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.register_buffer("later", torch.ones(context, context, dtype=torch.bool).triu(1), persistent=False)

    def forward(self, stream: Tensor) -> Tensor:
        *_, length, width = stream.shape
        split = self.project(stream).unflatten(-1, (3, self.heads, width // self.heads))
        query, key, value = split.movedim(-3, 0).transpose(-3, -2)
        scores = query @ key.transpose(-2, -1) / math.sqrt(width // self.heads)
        mixed = scores.masked_fill(self.later[:length, :length], -math.inf).softmax(-1) @ value
        return self.output(mixed.transpose(-3, -2).flatten(-2))
