"""Quantized and low-rank layers, and how far they go before the loss has risen: pure functions of tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

import basinscope as bs

Squeeze = Callable[[Tensor], Tensor]


def quantized(weight: Tensor, bits: float) -> Tensor:
    """Δ · round(w/Δ) with Δ = 2 max|w| / 2^bits: as many equal steps across the range of a layer's weights.

    Examples:
        >>> quantized(torch.tensor([1.0, 0.3, -0.8]), 2.0)
        tensor([ 1.0000,  0.5000, -1.0000])
    """
    step = 2 * weight.abs().max() / 2**bits
    return step * torch.round(weight / step)


def low_rank(weight: Tensor, rank: int) -> Tensor:
    """The nearest weights of a rank in the mean square: of a convolution as a matrix with a row for each output.

    Examples:
        >>> low_rank(torch.diag(torch.tensor([3.0, 2.0])), 1)
        tensor([[3., 0.],
                [0., 0.]])
    """
    u, sizes, v = torch.linalg.svd(weight.flatten(1), full_matrices=False)
    return ((u[:, :rank] * sizes[:rank]) @ v[:rank]).view_as(weight)


def rise(land: bs.Landscape, name: str, squeeze: Squeeze) -> float:
    """How much the mean loss of a prediction rises when one layer's weights are squeezed and all others stay."""
    squeezed = {**land.parameters, name: squeeze(land.parameters[name])}
    return float((land.per_sample(squeezed) - land.per_sample()).mean()) / predictions(land)


def predictions(land: bs.Landscape) -> int:
    """Of a sample: one for each label, of which an image has one and a sequence as many as tokens."""
    target = land.samples.target
    return target.numel() // land.n if land.loss.family == "categorical" and isinstance(target, Tensor) else 1


def critical(sizes: Sequence[float], rises: Sequence[float], most: float) -> float:
    """The size from which on the loss has risen by no more than `most`: interpolated in log2 of the rise.

    Sizes go up. It is the first one where even the smallest is enough, infinite where the largest is not.

    Examples:
        >>> critical([1.0, 2.0, 3.0], [0.4, 0.2, 0.05], 0.1)
        2.5
        >>> critical([1.0, 2.0], [0.4, 0.2], 0.1), critical([1.0, 2.0], [0.05, 0.2], 0.3)
        (inf, 1.0)
    """
    beyond = [place for place, value in enumerate(rises) if value > most]
    if not beyond:
        return float(sizes[0])
    last = beyond[-1]
    if last == len(sizes) - 1:
        return math.inf
    above, below = math.log2(rises[last]), math.log2(max(rises[last + 1], most * 2**-10))
    share = (above - math.log2(most)) / (above - below)
    return float(sizes[last] + share * (sizes[last + 1] - sizes[last]))


def layers(land: bs.Landscape) -> list[str]:
    """Names of the weights that are matrices or convolutions."""
    return [name for name, weight in land.parameters.items() if weight.ndim > 1]
