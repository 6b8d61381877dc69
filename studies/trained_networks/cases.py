"""Networks with ReLU units on the digits: classifiers, and least squares on few samples with noisy labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise

import torch
from torch import Tensor, nn

from basinscope.zoo.data import load

CLASSES = 10


@lru_cache(maxsize=1)
def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images and labels of the training and test data, images as vectors in float64."""
    data = load("digits")
    (seen, labels), (unseen, others) = data.train, data.test
    return seen.flatten(1).double(), labels, unseen.flatten(1).double(), others


def network(widths: Sequence[int], seed: int) -> nn.Sequential:
    """64 inputs, hidden layers of these widths, 10 outputs; torch's random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers: list[nn.Module] = []
        for below, above in pairwise((64, *widths, CLASSES)):
            layers += [nn.Linear(below, above, dtype=torch.float64), nn.ReLU()]
        return nn.Sequential(*layers[:-1])


def noisy(samples: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Some of the training images, with one-hot labels of which a share is drawn at random."""
    images, labels, _, _ = digits()
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(images), generator=generator)[:samples]
    wrong = torch.rand(samples, generator=generator) < share
    drawn = torch.randint(CLASSES, (samples,), generator=generator)
    return images[chosen], one_hot(torch.where(wrong, drawn, labels[chosen]))


def one_hot(labels: Tensor) -> Tensor:
    """Labels as targets of a regression."""
    return nn.functional.one_hot(labels, CLASSES).double()


def half_square(output: Tensor, target: Tensor) -> Tensor:
    """½|f − y|² of each sample."""
    return 0.5 * ((output - target) ** 2).sum(1)


def trained(net: nn.Sequential, loss: Callable[[Tensor], Tensor], x: Tensor, steps: int, rate: float) -> nn.Sequential:
    """Adam on all data, with a rate that falls to zero along a cosine."""
    adam = torch.optim.Adam(net.parameters(), lr=rate)
    for step in range(steps):
        for group in adam.param_groups:
            group["lr"] = rate * 0.5 * (1 + math.cos(math.pi * step / steps))
        adam.zero_grad()
        loss(net(x)).backward()
        adam.step()
    return net
