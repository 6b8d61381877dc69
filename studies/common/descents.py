"""Populations of classifiers trained by SGD and by Entropy-SGD, as published."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Protocol

import torch

from basinscope.curvature.precision import rounded_products
from basinscope.training import Member, Population
from basinscope.training.population import SGD, EntropySGD
from basinscope.training.population.updates import Update
from basinscope.zoo.data import DataSet

from .classifiers import classifier
from .measuring import device

# The published code's: momentum of SGD and of both loops of Entropy-SGD, and of the latter its inner learning rate and
# the weight of the past in its mean. γ, scoping and noise are those that `optim.EntropySGD` has by default.
PAPER_MOMENTUM, PAPER_INNER_LR, PAPER_AVERAGING = 0.9, 0.1, 0.25


class Descent(Protocol):
    """One network's training: `sgd` or `entropy-sgd`, of hidden layers of these widths."""

    @property
    def optimizer(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def widths(self) -> tuple[int, ...]: ...
    @property
    def train_batch(self) -> int: ...
    @property
    def lr(self) -> float: ...
    @property
    def inner_steps(self) -> int: ...


def untrained(jobs: Sequence[Descent], data: DataSet) -> Population:
    """The networks of the jobs, each from its own seed."""
    first = jobs[0]
    members = [Member(seed=job.seed, lr=job.lr, batch_size=job.train_batch) for job in jobs]
    return Population(
        lambda: classifier(data, first.widths), members, data.train, optimizer=update_of(first), device=device()
    )


def update_of(job: Descent) -> Update:
    """The optimizer, as published."""
    if job.optimizer == "sgd":
        return SGD(momentum=PAPER_MOMENTUM, nesterov=True)
    return EntropySGD(
        inner_steps=job.inner_steps, inner_lr=PAPER_INNER_LR, averaging=PAPER_AVERAGING, momentum=PAPER_MOMENTUM
    )


def steps_at(epoch: int, job: Descent, data: DataSet) -> int:
    """Gradients after so many epochs, in whole loops of Entropy-SGD: either optimizer gets as many."""
    per_epoch = math.ceil(len(data.train[0]) / job.train_batch)
    return math.ceil(epoch * per_epoch / job.inner_steps) * job.inner_steps


def trained(population: Population, epoch: int, job: Descent, data: DataSet) -> None:
    """Train until the end of an epoch, on a GPU with products rounded to TF32. The noise after each look has a seed of
    its own, so that a run that is cut off and goes on ends in the same bits."""
    cuda = device().type == "cuda"
    with torch.random.fork_rng(devices=[device()] if cuda else []), rounded_products() if cuda else nullcontext():
        torch.manual_seed(1_000_003 * job.seed + population.step)
        population.train(steps_at(epoch, job, data), progress=False)
