"""What the study does, as plain values: its settings at either scale, the networks, and which run together."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from ...errors import InputError
from ..plans import PlainJob, grouped
from .arms import ARMS

NAME, VERSION = "flatness", 3
PARTS = ("grid", "folds")
ARCHITECTURES = ("mlp", "bigmlp", "cnn")


@dataclass(frozen=True)
class Plan:
    """Settings of the study.

    Attributes:
        parts: `grid` trains and measures every network; `folds` is the k-fold cross-validation of some of them.
        arms: of `ARMS`. A network of several arms is trained once.
        architectures: of `mlp`, `bigmlp`, `cnn`.
        data: data sets, seen as 7 × 7 grey images.
        samples: sizes n of the training set.
        decays: of the arms' decays only these; all of them if empty.
        batch_sizes, lrs, steps: of Adam.
        width: of the hidden layers of `mlp` and `bigmlp`.
        channels: of the hidden layers of `cnn`.
        test_samples: at most so many samples decide what the gap is; 0 for all.
        test_matrices: on at most so many of these are F and C taken; 0 for all.
        relations: whether to take E[JᵀE[Σ]J] and E[JᵀE[B]J] too (figures 5 to 7), which triples the work.
        polish: of networks whose rates fell to zero, at most so many steps to a minimum on all samples, and as many
            once more from where they led.
        folds: k of the cross-validation.
        folds_batch_sizes, folds_lrs: which part of the grid is cross-validated.
        draws: kept draws of the local posterior at each of two temperatures, by HMC on all data; 0 for no sampling.
        warmup: iterations before them. Both count trajectories of `leapfrogs` steps.
        leapfrogs: steps of a trajectory.
        gamma: γ₀, by which the localisation γ is more than nβ times the weight decay.
        seed: of everything.
    """

    parts: tuple[str, ...] = PARTS
    arms: tuple[str, ...] = ("printed", "standardized", "hundredth", "thousandth", "hole-free", "annealed")
    architectures: tuple[str, ...] = ARCHITECTURES
    data: tuple[str, ...] = ("mnist", "cifar10", "svhn")
    samples: tuple[int, ...] = (5_000, 10_000, 20_000)
    decays: tuple[float, ...] = ()
    batch_sizes: tuple[int, ...] = (64, 256, 512)
    lrs: tuple[float, ...] = (0.01, 0.005, 0.001)
    steps: int = 200_000
    width: int = 70
    channels: tuple[int, ...] = (15, 20)
    test_samples: int = 0
    test_matrices: int = 5_000
    relations: bool = False
    polish: int = 60
    folds: int = 5
    folds_batch_sizes: tuple[int, ...] = (64,)
    folds_lrs: tuple[float, ...] = (0.01,)
    draws: int = 0
    warmup: int = 80
    leapfrogs: int = 8
    gamma: float = 100.0
    seed: int = 0


SCALES: dict[str, dict[str, Any]] = {
    "smoke": {
        "arms": ["hole-free"], "data": ["digits"], "samples": [300, 900], "decays": [1e-1, 1.0, 1e1, 1e2],
        "batch_sizes": [64], "lrs": [0.01, 0.001], "steps": 3000, "width": 10, "channels": [4, 6], "relations": True,
        "folds": 3, "draws": 60, "warmup": 60, "leapfrogs": 6,
    },
    "paper": {},
}  # fmt: skip


@dataclass(frozen=True)
class Network(PlainJob):
    """A job: one network of the grid, trained and measured; or its cross-validation.

    Attributes:
        part: one of `PARTS`.
        architecture, width, channels: what is trained.
        inputs, schedule: as in `Arm`.
        data, samples, test_samples: on what.
        test_matrices, relations: as in `Plan`.
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


def job_of(config: Mapping[str, Any]) -> Network:
    """The job of a config.

    Examples:
        >>> job = next(jobs(Plan()))
        >>> job_of(job.config()) == job
        True
    """
    return Network.of(config)


def jobs(plan: Plan) -> Iterator[Network]:
    """All jobs in the order in which they run: the networks of all arms, one batch size after another, so that what is
    there early holds something of every arm; then the cross-validation of some.

    Examples:
        >>> sum(job.part == "grid" for job in jobs(Plan(arms=("printed",))))
        1701
        >>> sum(job.part == "folds" for job in jobs(Plan(arms=("printed",))))
        189
        >>> sum(job.part == "grid" for job in jobs(Plan()))
        6075
    """
    trainings = _decays(plan)
    for part in PARTS:
        if part in plan.parts:
            for batch, (training, decays), architecture in product(
                plan.batch_sizes, trainings.items(), plan.architectures
            ):
                for data, samples, lr, decay in product(plan.data, plan.samples, plan.lrs, decays):
                    chosen = batch in plan.folds_batch_sizes and lr in plan.folds_lrs
                    if part == "grid" or chosen:
                        yield _job(plan, part, training, architecture, data, samples, decay, batch, lr)


def _decays(plan: Plan) -> dict[tuple[str, str], list[float]]:
    """The decays of all arms together, by inputs and schedule."""
    unknown = [name for name in plan.arms if name not in ARMS]
    if unknown or not plan.arms:
        raise InputError(f"arms must be some of {', '.join(ARMS)}, got {list(plan.arms)}")
    found: dict[tuple[str, str], set[float]] = {}
    for name in plan.arms:
        found.setdefault(ARMS[name].training, set()).update(ARMS[name].decays)
    everywhere = set().union(*found.values())
    if not set(plan.decays) <= everywhere:
        raise InputError(f"decays must be some of those of the arms, {sorted(everywhere)}, got {list(plan.decays)}")
    chosen = set(plan.decays) or everywhere
    return {training: sorted(decays & chosen) for training, decays in found.items()}


def _job(
    plan: Plan,
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
    setting = f"{plan.seed} {architecture} {data} {samples} {decay:g} {batch} {lr:g}"
    return Network(
        part, inputs, schedule, architecture, data, samples, decay, batch, lr, plan.steps, plan.width, plan.channels,
        plan.test_samples, plan.test_matrices, plan.relations,
        polish=plan.polish if grid and schedule == "cosine" else 0, folds=0 if grid else plan.folds,
        draws=plan.draws if grid else 0, warmup=plan.warmup, leapfrogs=plan.leapfrogs, gamma=plan.gamma,
        seed=zlib.crc32(setting.encode()) >> 1,
    )  # fmt: skip


def together(job: Network) -> tuple[Any, ...]:
    """Jobs with the same key are trained as one population."""
    return (job.part, job.inputs, job.schedule, job.architecture, job.batch_size)


def units(all_jobs: Iterable[Network]) -> list[list[Network]]:
    """The jobs as they are trained."""
    return grouped(all_jobs, together)


def batches(own: Iterable[Network]) -> list[list[Network]]:
    """The jobs of a unit as they are measured: networks on the same data side by side."""
    return grouped(own, lambda job: (job.data, job.samples))


def label(own: Sequence[Network]) -> str:
    """The name of a unit, or of a single job.

    Examples:
        >>> unit = units(jobs(Plan()))[0]
        >>> label(unit), label(unit[:1])
        ('grid-raw-constant-mlp-64', 'grid-raw-constant-mlp-64-mnist-5000-lr0.01-decay1e-05')
    """
    first = own[0]
    name = f"{first.part}-{first.inputs}-{first.schedule}-{first.architecture}-{first.batch_size}"
    return name if len(own) > 1 else f"{name}-{first.data}-{first.samples}-lr{first.lr:g}-decay{first.decay:g}"


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
