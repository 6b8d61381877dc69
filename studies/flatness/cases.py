"""Data and networks by the names that jobs have for them."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor, nn

from basinscope.errors import InputError
from basinscope.landscape import Landscape, Parameters
from basinscope.zoo.data import DataSet, load
from basinscope.zoo.models import convnet, ffnn
from studies.common.measuring import device

from .jobs import Network

_TRAINING, _HELD = 20_000, 10_000  # samples that inputs are standardized by, the first; and held out, the last


@lru_cache(maxsize=8)
def data_set(name: str, inputs: str = "raw") -> DataSet:
    """The 7 × 7 view of a data set in one fixed random order, of which a training set of n samples is the first n.

    With `standardized` inputs, pixels are less their mean, over their standard deviation, both over all pixels of the
    first 20,000 training images: one pair of numbers for a data set, whatever n.

    Examples:
        >>> data_set("digits")
        DataSet(digits: 1,437 + 360 samples of shape (1, 7, 7), 10 classes)
    """
    if inputs == "standardized":
        return _standardized(data_set(name))
    return _shuffled(load(name, view="7x7"))


def _shuffled(data: DataSet) -> DataSet:
    pairs = []
    for images, labels in (data.train, data.test):
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
        pairs.append((images[order].contiguous(), labels[order].contiguous()))
    return DataSet(data.name, pairs[0], pairs[1], data.classes)


def _standardized(data: DataSet) -> DataSet:
    seen = data.train[0][:_TRAINING].double()
    mean, spread = float(seen.mean()), float(seen.std(correction=0))
    train, test = (((images - mean) / spread, labels) for images, labels in (data.train, data.test))
    return DataSet(data.name, train, test, data.classes)


def inputs(images: Tensor, architecture: str) -> Tensor:
    """Images as the architecture reads them: flat rows unless it is convolutional."""
    return images if architecture == "cnn" else images.flatten(1)


def samples_of(job: Network) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Training and test samples of a job."""
    whole = data_set(job.data, job.inputs)
    part = whole.first(job.samples, min(job.test_samples or len(whole.test[1]), len(whole.test[1])))
    return tuple((inputs(images, job.architecture), labels) for images, labels in (part.train, part.test))  # type: ignore[return-value]


def held_out(job: Network) -> tuple[Tensor, Tensor]:
    """Samples from where those for training come from, of which none was trained on: the last 10,000 of that file.

    Test sets need not be drawn as the training samples are (other writers, other shares of the classes); these are.
    Where the file ends with the training samples, the test samples.
    """
    images, labels = data_set(job.data, job.inputs).train
    start = max(job.samples, len(labels) - _HELD)
    if start >= len(labels):
        return samples_of(job)[1]
    return inputs(images[start:], job.architecture), labels[start:]


def network_of(job: Network) -> nn.Module:
    """The job's network, with the weights that torch's generator gives it.

    Examples:
        >>> from studies.flatness.jobs import jobs
        >>> from studies.flatness.settings import FlatnessSettings
        >>> sum(weight.numel() for weight in network_of(next(jobs(FlatnessSettings()))).parameters())
        4210
    """
    if job.architecture == "mlp":
        return ffnn([49, job.width, 10])
    if job.architecture == "bigmlp":
        return ffnn([49, job.width, job.width, 10])
    if job.architecture == "cnn":
        return convnet([1, *job.channels, 10])
    raise InputError(f"architecture must be 'mlp', 'bigmlp' or 'cnn', got {job.architecture!r}")


def landscape(job: Network, point: Parameters, pair: tuple[Tensor, Tensor]) -> Landscape:
    """The trained network on some samples, where there is a GPU on that."""
    return Landscape(network_of(job).to(device()), "cross_entropy", pair).at(point)


def landscapes(job: Network, point: Parameters) -> dict[str, Landscape]:
    """The trained network on its samples for `train`, `test` and `held` out."""
    train, test = samples_of(job)
    pairs = {"train": train, "test": test, "held": held_out(job)}
    return {part: landscape(job, point, pair) for part, pair in pairs.items()}
