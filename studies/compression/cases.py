"""The networks of the study, trained."""

from __future__ import annotations

import torch
from torch import nn

import basinscope as bs
from basinscope.training import train
from basinscope.zoo import data, models
from basinscope.zoo.data.text import ALPHABET

NETWORKS = ("mlp", "cnn", "transformer")


def landscape(network: str, images: str, samples: int, epochs: int, seed: int) -> bs.Landscape:
    """A trained network on the data that it was trained on.

    Args:
        network: `mlp` and `cnn` on images of 7 × 7 pixels, or a `transformer` of one block on characters of a story.
        images: name of their data set.
        samples: to train on; of characters a tenth as many sequences, so that λ̂ can be sampled on all of them.
        epochs: of Adam, with rate 0.003; ten times as many for the transformer.
        seed: of weights and batches.
    """
    torch.manual_seed(seed)
    if network == "transformer":
        text = data.characters(samples // 10, length=16, test=2)
        net = models.transformer(len(ALPHABET), 16, layers=1, width=16, heads=2)
        return _trained(net, text.train, 10 * epochs, seed)
    digits = data.load(images, view="7x7", train=samples, test=10)
    if network == "mlp":
        return _trained(nn.Sequential(nn.Flatten(), models.ffnn([49, 40, 30, 20, 10])), digits.train, epochs, seed)
    return _trained(models.convnet([1, 15, 20, 10]), digits.train, epochs, seed)


def _trained(net: nn.Module, samples: tuple[torch.Tensor, torch.Tensor], epochs: int, seed: int) -> bs.Landscape:
    run = train(
        net, samples, lambda net: torch.optim.Adam(net.parameters(), lr=0.003), epochs=epochs, batch_size=50,
        seed=seed, progress=False,
    )  # fmt: skip
    return bs.Landscape(run.model.eval(), "cross_entropy", samples)
