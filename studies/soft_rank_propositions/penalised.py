"""A small convolutional network trained with the soft rank as a penalty, with weight decay and with SAM, at equal cost.

Cost is counted in gradients of one sample's loss: one for plain steps, two for those of SAM (Foret et al. 2021,
https://arxiv.org/abs/2010.01412), and three for each class of each sample of a penalty, which takes a row of the
Jacobian and differentiates it.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import basinscope as bs

from .bounds import images

Row = dict[str, Any]
Pair = tuple[Tensor, Tensor]
BATCH = 64
FEW, EVERY = 8, 4  # samples of a penalty, and the steps from one to the next
PER_ROW, CLASSES = 3, 10
CHANNELS = (1, 8, 12, 10)
RATE = 3e-3
BASE = 1e-3  # weight decay of SAM and of the penalty, and λ of all soft ranks


def price(arm: str) -> float:
    """Gradients of one sample's loss that a step takes.

    Examples:
        >>> price("weight decay"), price("SAM"), price("soft rank")
        (64.0, 128.0, 124.0)
    """
    return {"weight decay": BATCH, "SAM": 2 * BATCH, "soft rank": BATCH + FEW * CLASSES * PER_ROW / EVERY}[arm] * 1.0


def measured(arm: str, strength: float, data: str, samples: int, held: int, test: int, gradients: int,
             seed: int) -> Row:  # fmt: skip
    """Soft rank, losses and gap of a network after so many gradients."""
    (x, y), new = images(data, samples + held, test, seed)
    old, kept = (x[:samples], y[:samples]), (x[samples:], y[samples:])
    began = time.perf_counter()
    net = trained(arm, strength, old, int(gradients / price(arm)), seed)
    spent = time.perf_counter() - began
    land = bs.Landscape(net, "cross_entropy", old)
    losses = {name: loss_of(net, pair) for name, pair in (("train", old), ("held", kept), ("test", new))}
    with torch.no_grad():
        accuracy = float((net(new[0]).argmax(1) == new[1]).double().mean())
    rank = bs.soft_rank(land, weight_decay=BASE, progress=False)
    squares = sum(float(tensor.detach().square().sum()) for tensor in net.parameters())
    return {
        **{f"loss_{name}": value for name, value in losses.items()}, "gap": losses["test"] - losses["train"],
        "accuracy": accuracy, "soft_rank": rank.value, "norm": squares**0.5, "spent": spent,
    }  # fmt: skip


def trained(arm: str, strength: float, data: Pair, steps: int, seed: int) -> nn.Module:
    """The network after so many steps of Adam, its rate decayed to zero.

    `strength` is the weight decay, SAM's radius ρ, or how many times rank_λ(F)/n, the gap that is predicted, is added
    to the loss.
    """
    x, y = data
    torch.manual_seed(seed)
    net = bs.zoo.models.convnet(CHANNELS)
    land = bs.Landscape(net, "cross_entropy", data)
    decay = strength if arm == "weight decay" else BASE
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE, weight_decay=decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, steps))
    generator = torch.Generator().manual_seed(seed)
    for step in range(steps):
        batch = torch.randint(len(x), (BATCH,), generator=generator)
        optimizer.zero_grad()
        loss = functional.cross_entropy(net(x[batch]), y[batch])
        if arm == "soft rank" and step % EVERY == 0:
            few = torch.randint(len(x), (FEW,), generator=generator)
            rank = bs.penalty(land, net, few, weight_decay=BASE)
            loss = torch.add(loss, rank, alpha=EVERY * strength / len(x))
        loss.backward()
        if arm == "SAM":
            _climb(net, strength, x[batch], y[batch])
        optimizer.step()
        schedule.step()
    return net


def _climb(net: nn.Module, radius: float, x: Tensor, y: Tensor) -> None:
    """Replace the gradients by those at w + ρ g/‖g‖."""
    weights = list(net.parameters())
    slopes = [weight.grad.clone() for weight in weights if weight.grad is not None]
    size = torch.stack([slope.square().sum() for slope in slopes]).sum().sqrt() + 1e-12
    before = [weight.detach().clone() for weight in weights]
    with torch.no_grad():
        for weight, slope in zip(weights, slopes, strict=True):
            weight.add_(slope, alpha=float(radius / size))
    net.zero_grad()
    functional.cross_entropy(net(x), y).backward()
    with torch.no_grad():
        for weight, value in zip(weights, before, strict=True):
            weight.copy_(value)


def loss_of(net: nn.Module, pair: Pair) -> float:
    """The mean loss."""
    with torch.no_grad():
        return float(functional.cross_entropy(net(pair[0]).double(), pair[1]))
