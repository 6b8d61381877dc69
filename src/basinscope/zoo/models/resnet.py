"""Residual networks for small images."""

from __future__ import annotations

from torch import Tensor, nn

from ...checks import whole
from .normalization import FrozenNorm


def resnet(blocks: int = 3, width: int = 16, *, channels: int = 3, classes: int = 10, stages: int = 3) -> nn.Sequential:
    """A residual network of depth 2·stages·blocks + 2 for small images, with frozen normalization.

    A 3 × 3 convolution, `stages` of `blocks` residual blocks (channels double and resolution halves from stage to
    stage), an average over the image, a linear layer: `blocks=3, width=16` is the ResNet-20 of He et al. (2016,
    https://arxiv.org/abs/1512.03385). Nothing in it depends on the batch; call `calibrate(model, inputs)` before
    training.

    Examples:
        >>> sum(weight.numel() for weight in resnet().parameters())
        272474
    """
    blocks, width = whole("blocks", blocks, least=1), whole("width", width, least=1)
    layers: list[nn.Module] = [
        nn.Conv2d(whole("channels", channels, least=1), width, 3, padding=1, bias=False),
        FrozenNorm(width),
        nn.ReLU(),
    ]
    inputs = width
    for stage in range(whole("stages", stages, least=1)):
        outputs = width * 2**stage
        for block in range(blocks):
            layers.append(ResidualBlock(inputs, outputs, stride=2 if stage and not block else 1))
            inputs = outputs
    head = nn.Linear(inputs, whole("classes", classes, least=1))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)


class ResidualBlock(nn.Module):
    """x ↦ ReLU(s(x) + N₂ C₂ ReLU(N₁ C₁ x)); the shortcut s is the identity or, where the shape changes, N C₁ₓ₁."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
            FrozenNorm(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            FrozenNorm(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), FrozenNorm(outputs))
        self.activation = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.shortcut(x) + self.body(x))
