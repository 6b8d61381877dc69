"""The networks of the study."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from basinscope.errors import InputError
from basinscope.zoo.data import DataSet
from basinscope.zoo.models import calibrate, convnet, ffnn, lenet5, resnet
from basinscope.zoo.models.transformer import TransformerBlock
from studies.common.classifiers import seeded

NETWORKS = ("mlp", "cnn", "resnet20", "vit")
_PATCH = {8: 2, 28: 7, 32: 4}  # pixels of the side of a patch, by those of an image


class VisionTransformer(nn.Module):
    """Patches as tokens that all see each other; the scores come from the mean over them (Dosovitskiy et al. 2021).

    Args:
        shape: of an image, (channels, side, side).
        classes: of the scores.
        layers, width, heads: of the transformer.
    """

    def __init__(self, shape: tuple[int, int, int], classes: int, layers: int, width: int, heads: int) -> None:
        super().__init__()
        channels, side, _ = shape
        self.patch = _PATCH[side]
        count = (side // self.patch) ** 2
        self.embedding = nn.Linear(channels * self.patch**2, width)
        self.positions = nn.Parameter(0.02 * torch.randn(count, width))
        self.blocks = nn.ModuleList(TransformerBlock(count, width, heads) for _ in range(layers))
        for block in self.blocks:
            assert isinstance(block, TransformerBlock)
            block.attention.later.zero_()  # nothing is later in an image
        self.norm = nn.LayerNorm(width)
        self.readout = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        stream = self.embedding(patches(images, self.patch)) + self.positions
        for block in self.blocks:
            stream = block(stream)
        return self.readout(self.norm(stream).mean(-2))


def patches(images: Tensor, side: int) -> Tensor:
    """Images (…, c, h, w) as rows of pixels of their patches, (…, patches, c·side²).

    Examples:
        >>> patches(torch.arange(16.0).view(1, 1, 4, 4), 2)[0, 1]
        tensor([2., 3., 6., 7.])
    """
    cut = images.unflatten(-1, (-1, side)).unflatten(-3, (-1, side))  # …, c, rows, side, columns, side
    return cut.movedim(-5, -3).movedim(-3, -4).movedim(-2, -4).flatten(-3).flatten(-3, -2)


def network(name: str, data: DataSet, seed: int) -> nn.Module:
    """A network for the images of a data set, with weights from the seed: small ones for images of 8 × 8 pixels."""
    channels, side, _ = data.train[0].shape[1:]
    classes = data.classes or 1
    small = side == 8
    if name == "mlp":
        return seeded(lambda: ffnn([channels * side**2, *((32,) if small else (256,)), classes]), seed)
    if name == "cnn":
        return seeded(
            lambda: nn.Sequential(convnet([channels, 4, 8, 8]), nn.ReLU(), nn.Linear(32, classes))
            if small else lenet5(channels, classes, side), seed,
        )  # fmt: skip
    if name == "vit":
        layers, width, heads = (1, 16, 2) if small else (4, 96, 4)
        return seeded(lambda: VisionTransformer((channels, side, side), classes, layers, width, heads), seed)
    if name == "resnet20":
        net = seeded(lambda: resnet(1 if small else 3, 4 if small else 16, channels=channels, classes=classes), seed)
        calibrate(net, data.train[0][:512].to(next(net.parameters()).device))
        return net
    raise InputError(f"network must be one of {', '.join(NETWORKS)}, got {name!r}")
