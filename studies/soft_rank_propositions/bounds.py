"""Trained networks, and the inequalities for trace functions of their Fisher matrix and of parts of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

import basinscope as bs
from basinscope.curvature.dense import dense

Row = dict[str, Any]
# Functions of the eigenvalues of Λ^(−1/2) F Λ^(−1/2); the last is not concave, and no theorem speaks of it.
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "soft rank": lambda x: x / (1 + x),
    "log det": lambda x: 0.5 * torch.log1p(x),
    "soft rank of second order": lambda x: (x / (1 + x)).square(),
}
CONCAVE = ("soft rank", "log det")
WIDTHS: dict[str, Callable[[], nn.Module]] = {
    "mlp": lambda: bs.zoo.models.ffnn([49, 12, 10]),
    "deep mlp": lambda: bs.zoo.models.ffnn([49, 10, 10, 10]),
    "cnn": lambda: bs.zoo.models.convnet([1, 4, 6, 10]),
}


def images(data: str, train: int, test: int, seed: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """So many training and test images of 7 × 7 pixels, and their labels."""
    found = bs.zoo.data.load(data, view="7x7")
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(found.train[0]), generator=generator)[:train]
    others = torch.randperm(len(found.test[0]), generator=generator)[:test]
    return (found.train[0][chosen], found.train[1][chosen]), (found.test[0][others], found.test[1][others])


def measured(network: str, data: str, decay: float, samples: int, steps: int, batches: tuple[int, ...],
             seed: int) -> list[Row]:  # fmt: skip
    """Each function of the whole matrix beside its value for blocks, for the diagonal, and summed over batches."""
    (x, y), _ = images(data, samples, 1, seed)
    net = trained(network, x, y, decay, steps, seed)
    land = bs.Landscape(net.double(), "cross_entropy", (x.double(), y))
    fisher = dense(land, "fisher")
    rows: list[Row] = []
    for metric, root in metrics(land, decay, seed):
        whitened = root @ fisher @ root
        stand_ins = {name: [whitened[part, part] for part in blocks] for name, blocks in pinchings(land).items()}
        for size in batches:
            splits = torch.arange(samples).split(size)
            stand_ins[f"batches of {size}"] = [
                root @ dense(land.subset(each), "fisher") @ root * (len(each) / samples) for each in splits
            ]
        whole = totals([whitened])
        for name, parts in stand_ins.items():
            sums = totals(parts)
            rows += [{"metric": metric, "stand_in": name, "function": function, "whole": whole[function],
                      "value": sums[function]} for function in FUNCTIONS]  # fmt: skip
    return rows


def trained(network: str, x: Tensor, y: Tensor, decay: float, steps: int, seed: int) -> nn.Module:
    """The network after so many steps of Adam on all data, with (decay/2)‖w‖² added to the loss."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Flatten(), WIDTHS[network]()) if "mlp" in network else WIDTHS[network]()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2, weight_decay=decay)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    return net


def metrics(land: bs.Landscape, decay: float, seed: int) -> Iterator[tuple[str, Tensor]]:
    """Λ^(−1/2) of two penalties: one number, and a positive definite block for each tensor."""
    d = land.dimension
    yield "λI", torch.eye(d, dtype=torch.float64) / decay**0.5
    generator = torch.Generator().manual_seed(seed)
    root = torch.zeros(d, d, dtype=torch.float64)
    for part in by_tensor(land):
        size = part.stop - part.start
        factor = torch.randn(size, size + 5, generator=generator, dtype=torch.float64)
        values, vectors = torch.linalg.eigh(decay * (factor @ factor.T / (size + 5) + 0.1 * torch.eye(size)))
        root[part, part] = vectors * values.rsqrt() @ vectors.T
    yield "a block for each tensor", root


def pinchings(land: bs.Landscape) -> dict[str, list[slice]]:
    """What is kept of the matrix: blocks for layers, and those for tensors."""
    tensors = by_tensor(land)
    layers: dict[str, list[slice]] = {}
    for name, part in zip(land.parameters, tensors, strict=True):
        layers.setdefault(name.rpartition(".")[0], []).append(part)
    return {"blocks of layers": [slice(own[0].start, own[-1].stop) for own in layers.values()],
            "blocks of tensors": tensors}  # fmt: skip


def by_tensor(land: bs.Landscape) -> list[slice]:
    """Where each tensor's parameters lie in the row of all."""
    ends = torch.tensor([0, *(tensor.numel() for tensor in land.parameters.values())]).cumsum(0).tolist()
    return [slice(start, end) for start, end in pairwise(ends)]


def totals(matrices: list[Tensor]) -> dict[str, float]:
    """Σ h(σ) over the eigenvalues of all matrices, for each h; those that rounding made negative are taken as zero."""
    values = torch.cat([torch.linalg.eigvalsh(matrix) for matrix in matrices]).clamp(min=0)
    return {name: float(function(values).sum()) for name, function in FUNCTIONS.items()}
