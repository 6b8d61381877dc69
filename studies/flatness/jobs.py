"""The jobs of the study, the networks; which of them run together, and how long they take."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Any

from basinscope.errors import InputError
from basinscope.runs.study import Job

from .arms import ARMS
from .settings import PARTS, FlatnessSettings


class Network(Job):
    """A job: one network of the grid, trained and measured; or its cross-validation.

    Attributes:
        part: one of `PARTS`.
        architecture, width, channels: what is trained.
        inputs, schedule: as in `Arm`.
        data, samples, test_samples: on what.
        test_matrices, relations: as in `FlatnessSettings`.
        decay: n times the weight decay.
        batch_size, lr, steps: how.
        polish: steps to a minimum, at most; 0 with `constant` rates and with `folds`.
        folds: networks trained on all but one fold each; 0 in the grid.
        draws, warmup, leapfrogs, gamma: of sampling; 0 draws with `folds`.
        seed: of the weights, the minibatches and the sampling.
    """

    part: str
    inputs: str
    schedule: str
    architecture: str
    data: str
    samples: int
    decay: float
    batch_size: int
    lr: float
    steps: int
    width: int
    channels: tuple[int, ...]
    test_samples: int
    test_matrices: int
    relations: bool
    polish: int
    folds: int
    draws: int
    warmup: int
    leapfrogs: int
    gamma: float
    seed: int

    @property
    def weight_decay(self) -> float:
        """w of the penalty (w/2)‖θ‖²."""
        return self.decay / self.samples


def jobs(settings: FlatnessSettings) -> Iterator[Network]:
    """All jobs, in the order of the table: the networks of all arms, one batch size after another, then the
    cross-validation of some. With `--only batch_size=64` the smallest batches of every arm run first.

    Examples:
        >>> sum(job.part == "grid" for job in jobs(FlatnessSettings(arms=("printed",))))
        1701
        >>> sum(job.part == "folds" for job in jobs(FlatnessSettings(arms=("printed",))))
        189
        >>> sum(job.part == "grid" for job in jobs(FlatnessSettings()))
        6075
    """
    trainings = _decays(settings)
    for part in PARTS:
        if part in settings.parts:
            for batch, (training, decays), architecture in product(
                settings.batch_sizes, trainings.items(), settings.architectures
            ):
                for data, samples, lr, decay in product(settings.data, settings.samples, settings.lrs, decays):
                    chosen = batch in settings.folds_batch_sizes and lr in settings.folds_lrs
                    if part == "grid" or chosen:
                        yield _job(settings, part, training, architecture, data, samples, decay, batch, lr)


def _decays(settings: FlatnessSettings) -> dict[tuple[str, str], list[float]]:
    """The decays of all arms together, by inputs and schedule."""
    unknown = [name for name in settings.arms if name not in ARMS]
    if unknown or not settings.arms:
        raise InputError(f"arms must be some of {', '.join(ARMS)}, got {list(settings.arms)}")
    by_training: dict[tuple[str, str], set[float]] = {}
    for name in settings.arms:
        by_training.setdefault(ARMS[name].training, set()).update(ARMS[name].decays)
    everywhere = set().union(*by_training.values())
    if not set(settings.decays) <= everywhere:
        raise InputError(f"decays must be some of those of the arms, {sorted(everywhere)}, got {list(settings.decays)}")
    chosen = set(settings.decays) or everywhere
    return {training: sorted(decays & chosen) for training, decays in by_training.items()}


def _job(
    settings: FlatnessSettings,
    part: str,
    training: tuple[str, str],
    architecture: str,
    data: str,
    samples: int,
    decay: float,
    batch: int,
    lr: float,
) -> Network:
    grid, (inputs, schedule) = part == "grid", training
    # the same in all arms: their networks differ in nothing else
    setting = f"{settings.seed} {architecture} {data} {samples} {decay:g} {batch} {lr:g}"
    return Network(
        part=part, inputs=inputs, schedule=schedule, architecture=architecture, data=data, samples=samples, decay=decay,
        batch_size=batch, lr=lr, steps=settings.steps, width=settings.width, channels=settings.channels,
        test_samples=settings.test_samples, test_matrices=settings.test_matrices, relations=settings.relations,
        polish=settings.polish if grid and schedule == "cosine" else 0, folds=0 if grid else settings.folds,
        draws=settings.draws if grid else 0, warmup=settings.warmup, leapfrogs=settings.leapfrogs, gamma=settings.gamma,
        seed=zlib.crc32(setting.encode()) >> 1,
    )  # fmt: skip


def together(job: Network) -> tuple[Any, ...]:
    """Jobs with the same key are trained as one population."""
    return (job.part, job.inputs, job.schedule, job.architecture, job.batch_size)


def batches(jobs: Sequence[Network], places: Iterable[int]) -> list[list[int]]:
    """Places of jobs as they are measured: networks on the same data side by side."""
    by_size: dict[tuple[str, int], list[int]] = {}
    for place in sorted(places):
        by_size.setdefault((jobs[place].data, jobs[place].samples), []).append(place)
    return list(by_size.values())


# Of an H200: seconds for one sample's gradient, for one step whatever its size, and for the curvature of a network:
# whatever it is taken on, and for a sample with `relations`.
_SAMPLE = {"mlp": 2.9e-9, "bigmlp": 5.1e-9, "cnn": 1.75e-8}
_STEP = 6e-7
_CURVATURE = {"mlp": 0.05, "bigmlp": 0.1, "cnn": 0.1}
_MATRICES = {"mlp": 1.7e-6, "bigmlp": 5e-6, "cnn": 2e-5}


def cost(job: Network) -> float:
    """Seconds on an H200, roughly: `training` and what follows."""
    if job.part == "folds":
        return training(job)
    sample, seen = _SAMPLE[job.architecture] * job.samples, job.samples + job.test_matrices
    matrices = _MATRICES[job.architecture] * (1.0 if job.relations else 0.35)
    curvature = _CURVATURE[job.architecture] + matrices * seen
    polish = 1.5 * (matrices * job.samples + job.polish * (1.5 * sample + 1e-4)) if job.polish else 0.0
    gradients = 2 * (job.draws + job.warmup) * (job.leapfrogs + 1) if job.draws else 0
    return training(job) + curvature + polish + gradients * (sample + 5e-5)


def training(job: Network) -> float:
    """Seconds of an H200 for training one network among hundreds."""
    return max(1, job.folds) * job.steps * max(_STEP, _SAMPLE[job.architecture] * job.batch_size)
