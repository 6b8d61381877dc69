"""Three small networks for 7 × 7 grey images of ten classes.

They are those of Shoham, Mor-Yosef and Avron, "Flatness After All?" (2025, https://arxiv.org/abs/2506.17809),
appendix D.1.
"""

from __future__ import annotations

from torch import nn

from .feedforward import ffnn


def flatness_mlp(width: int = 70) -> nn.Sequential:
    """49-70-10 with ReLU: 4,210 parameters; `width` is that of the hidden layer.

    Examples:
        >>> sum(weight.numel() for weight in flatness_mlp().parameters())
        4210
    """
    return ffnn([49, width, 10])


def flatness_big_mlp(width: int = 70) -> nn.Sequential:
    """49-70-70-10 with ReLU: 9,180 parameters; `width` is that of both hidden layers.

    Examples:
        >>> sum(weight.numel() for weight in flatness_big_mlp().parameters())
        9180
    """
    return ffnn([49, width, width, 10])


def flatness_cnn(channels: tuple[int, int] = (15, 20)) -> nn.Sequential:
    """Three 3 × 3 convolutions without padding, 1 → 15 → 20 → 10 channels, with ReLU: 4,680 parameters.

    `channels` are those of the two hidden layers. 7 × 7 shrinks to 5 × 5, 3 × 3 and 1 × 1, so that the last
    convolution's ten channels are the class scores.

    Examples:
        >>> sum(weight.numel() for weight in flatness_cnn().parameters())
        4680
    """
    first, second = channels
    return nn.Sequential(
        nn.Conv2d(1, first, 3),
        nn.ReLU(),
        nn.Conv2d(first, second, 3),
        nn.ReLU(),
        nn.Conv2d(second, 10, 3),
        nn.Flatten(),
    )
