"""Data, networks and trainings of the study."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

import basinscope as bs
from basinscope.zoo.models.transformer import Attention

Pair = tuple[Tensor, Tensor]
HIDDEN = 16
_RATE, _FAST = 0.02, 1e-2


def images(name: str, train: int, test: int, seed: int) -> tuple[Pair, Pair]:
    """So many training and test images as rows of pixels with their mean taken out, and their labels."""
    data = bs.zoo.data.load(name, view="full" if name == "digits" else "7x7")
    generator = torch.Generator().manual_seed(seed)
    parts = []
    for (x, y), count in ((data.train, train), (data.test, test)):
        chosen = torch.randperm(len(x), generator=generator)[:count]
        parts.append((x[chosen].flatten(1), y[chosen]))
    mean = parts[0][0].mean(0)
    (x, y), (other, labels) = parts
    return (2 * (x - mean), y), (2 * (other - mean), labels)


def flipped(labels: Tensor, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Labels of which a share is wrong, and which (n,)."""
    generator = torch.Generator().manual_seed(seed)
    wrong = torch.zeros(len(labels), dtype=torch.bool)
    wrong[torch.randperm(len(labels), generator=generator)[: int(share * len(labels))]] = True
    other = (labels + torch.randint(1, 10, labels.shape, generator=generator)) % 10
    return torch.where(wrong, other, labels), wrong


def network(weights: dict[str, Tensor]) -> nn.Module:
    """The network of one of the rows of `trained`."""
    inputs = weights["0.weight"].shape[1]
    net = nn.Sequential(nn.Linear(inputs, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 10))
    net.load_state_dict(weights)
    return net


def trained(data: Pair, chosen: Tensor, decay: float, steps: int, seed: int) -> dict[str, Tensor]:
    """Networks trained on the samples that `chosen` (networks, n) gives weight to, from one initialization, as one
    program: each minimizes (1/n) Σ_i chosen_i ℓ_i + (decay/2)‖w‖². Their weights have a first axis over networks."""
    x, y = data
    torch.manual_seed(seed)
    first = network_like(x.shape[1]).state_dict()
    weights = {
        name: tensor.expand(len(chosen), *tensor.shape).clone().requires_grad_() for name, tensor in first.items()
    }
    optimizer = torch.optim.Adam(weights.values(), lr=_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        losses = (chosen * row_losses(weights, x, y)).mean(1)
        squares = sum(tensor.flatten(1).square().sum(1) for tensor in weights.values())
        (losses + 0.5 * decay * squares).sum().backward()
        optimizer.step()
        schedule.step()
    return {name: tensor.detach() for name, tensor in weights.items()}


def network_like(inputs: int) -> nn.Sequential:
    """An untrained network."""
    return nn.Sequential(nn.Linear(inputs, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 10))


def row_losses(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy of every network on every sample, (networks, n)."""
    hidden = torch.tanh(x @ weights["0.weight"].transpose(1, 2) + weights["0.bias"][:, None])
    scores = hidden @ weights["2.weight"].transpose(1, 2) + weights["2.bias"][:, None]
    labels = y.expand(len(scores), -1)
    return functional.cross_entropy(scores.transpose(1, 2), labels, reduction="none")


class AttentionOnly(nn.Module):
    """Token and position embeddings, layers of attention that add to the stream, and a read-out."""

    def __init__(self, vocabulary: int, context: int, width: int, heads: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(0.1 * torch.randn(context, width))
        self.blocks = nn.ModuleList(Attention(context, width, heads) for _ in range(2))
        self.readout = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        stream = self.tokens(tokens) + self.positions[: tokens.shape[-1]]
        for block in self.blocks:
            stream = stream + block(stream)
        return self.readout(stream)


def repeating(pieces: Tensor, periods: Tensor, length: int) -> Tensor:
    """Rows of so many tokens that begin with a piece and repeat its first `periods` tokens again and again."""
    places = torch.arange(length) % periods[:, None]
    return pieces.gather(1, places)


def story(count: int, length: int, seed: int) -> Tensor:
    """Windows (count, length) of characters of a made-up story."""
    return bs.zoo.data.characters(count, length, test=1, seed=seed).train[0]


def induction(text: Tensor, vocabulary: int, width: int, heads: int, steps: int, seed: int) -> AttentionOnly:
    """A two-layer transformer trained on text, half of which repeats after 6 to 16 tokens, and on random tokens
    that do."""
    torch.manual_seed(seed)
    length = text.shape[1]
    net = AttentionOnly(vocabulary, length, width, heads)
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(net.parameters(), lr=_FAST)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _FAST, total_steps=steps)
    for _ in range(steps):
        rows = text[torch.randint(len(text), (32,), generator=generator)]
        pieces = torch.cat([rows, torch.randint(vocabulary, rows.shape, generator=generator)])
        periods = torch.randint(6, 17, (len(pieces),), generator=generator)
        periods[:16] = length  # half of the text does not repeat
        rows = repeating(pieces, periods, length)
        optimizer.zero_grad()
        scores = net(rows[:, :-1])
        functional.cross_entropy(scores.flatten(0, 1), rows[:, 1:].flatten()).backward()
        optimizer.step()
        schedule.step()
    return net


def attention_to_what_followed(net: AttentionOnly, rows: Tensor, period: int) -> Tensor:
    """How much each head attends, where a segment repeats, to the token that followed the present one before: (layers,
    heads), 1 for a perfect induction head."""
    length = rows.shape[1]
    places = torch.arange(period, length - 1)
    with torch.no_grad():
        stream = net.tokens(rows) + net.positions
        found = []
        for block in net.blocks:
            assert isinstance(block, Attention)
            size = stream.shape[-1] // block.heads
            query, key, _ = block.project(stream).unflatten(-1, (3, block.heads, size)).movedim(-3, 0)
            scores = torch.einsum("nqhs,nkhs->nhqk", query, key) / size**0.5
            weights = scores.masked_fill(block.later, -torch.inf).softmax(-1)
            found.append(weights[:, :, places, places - period + 1].mean((0, 2)))
            stream = stream + block(stream)
    return torch.stack(found)
