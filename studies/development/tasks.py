"""What the transformers learn: the next token of real text, and linear regression from examples in the context."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from basinscope.errors import InputError
from basinscope.zoo.models import transformer
from basinscope.zoo.models.transformer import TransformerBlock

from .corpus import corpus

_FOR_TOKENIZER = 4_000_000  # characters from which the tokenizer learns its pairs


@dataclass(frozen=True)
class Task:
    """A network before training, its data, and the loss.

    Attributes:
        network: with its first weights.
        x, y: inputs and targets, a row for each sequence.
        loss: by its name.
    """

    network: nn.Module
    x: Tensor
    y: Tensor
    loss: str


def text_task(seed: int, *, megabytes: float, vocabulary: int, context: int, width: int, heads: int) -> Task:
    """A transformer of two layers of attention alone, on sequences of real text that do not overlap."""
    tokens = encoded(corpus(megabytes), vocabulary)
    count = (len(tokens) - 1) // context
    if count < 2:
        raise InputError(f"{len(tokens):,} tokens are too few for sequences of {context} — raise megabytes")
    x = tokens[: count * context].view(count, context)
    y = tokens[1 : count * context + 1].view(count, context)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(seed)
    net = transformer(vocabulary, context, layers=2, width=width, heads=heads, feedforward=False)
    return Task(net, x[order], y[order], "cross_entropy")


def encoded(text: str, vocabulary: int) -> Tensor:
    """Text as tokens: its bytes for a vocabulary of 256, else pairs of bytes that are learnt from its beginning."""
    if vocabulary == 256:
        return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8).long()
    try:
        from tokenizers import ByteLevelBPETokenizer
    except ImportError as error:
        raise InputError("a vocabulary other than 256 needs tokenizers — install basinscope[transformers]") from error
    tokenizer = ByteLevelBPETokenizer()
    parts = [text[start : start + 10_000] for start in range(0, len(text), 10_000)]
    tokenizer.train_from_iterator(
        parts[: _FOR_TOKENIZER // 10_000], vocab_size=vocabulary, min_frequency=2, show_progress=False
    )
    return torch.tensor([token for part in tokenizer.encode_batch(parts) for token in part.ids])


class InContextRegression(nn.Module):
    """A transformer that reads x₁, y₁, x₂, y₂, … and says y_k at x_k.

    A token is a vector of one entry for y and D for x; where it is a y, x is zero, and the other way round.
    """

    def __init__(self, dimension: int, examples: int, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.embedding = nn.Linear(dimension + 1, width)
        self.positions = nn.Parameter(0.02 * torch.randn(2 * examples, width))
        self.blocks = nn.ModuleList(TransformerBlock(2 * examples, width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.readout = nn.Linear(width, 1)

    def forward(self, tokens: Tensor) -> Tensor:
        stream = self.embedding(tokens) + self.positions
        for block in self.blocks:
            stream = block(stream)
        return self.readout(self.norm(stream[..., ::2, :]))[..., 0]


def regression_task(
    seed: int, *, tasks: int, dimension: int, examples: int, layers: int, width: int, heads: int
) -> Task:
    """In-context linear regression: y = w·x + ε/8 with w and x from standard normal distributions, a new w in every
    sequence (Raventós et al. 2023, https://arxiv.org/abs/2306.15063)."""
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(tasks, dimension, 1, generator=generator)
    x = torch.randn(tasks, examples, dimension, generator=generator)
    y = (x @ weights)[..., 0] + 0.125 * torch.randn(tasks, examples, generator=generator)
    tokens = torch.zeros(tasks, 2 * examples, dimension + 1)
    tokens[:, ::2, 1:] = x
    tokens[:, 1::2, 0] = y
    torch.manual_seed(seed)
    return Task(InContextRegression(dimension, examples, layers, width, heads), tokens, y, "mse")
