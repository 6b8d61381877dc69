"""The jobs of the study, which of them run together, and how long they take."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from basinscope.runs.study import Job

from .settings import PARTS, NgdVsSgdSettings


class Training(Job):
    """A job: one network trained with one optimizer, or one trunk with all its branches, and measured on the way.

    Attributes:
        part: one of `PARTS`.
        data, samples, label_noise: what it is trained on; 0 samples: all of them.
        network: `LAYERSxWIDTH` or `lenet5`.
        optimizer: `sgd`; `online`, the natural gradient of the papers; `accurate`, the same without its rounding
            errors; `kfac` or `exact`; `branches` for a trunk.
        lr, alpha, epsilon, momentum, batch_size: of the optimizer; for branches `lr` is that of the trunk.
        rates: of branches, `optimizer@rate` each.
        epochs: passes through the data; for branches, those of the trunk included.
        trunk_epochs: those of the trunk.
        measured: epochs after which λ̂ is measured, besides the last two.
        traced: whether Tr H is measured then too, and not at the end alone.
        full: whether it is measured in full at the end, and at equal loss.
        draws, gamma, sampler, chains, budget, rtol: of the measurements.
        seed: of weights, batches and measurements.
    """

    part: str
    data: str
    network: str
    optimizer: str
    lr: float
    alpha: float
    epsilon: float
    momentum: float
    epochs: int
    seed: int
    samples: int
    label_noise: float
    batch_size: int
    rates: tuple[str, ...]
    trunk_epochs: int
    measured: tuple[int, ...]
    traced: bool
    full: bool
    draws: int
    gamma: float
    sampler: str
    chains: int
    budget: float
    rtol: float


def jobs(settings: NgdVsSgdSettings) -> Iterator[Training]:
    """All jobs, in the order of the table.

    Examples:
        >>> listed = list(jobs(NgdVsSgdSettings(parts=("epochs",), few_seeds=2)))
        >>> [(job.optimizer, job.seed) for job in listed]
        [('sgd', 0), ('sgd', 1), ('online', 0), ('online', 1)]
    """
    makers = {
        "sizes": _sizes, "judged": _judged, "convolutions": _convolutions, "epochs": _epochs, "variants": _variants,
        "smoothing": _smoothing, "branches": _branches, "overfitting": _overfitting,
    }  # fmt: skip
    for part in PARTS:
        if part in settings.parts:
            yield from makers[part](settings)


def together(job: Training) -> tuple[Any, ...] | None:
    """Jobs with the same key run as populations of one program, all seeds side by side. None: alone."""
    if job.part == "variants":
        return None
    return (job.part, job.data, job.network, job.optimizer == "accurate")


def cost(job: Training) -> float:
    """Seconds on an H200 with 16 processor cores, roughly.

    A network of a population takes 20 µs a step with SGD. Natural gradient solves eigenvalue problems on the
    processor every fourth step, 15 µs a step for each axis of 160 or more entries, and takes 50 µs besides; a small
    population takes no less than 1.5 ms a step. Measuring λ̂ the paper's way takes 0.05 s, in full 5 s; alone, KFAC
    and the exact Fisher matrix take 3 ms a step.
    """
    steps = math.ceil((job.samples or 60_000) / job.batch_size)
    full = 10.0 * job.full
    if together(job) is None:
        return job.epochs * (steps * (1e-3 if job.optimizer == "sgd" else 3e-3) + 0.3) + full
    natural = max(_natural_step(job.network), 0.0 if job.part in ("sizes", "smoothing", "branches") else 1.5e-3 / 5)
    count = len([rate for rate in job.rates if not rate.startswith("sgd")]) or (job.optimizer != "sgd")
    after = job.epochs - job.trunk_epochs
    measured = 0.05 * (1 + len(job.rates)) * (2 + len(job.measured))
    return steps * (job.epochs * 2e-5 * max(1, len(job.rates)) + after * count * natural) + measured + full


def _natural_step(network: str) -> float:
    """Seconds of one network's step in a population of natural gradient."""
    layers, times, width = network.partition("x")
    axes = 1 + 3 * int(layers) * min(1.0, int(width) / 160) ** 3 if times else 6
    return 5e-5 + 1.5e-5 * axes


