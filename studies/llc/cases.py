"""Networks and data by the names that jobs have for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from basinscope.errors import InputError
from basinscope.landscape import Landscape
from basinscope.measures.planting import plant_weights
from basinscope.training import train
from basinscope.zoo.data import DataSet, characters, modular_addition
from basinscope.zoo.data.text import ALPHABET
from basinscope.zoo.models import calibrate, ffnn, lenet5, resnet, transformer
from studies.common.classifiers import classifier, images, seeded
from studies.common.measuring import device

RANGE = 10.0  # inputs of the published deep linear networks are uniform on [−10, 10]


# ---------------------------------------------------------------------- deep linear networks


def mean_square(output: Tensor, target: Tensor) -> Tensor:
    """The published code's loss: the mean over outputs of squared errors."""
    return (output - target).square().mean(-1)


def linear_network(widths: tuple[int, ...], rank: int, seed: int, place: torch.device | None = None) -> nn.Sequential:
    """A deep linear network at the most degenerate minimum of that rank, where λ is `exact.deep_linear`."""
    place = place or device()
    net = nn.Sequential(*(nn.Linear(below, above, bias=False, device=place) for below, above in pairwise(widths)))
    plant_weights(net, rank, torch.Generator(place).manual_seed(seed))
    return net


def linear_landscape(net: nn.Sequential, samples: int, seed: int, variance: float | None = None) -> Landscape:
    """The network on data it fits without error.

    With normal inputs, made orthogonal so that their second moment is that variance exactly in every direction however
    few samples there are, and the Gaussian likelihood of variance 1; or, without a variance, as published: inputs
    uniform on [−10, 10] and the mean of squared errors over outputs.
    """
    weight = net[0].weight
    assert isinstance(weight, Tensor)
    generator = torch.Generator(weight.device).manual_seed(seed)
    x = torch.empty(samples, weight.shape[1], device=weight.device)
    if variance is None:
        x.uniform_(-RANGE, RANGE, generator=generator)
    else:
        if samples < x.shape[1]:
            raise InputError(f"samples must be at least the number of inputs, {x.shape[1]}, got {samples}")
        x = torch.linalg.qr(x.normal_(generator=generator))[0] * (samples * variance) ** 0.5
    with torch.no_grad():
        y = torch.cat([net(part) for part in x.split(8192)])
    if variance is None:
        return Landscape(net, mean_square, (x, y))
    return Landscape(net, "gaussian", (x, y), sigma=1.0)


# ---------------------------------------------------------------------- trained classifiers


@lru_cache(maxsize=2)
def trained_classifier(name: str, samples: int, widths: tuple[int, ...], epochs: int, seed: int) -> Landscape:
    """A feedforward network trained with Adam until its gradient is small, on its training data."""
    data = images(name, samples)
    net = seeded(lambda: classifier(data, widths), seed)

    def adam(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-4)

    run = train(net, data.train, adam, epochs=epochs, batch_size=128, seed=seed, progress=False)
    return Landscape(run.model, "cross_entropy", data.train)


def teacher(land: Landscape, seed: int) -> Landscape:
    """The same inputs with labels drawn from the network's own probabilities: w* is then the true parameter.

    A classifier that fits its training data has no minimum to stand on: the loss falls along its weights for ever. As
    its own teacher it has one, up to sampling noise, and H, F and C agree.
    """
    generator = torch.Generator(land.device).manual_seed(seed)
    with torch.no_grad():
        scores = torch.cat([land.outputs(land.parameters, batch.inputs) for batch in land.batches(4096)])
        labels = torch.multinomial(scores.softmax(-1), 1, generator=generator)[:, 0]
    return land.relabel(labels)


# ---------------------------------------------------------------------- architectures beyond


class Square(nn.Module):
    """x ↦ x², with which addition mod p has an exact solution."""

    def forward(self, x: Tensor) -> Tensor:
        return x.square()


@dataclass(frozen=True)
class Subject:
    """A network before training, its data, and how it is trained and measured; None: what `bs.llc` chooses."""

    network: nn.Module
    data: DataSet
    optimizer: Callable[[nn.Module], torch.optim.Optimizer]
    batch_size: int
    gamma: float | None
    sampler: str
    chains: int | None = None
    loss: str = "cross_entropy"


