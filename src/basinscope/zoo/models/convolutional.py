"""Convolutional networks without skip connections."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from ...checks import whole
from ...errors import InputError


def lenet5(channels: int = 1, classes: int = 10, size: int = 28) -> nn.Sequential:
    """LeNet-5 with ReLU and max pooling, for square images of `size` 28 (padded by two) or 32.

    It is that of LeCun, Bottou, Bengio and Haffner (1998, https://doi.org/10.1109/5.726791).

    Convolutions 6 and 16 channels of 5 × 5, each followed by 2 × 2 pooling, then 400-120-84-classes.

    Examples:
        >>> sum(weight.numel() for weight in lenet5().parameters())
        61706
    """
    if size not in (28, 32):
        raise InputError(f"size must be 28 or 32, got {size!r} — resize the images")
    return nn.Sequential(
        nn.Conv2d(whole("channels", channels, least=1), 6, 5, padding=(32 - size) // 2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, whole("classes", classes, least=1)),
    )


def convnet(channels: Sequence[int]) -> nn.Sequential:
    """3 × 3 convolutions without padding, with ReLU between them; the last one's values are flattened.

    Each convolution takes two pixels off height and width, so that three of them turn images of 7 × 7 pixels into one
    score for each channel of the last.

    Args:
        channels: from the input to the output, at least two.

    Examples:
        >>> sum(weight.numel() for weight in convnet([1, 15, 20, 10]).parameters())
        4680
    """
    sizes = [whole("a number of channels", count, least=1) for count in channels]
    if len(sizes) < 2:
        raise InputError(f"channels must name at least the input and the output, got {sizes}")
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Conv2d(inputs, outputs, 3), nn.ReLU()]
    return nn.Sequential(*layers[:-1], nn.Flatten())