def _common(settings: NgdVsSgdSettings, seed: int) -> Training:
    return Training(
        part="", data=settings.data[0], network=settings.network, optimizer="sgd", lr=settings.lr, alpha=settings.alpha,
        epsilon=settings.epsilon, momentum=settings.momentum, epochs=settings.epochs, seed=seed,
        samples=settings.samples, label_noise=0.0, batch_size=settings.batch_size, rates=(), trunk_epochs=0,
        measured=(), traced=True, full=False, draws=settings.draws, gamma=settings.gamma, sampler=settings.sampler,
        chains=settings.chains, budget=settings.budget, rtol=settings.rtol,
    )  # fmt: skip


def _sizes(settings: NgdVsSgdSettings) -> Iterator[Training]:
    published = tuple(kind for kind in settings.kinds if kind != "accurate")
    for kinds in (published, tuple(kind for kind in settings.kinds if kind == "accurate")):
        for data in settings.data:
            for network in settings.networks:
                for optimizer in kinds:
                    for seed in range(settings.seeds):
                        yield replace(
                            _common(settings, seed), part="sizes", data=data, network=network, optimizer=optimizer,
                            alpha=settings.size_alpha, measured=settings.measured, traced=seed < settings.few_seeds,
                        )  # fmt: skip


def _judged(settings: NgdVsSgdSettings) -> Iterator[Training]:
    for job in _sizes(settings):
        if job.seed < settings.few_seeds and job.optimizer != "accurate":
            yield replace(job, part="judged", measured=(), full=True)


def _convolutions(settings: NgdVsSgdSettings) -> Iterator[Training]:
    for network in settings.convolutional:
        for optimizer in ("sgd", "online"):
            for seed in range(settings.few_seeds):
                yield replace(
                    _common(settings, seed), part="convolutions", network=network, optimizer=optimizer,
                    alpha=settings.size_alpha,
                )  # fmt: skip


def _epochs(settings: NgdVsSgdSettings) -> Iterator[Training]:
    for optimizer in ("sgd", "online"):
        for seed in range(settings.few_seeds):
            yield replace(
                _common(settings, seed), part="epochs", optimizer=optimizer,
                epochs=settings.curve_epochs, measured=tuple(range(1, settings.curve_epochs + 1)),
            )  # fmt: skip


def _variants(settings: NgdVsSgdSettings) -> Iterator[Training]:
    for optimizer in ("sgd", "online", "accurate", "kfac", "exact"):
        for seed in range(settings.few_seeds):
            yield replace(
                _common(settings, seed), part="variants", network=settings.variant_network,
                optimizer=optimizer, samples=settings.variant_samples, full=seed < settings.full_seeds,
                lr=settings.unscaled_lr if optimizer in ("kfac", "exact") else settings.lr,
                measured=tuple(range(1, settings.epochs + 1)),
            )  # fmt: skip


def _smoothing(settings: NgdVsSgdSettings) -> Iterator[Training]:
    swept: list[tuple[str, float, float]] = [("sgd", settings.alpha, settings.epsilon)]
    swept += [("online", alpha, settings.epsilon) for alpha in settings.alphas]
    swept += [("online", 0.0, epsilon) for epsilon in settings.epsilons]
    for optimizer, alpha, epsilon in dict.fromkeys(swept):
        for seed in range(settings.few_seeds):
            yield replace(
                _common(settings, seed), part="smoothing", optimizer=optimizer, alpha=alpha,
                epsilon=epsilon, epochs=settings.sweep_epochs, traced=False,
            )  # fmt: skip


def _branches(settings: NgdVsSgdSettings) -> Iterator[Training]:
    for trunk in settings.trunks:
        data, rate, split, end, *branches = trunk.split()
        for seed in range(settings.few_seeds):
            yield replace(
                _common(settings, seed), part="branches", data=data, optimizer="branches", lr=float(rate),
                epochs=int(end), trunk_epochs=int(split), rates=tuple(branches), traced=False,
                measured=tuple(range(settings.branch_every, int(end) + 1, settings.branch_every)),
            )  # fmt: skip


def _overfitting(settings: NgdVsSgdSettings) -> Iterator[Training]:
    for optimizer in ("sgd", "online"):
        for seed in range(settings.few_seeds):
            yield replace(
                _common(settings, seed), part="overfitting", optimizer=optimizer,
                lr=settings.overfit_lr, epochs=settings.overfit_epochs, samples=settings.overfit_samples,
                label_noise=settings.label_noise,
                measured=tuple(range(settings.overfit_every, settings.overfit_epochs + 1, settings.overfit_every)),
            )  # fmt: skip
