"""Data, networks and optimizers by the names that jobs have for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import nn

from basinscope.errors import InputError
from basinscope.optim import KFAC, ExactNGD, OnlineNGD, preset
from basinscope.training import population
from basinscope.zoo.data import DataSet, load
from basinscope.zoo.models import ffnn, lenet5
from studies.common.classifiers import seeded

from .jobs import Training

NATURAL = ("online", "accurate", "kfac", "exact")
# Mean and standard deviation that images are normalized by: the authors' own, and for the digits those of the data.
NORMALIZED = {"mnist": (0.1307, 0.3081), "fashion_mnist": (0.5, 0.5), "digits": (0.3049, 0.3758)}


@lru_cache(maxsize=4)
def data_set(name: str, network: str, samples: int, label_noise: float) -> DataSet:
    """The data of a job: the first `samples` of them (0: all), normalized, some labels drawn anew, digits enlarged for
    LeNet-5.

    Examples:
        >>> data_set("digits", "lenet5", 300, 0.0)
        DataSet(digits: 300 + 360 samples of shape (1, 32, 32), 10 classes)
    """
    data = load(name, train=samples or None)
    mean, deviation = NORMALIZED[name]
    train, test = (((x - mean) / deviation, y) for x, y in (data.train, data.test))
    data = replace(data, train=train, test=test)
    if network.startswith("lenet5") and data.train[0].shape[-1] == 8:
        pairs = [(x.repeat_interleave(4, 2).repeat_interleave(4, 3), y) for x, y in (data.train, data.test)]
        data = replace(data, train=pairs[0], test=pairs[1])
    if label_noise:
        generator = torch.Generator().manual_seed(0)
        images, labels = data.train
        drawn = torch.randint(10, labels.shape, generator=generator)
        chosen = torch.rand(labels.shape, generator=generator) < label_noise
        data = replace(data, train=(images, torch.where(chosen, drawn, labels)))
    return data


def data_of(job: Training) -> DataSet:
    """The data of a job."""
    return data_set(job.data, job.network, job.samples, job.label_noise)


def network_of(job: Training) -> nn.Module:
    """The job's network, with the weights that torch's generator gives it.

    `2x64` has two hidden layers of 64 units; `lenet5+1` has one 3 × 3 convolution more than LeNet-5, after the others.

    Examples:
        >>> from studies.ngd_vs_sgd.jobs import jobs
        >>> from studies.ngd_vs_sgd.settings import NgdVsSgdSettings
        >>> from dataclasses import replace
        >>> job = replace(next(jobs(NgdVsSgdSettings(data=("digits",)))), network="2x8")
        >>> [tuple(weight.shape) for weight in network_of(job).parameters()]
        [(8, 64), (8,), (8, 8), (8,), (10, 8), (10,)]
    """
    images = data_of(job).train[0]
    family, _, deeper = job.network.partition("+")
    if family == "lenet5" and (deeper.isdecimal() or not deeper):
        layers = list(lenet5(size=images.shape[-1]))
        more = [nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()) for _ in range(int(deeper or 0))]
        return nn.Sequential(*layers[:6], *(layer for block in more for layer in block), *layers[6:])
    depth, times, width = job.network.partition("x")
    if not (times and depth.isdecimal() and width.isdecimal()):
        raise InputError(f"a network must be 'lenet5', 'lenet5+1' … or LAYERSxWIDTH ('2x256'), got {job.network!r}")
    return ffnn([images[0].numel(), *[int(width)] * int(depth), 10])


def seeded_network(job: Training) -> nn.Module:
    """The job's network with weights from its seed alone, on the GPU where there is one."""
    return seeded(lambda: network_of(job), job.seed)


def builder(job: Training, kind: str, lr: float) -> Callable[[nn.Module], Any]:
    """Makes the optimizer `kind` for a network, with the paper's settings where the job has none of its own."""
    if kind == "sgd":
        return lambda net: torch.optim.SGD(net.parameters(), lr=lr, **momentum(job))
    if kind not in NATURAL:
        raise InputError(f"an optimizer must be one of sgd, {', '.join(NATURAL)}, got {kind!r}")
    options = {**settings(job, kind), "lr": lr, "alpha": job.alpha, "epsilon": job.epsilon}
    if kind in ("online", "accurate"):
        return lambda net: OnlineNGD(net.parameters(), **options)
    return lambda net: (KFAC if kind == "kfac" else ExactNGD)(net, **options)


def momentum(job: Training) -> dict[str, Any]:
    """Nesterov's momentum, if the job has any."""
    return {"momentum": job.momentum, "nesterov": job.momentum > 0}


def settings(job: Training, kind: str) -> dict[str, Any]:
    """The paper's settings of a natural gradient, those of the job aside; `accurate` has no rounding errors."""
    options = {**preset("saghir-2024", "online" if kind == "accurate" else kind), **momentum(job)}
    return {**options, "single": False} if kind == "accurate" else options


def stacked(jobs: Sequence[Training], kind: str) -> Any:
    """The optimizer `kind` for a population with a member for each job; learning rates are the members' own."""
    if kind == "sgd":
        return population.SGD(**momentum(jobs[0]))
    options = {name: value for name, value in settings(jobs[0], kind).items() if name != "lr"}
    damping = {"alpha": tuple(job.alpha for job in jobs), "epsilon": tuple(job.epsilon for job in jobs)}
    return population.OnlineNGD(**{**options, **damping})