def subject(case: str, size: str, seed: int) -> Subject:
    """One of `resnet`, `text` and `grokking`, `small` or `full`."""
    if size not in ("small", "full"):
        raise InputError(f"size must be 'small' or 'full', got {size!r}")
    makers: dict[str, Callable[[bool, int], Subject]] = {"resnet": _resnet, "text": _text, "grokking": _grokking}
    if case not in makers:
        raise InputError(f"case must be one of {', '.join(makers)}, got {case!r}")
    return makers[case](size == "full", seed)


def _resnet(full: bool, seed: int) -> Subject:
    data = images("cifar10", 500) if full else images("digits", 300)
    net = seeded(lambda: resnet(1, 16) if full else resnet(1, 4, channels=1, stages=2), seed)
    calibrate(net, data.train[0][:512].to(device()))

    def adam(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), lr=1e-3 if full else 5e-3)

    # Minibatch chains on 4,000 images had virial ratios of 0.2 to 0.5. On a GPU every chain takes as long as the first.
    return Subject(net, data, adam, 32, None, "hmc", 4)


def _text(full: bool, seed: int) -> Subject:
    data = characters(512, 32) if full else characters(80, 12, test=40)
    shape: dict[str, Any] = {"layers": 2, "width": 32, "heads": 4} if full else {"layers": 1, "width": 8, "heads": 2}
    net = seeded(lambda: transformer(len(ALPHABET), 32 if full else 12, **shape), seed)

    def adam(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), lr=3e-3)

    # Minibatch chains of a larger one (107,904 parameters) had a virial ratio of 0.14 after 512 steps.
    return Subject(net, data, adam, 32 if full else 20, None, "hmc")


def _grokking(full: bool, seed: int) -> Subject:
    modulus, hidden = (53, 128) if full else (11, 32)
    # Of 53² sums 30 % are learned by heart after some 75 epochs, and the others understood after some 600.
    sums = modular_addition(modulus, fraction=0.3 if full else 0.8, seed=0)
    data = replace(sums, train=one_hot(sums.train, modulus), test=one_hot(sums.test, modulus))
    net = seeded(
        lambda: nn.Sequential(
            nn.Linear(2 * modulus, hidden, bias=False), Square(), nn.Linear(hidden, modulus, bias=False)
        ),
        seed,
    )

    def adamw(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=0.002 if full else 0.01, betas=(0.9, 0.98), weight_decay=1.0)

    # Cross-entropy has no minimum here: its curvature fades as margins grow, and γ = 10 is all that λ̂ sees in the end.
    return Subject(net, data, adamw, len(data.train[1]), 10.0, "hmc", loss="mse")


def one_hot(pair: tuple[Tensor, Tensor], modulus: int) -> tuple[Tensor, Tensor]:
    """Pairs of numbers as two blocks of indicators, their sums as one.

    Examples:
        >>> one_hot((torch.tensor([[1, 0, 2]]), torch.tensor([1])), 2)
        (tensor([[0., 1., 1., 0.]]), tensor([[0., 1.]]))
    """
    tokens, sums = (nn.functional.one_hot(numbers, modulus).float() for numbers in (pair[0][:, :2], pair[1]))
    return tokens.flatten(1), sums


def timed_network(case: str, millions: float) -> tuple[nn.Module, DataSet | tuple[Tensor, Tensor], int]:
    """An architecture for timing, random data for it, and a batch size."""
    rng = torch.Generator().manual_seed(0)
    labels = torch.randint(10, (2048,), generator=rng)
    if case == "mlp":
        return seeded(lambda: ffnn([784, 256, 256, 10]), 0), (torch.rand(2048, 784, generator=rng), labels), 512
    if case == "lenet5":
        return seeded(lenet5, 0), (torch.rand(2048, 1, 28, 28, generator=rng), labels), 512
    if case == "resnet":
        return seeded(lambda: resnet(3, 16), 0), (torch.rand(2048, 3, 32, 32, generator=rng), labels), 128
    if case == "text":
        data = characters(2048, 64)
        return seeded(lambda: transformer(len(ALPHABET), 64, layers=2, width=64, heads=4), 0), data.train, 64
    if case == "large":
        width = large_width(millions)
        return seeded(lambda: ffnn([784, width, width, 10]), 0), (torch.rand(2048, 784, generator=rng), labels), 128
    raise InputError(f"case must be mlp, lenet5, resnet, text or large, got {case!r}")


def large_width(millions: float) -> int:
    """Width w of a 784-w-w-10 network with so many million parameters.

    Examples:
        >>> large_width(100.0)
        9610
    """
    wanted = 1e6 * millions - 10
    return round((-796 + (796**2 + 4 * wanted) ** 0.5) / 2)  # w² + 796 w + 10 parameters
