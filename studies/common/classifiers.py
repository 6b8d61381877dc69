"""Classifiers of images: data sets, whole or standardized, and feedforward networks with weights from a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import torch
from torch import nn

from basinscope.zoo.data import DataSet, load
from basinscope.zoo.models import ffnn

from .measuring import device


@lru_cache(maxsize=4)
def images(name: str, samples: int) -> DataSet:
    """A data set of images; the first `samples` of them, 0 for all."""
    return load(name, train=samples or None)


def standardized(data: DataSet) -> DataSet:
    """The same with inputs less their mean over all training data, in units of their standard deviation there."""
    inputs = data.train[0]
    deviation, mean = torch.std_mean(inputs, correction=0)
    return replace(
        data, train=((inputs - mean) / deviation, data.train[1]), test=((data.test[0] - mean) / deviation, data.test[1])
    )


def classifier(data: DataSet, widths: tuple[int, ...]) -> nn.Sequential:
    """A feedforward network for the images, with torch's random weights."""
    return ffnn([data.train[0][0].numel(), *widths, data.classes or 1])


def seeded(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """A network with weights from the seed alone, on the GPU where there is one."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build().to(device())
