"""Networks and data: a regression with exact answers, classifiers that are trained again without some of their data,
and a transformer with attention alone that copies what it has seen."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn import functional

from basinscope.zoo.data import characters, load
from basinscope.zoo.models import transformer

SEGMENT = 16  # characters that are repeated
RATE = 0.02  # of Adam, for classifiers
TRANSFORMER_RATE = 3e-3
BATCH, BATCHES = 64, 100


@lru_cache(maxsize=4)
def images(name: str, samples: int, queries: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training and test images as vectors of zero mean, with their labels: 8 × 8, MNIST's averaged to 14 × 14."""
    data = load(name, train=samples, test=queries)
    (seen, labels), (unseen, others) = data.train, data.test
    if name != "digits":
        seen, unseen = (functional.avg_pool2d(each, 2) for each in (seen, unseen))
    mean = seen.mean()
    return seen.flatten(1) - mean, labels, unseen.flatten(1) - mean, others


def classifier(inputs: int, hidden: int, seed: int) -> nn.Sequential:
    """One hidden layer of tanh units."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, 10))


def fitted(net: nn.Sequential, x: Tensor, y: Tensor, chosen: Tensor, decay: float, steps: int) -> list[nn.Sequential]:
    """Networks trained from one start, each by Adam on the mean loss of the samples that its row of `chosen` marks.

    The objective has (decay/2)‖w‖² besides; the rate falls to zero along a cosine, so that all end at a minimum.
    """
    weights, _ = stack_module_state([net] * len(chosen))
    weights = {name: tensor.detach().clone() for name, tensor in weights.items()}
    share = chosen.float() / chosen.sum(1, keepdim=True)

    def objective(point: dict[str, Tensor], each: Tensor) -> Tensor:
        losses = functional.cross_entropy(functional_call(net, point, (x,)), y, reduction="none")
        return each @ losses + 0.5 * decay * sum(tensor.square().sum() for tensor in point.values())

    slopes = vmap(grad(objective))
    adam = torch.optim.Adam(list(weights.values()), lr=RATE)
    for step in range(steps):
        adam.param_groups[0]["lr"] = RATE * 0.5 * (1 + math.cos(math.pi * step / steps))
        for name, slope in slopes(weights, share).items():
            weights[name].grad = slope
        adam.step()
    found = []
    for member in range(len(chosen)):
        one = classifier(x.shape[1], net[0].out_features, 0)
        one.load_state_dict({name: tensor[member] for name, tensor in weights.items()})
        found.append(one)
    return found


def regression(samples: int, width: int, noise: float, seed: int) -> tuple[nn.Linear, Tensor, Tensor]:
    """A linear network at the least squares of data with unequal directions; in float64."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, width, generator=draw, dtype=torch.float64) / torch.arange(1.0, width + 1).double().sqrt()
    y = x.sum(1, keepdim=True) + noise * torch.randn(samples, 1, generator=draw, dtype=torch.float64)
    net = nn.Linear(width, 1, bias=False, dtype=torch.float64)
    with torch.no_grad():
        net.weight.copy_(torch.linalg.lstsq(x, y).solution.T)
    return net, x, y


class Nothing(nn.Module):
    """The feedforward part of a block that has none."""

    def forward(self, stream: Tensor) -> Tensor:
        return torch.zeros_like(stream)


def sequences(count: int, seed: int, *, repeated: bool) -> tuple[Tensor, Tensor]:
    """Characters of a text, with the next character of each: two segments of it after each other or, `repeated`, one
    segment twice whose characters are shuffled, so that only who has seen the first occurrence knows the second."""
    text = characters(2 * count, SEGMENT + 1, test=1, seed=seed).train[0][:, :SEGMENT].long()
    draw = torch.Generator().manual_seed(seed)
    text = text[torch.randperm(len(text), generator=draw)]
    if repeated:
        first = text[:count].gather(1, torch.rand(count, SEGMENT, generator=draw).argsort(1))
        whole = torch.cat([first, first], 1)
    else:
        whole = torch.cat([text[:count], text[count : 2 * count]], 1)
    return whole[:, :-1], whole[:, 1:]


@lru_cache(maxsize=1)
def copying(layers: int, heads: int, width: int, steps: int, seed: int) -> nn.Module:
    """A transformer with attention alone, trained on sequences of which half are repeated segments."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = transformer(29, 2 * SEGMENT, layers=layers, width=width, heads=heads)
        for block in net.blocks:
            block.feedforward, block.norm = Nothing(), nn.Identity()
        adam = torch.optim.Adam(net.parameters(), lr=TRANSFORMER_RATE)
        data = [sequences(64 * BATCHES, seed + both, repeated=both) for both in (True, False)]
        for step in range(steps):
            adam.param_groups[0]["lr"] = TRANSFORMER_RATE * min(1, step / 100, 2 * (1 - step / steps))
            rows = torch.randint(64 * BATCHES, (2, BATCH // 2))
            x, y = (torch.cat([data[part][side][rows[part]] for part in (0, 1)]) for side in (0, 1))
            adam.zero_grad()
            functional.cross_entropy(net(x).movedim(-1, 1), y).backward()
            adam.step()
    return net.eval()


def attention_to_repeats(net: nn.Module, tokens: Tensor) -> Tensor:
    """How much each head of the second occurrence of a segment attends to what came after the first: prefix matching,
    the share of its attention, as a mean over places; (layers, heads)."""
    found = []
    with torch.no_grad():
        stream = net.tokens(tokens) + net.positions[: tokens.shape[1]]
        for block in net.blocks:
            inside = block.attention_norm(stream)
            attention = block.attention
            split = attention.project(inside).unflatten(-1, (3, attention.heads, -1)).movedim(-3, 0)
            query, key, _ = split.transpose(-3, -2)
            scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
            length = tokens.shape[1]
            shares = scores.masked_fill(attention.later[:length, :length], -math.inf).softmax(-1)
            places = torch.arange(SEGMENT + 1, length)
            found.append(shares[:, :, places, places - SEGMENT + 1].mean((0, 2)))
            stream = stream + attention(inside)
    return torch.stack(found)
