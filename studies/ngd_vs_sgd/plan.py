"""What the study does, as plain values: its settings at either scale, the jobs they make, and which run together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from studies.common.plans import PlainJob, grouped

NAME, VERSION = "ngd-vs-sgd", 2
PARTS = ("sizes", "epochs", "variants", "smoothing", "branches", "overfitting")


@dataclass(frozen=True)
class Plan:
    """Settings of the study.

    Attributes:
        parts: which parts to run: `sizes` (Fig. 1), `epochs` (Fig. 2), `variants` (the same for three natural
            gradients), `smoothing` (Fig. 3), `branches` (Fig. 4–6), `overfitting` (Fig. 7–8).
        data: data sets of the comparison of sizes; the first one serves the other parts, the last one the branches at
            low rates.
        networks: `LAYERSxWIDTH` or `lenet5`, for the comparison of sizes.
        network: for all other parts but the variants.
        variant_network: small enough for the exact Fisher matrix.
        samples: training samples to use; 0 for all.
        variant_samples: the same for the variants.
        seeds: repetitions of the comparison of sizes.
        few_seeds: repetitions in all other parts but the branches.
        branch_seeds: repetitions of the trunks with their branches.
        full_seeds: how many of them are measured in full, with the calibrated λ̂ and soft ranks.
        full_parts: parts in which anything is measured in full.
        full_networks: networks that are; those of the other parts are in any case.
        batch_size: of training.
        lr: learning rate of SGD and of the online natural gradient.
        unscaled_lr: of KFAC and the exact one, whose steps do not keep the gradient's norm.
        size_alpha: smoothing α of the comparison of sizes; 0.01 in the paper.
        alpha: smoothing α elsewhere; 0.1 in the paper.
        epsilon: floor ε; 1e-10 in the paper.
        epochs: of sizes and variants.
        curve_epochs: of the network that is followed epoch by epoch.
        every: epochs between two measurements in full.
        alphas, epsilons: of the sweeps.
        sweep_epochs: epochs of the sweeps.
        low_lr, middle_lr, high_lr: rates of the branches; 1e-4, 1e-3 and 1e-2 in the paper.
        trunk_epochs: most epochs before the branches at the high rate.
        low_trunk_epochs: the same at the low rate, where the loss takes as many times longer to fall.
        branch_epochs: epochs after them.
        overfit_samples, overfit_epochs, overfit_lr, overfit_every: of the part that trains too long.
        label_noise: share of its labels that are drawn anew.
        draws: of the paper's SGLD, in each of two chains.
        gamma: localisation γ of every measurement.
        sampler, chains, budget, rtol: of the calibrated λ̂, as for `bs.llc`; 0 chains: as many as it chooses.
    """

    parts: tuple[str, ...] = PARTS
    data: tuple[str, ...] = ("fashion_mnist", "mnist")
    networks: tuple[str, ...] = (
        "1x64", "1x128", "1x256", "1x512", "2x64", "2x128", "2x256", "2x512", "lenet5",
    )  # fmt: skip
    network: str = "2x256"
    variant_network: str = "1x64"
    samples: int = 0
    variant_samples: int = 20_000
    seeds: int = 10
    few_seeds: int = 5
    branch_seeds: int = 3
    full_seeds: int = 3
    full_parts: tuple[str, ...] = PARTS
    full_networks: tuple[str, ...] = ("1x64", "1x256", "2x64", "2x256", "lenet5")
    batch_size: int = 128
    lr: float = 1e-2
    unscaled_lr: float = 1e-2
    size_alpha: float = 1e-2
    alpha: float = 1e-1
    epsilon: float = 1e-10
    epochs: int = 10
    curve_epochs: int = 30
    every: int = 5
    alphas: tuple[float, ...] = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)
    epsilons: tuple[float, ...] = (1e-10, 1e-6, 1e-4, 1e-2, 1.0, 100.0)
    sweep_epochs: int = 8
    low_lr: float = 1e-4
    middle_lr: float = 1e-3
    high_lr: float = 1e-2
    trunk_epochs: int = 15
    low_trunk_epochs: int = 300
    branch_epochs: int = 6
    overfit_samples: int = 10_000
    overfit_epochs: int = 60
    overfit_lr: float = 5e-2
    overfit_every: int = 4
    label_noise: float = 0.0
    draws: int = 1000
    gamma: float = 100.0
    sampler: str = "auto"
    chains: int = 0
    budget: float = 2.0
    rtol: float = 0.1


SCALES: dict[str, dict[str, Any]] = {
    "smoke": {
        "data": ["digits"], "networks": ["1x8", "1x16", "2x8"], "network": "2x16", "variant_network": "1x8",
        "samples": 400, "batch_size": 32, "variant_samples": 400, "seeds": 3, "few_seeds": 2, "branch_seeds": 2,
        "full_seeds": 2,
        "full_parts": ["sizes", "variants", "overfitting"], "full_networks": ["1x8"], "lr": 0.2, "epochs": 20,
        "curve_epochs": 20, "every": 20, "draws": 200, "alphas": [1e-2, 1e-1, 1.0, 100.0],
        "epsilons": [1e-10, 1e-4, 1e-2, 1.0], "sweep_epochs": 12, "low_lr": 0.02, "middle_lr": 0.06, "high_lr": 0.2,
        "trunk_epochs": 12, "low_trunk_epochs": 60, "branch_epochs": 6,
        "overfit_samples": 300, "overfit_epochs": 60, "overfit_lr": 0.2, "overfit_every": 6, "label_noise": 0.2,
        "sampler": "hmc", "chains": 4, "budget": 0.1, "rtol": 0.1,
    },
    "paper": {},
}  # fmt: skip


@dataclass(frozen=True)
class Training(PlainJob):
    """A job: one network trained with one optimizer, or one trunk with all its branches, and measured on the way.

    Attributes:
        part: one of `PARTS`.
        data, samples, label_noise: what it is trained on; 0 samples: all of them.
        network: `LAYERSxWIDTH` or `lenet5`.
        optimizer: `sgd`, `online`, `kfac` or `exact`; `branches` for a trunk.
        lr, alpha, epsilon, batch_size: of the optimizer; for branches `lr` is that of the trunk.
        rates: of branches, `optimizer@rate` each.
        epochs: passes through the data; for branches, after the trunk.
        trunk_epochs: most epochs of the trunk.
        every: epochs between two measurements; `full_every`: between two measurements in full; 0 for never.
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
    epochs: int
    seed: int
    samples: int
    label_noise: float
    batch_size: int
    rates: tuple[str, ...]
    trunk_epochs: int
    every: int
    full_every: int
    draws: int
    gamma: float
    sampler: str
    chains: int
    budget: float
    rtol: float


def job_of(config: Mapping[str, Any]) -> Training:
    """The job of a config.

    Examples:
        >>> job = next(jobs(Plan()))
        >>> job_of(job.config()) == job
        True
    """
    return Training.of(config)


def jobs(plan: Plan) -> Iterator[Training]:
    """All jobs, in the order of the table.

    Examples:
        >>> found = list(jobs(Plan(parts=("epochs",), few_seeds=2)))
        >>> [(job.optimizer, job.seed) for job in found]
        [('sgd', 0), ('sgd', 1), ('online', 0), ('online', 1)]
    """
    makers = {
        "sizes": _sizes, "epochs": _epochs, "variants": _variants, "smoothing": _smoothing, "branches": _branches,
        "overfitting": _overfitting,
    }  # fmt: skip
    for part in PARTS:
        if part in plan.parts:
            for job in makers[part](plan):
                wanted = part in plan.full_parts and (part != "sizes" or job.network in plan.full_networks)
                yield job if wanted else replace(job, full_every=0)


def together(job: Training) -> tuple[Any, ...] | None:
    """Jobs with the same key run as one population: both optimizers, all seeds. None: alone."""
    if job.part == "sizes":
        return (job.part, job.data, job.network)
    if job.part == "smoothing":
        return (job.part, job.optimizer, job.alpha, job.epsilon)
    return None


def units(all_jobs: Iterable[Training]) -> list[list[Training]]:
    """The jobs as they run: populations, and single ones."""
    return grouped(all_jobs, together)


def label(unit: Sequence[Training]) -> str:
    """A unit's name, such as `epochs-mnist-2x256-sgd-seed0`: that of its first job."""
    first = unit[0]
    return f"{first.part}-{first.data}-{first.network}-{first.optimizer}-seed{first.seed}"


def cost(job: Training) -> float:
    """Seconds on an H200, roughly: trainings at 1 ms a step (SGD) or 3 ms (natural gradient), a tenth of it for a
    member of a population; measurements at 0.3 s (the paper's SGLD and Tr H) and 5 s (calibrated λ̂ and soft ranks)."""
    samples = job.samples or 60_000
    step = 1e-3 if job.optimizer == "sgd" else 3e-3
    epoch = math.ceil(samples / job.batch_size) * (step if together(job) is None else 0.1 * step)
    if job.part == "branches":
        trunk = job.trunk_epochs * (math.ceil(samples / job.batch_size) * 1e-3 + 0.3 / trunk_every(job))
        return trunk + len(job.rates) * (job.epochs * (epoch + 0.3) + (5.0 if job.full_every else 0.0))
    full = job.epochs / job.full_every if job.full_every else 0
    return job.epochs * epoch + 0.3 * job.epochs / job.every + 5.0 * full


def trunk_every(job: Training) -> int:
    """Epochs between two measurements of a trunk: some 30 in all."""
    return max(1, round(job.trunk_epochs / 30))


def _common(plan: Plan, seed: int, full: int) -> Training:
    return Training(
        part="", data=plan.data[0], network=plan.network, optimizer="sgd", lr=plan.lr, alpha=plan.alpha,
        epsilon=plan.epsilon, epochs=plan.epochs, seed=seed, samples=plan.samples, label_noise=0.0,
        batch_size=plan.batch_size, rates=(), trunk_epochs=0, every=1, full_every=full if seed < plan.full_seeds else 0,
        draws=plan.draws, gamma=plan.gamma, sampler=plan.sampler, chains=plan.chains, budget=plan.budget,
        rtol=plan.rtol,
    )  # fmt: skip


def _sizes(plan: Plan) -> Iterator[Training]:
    for data in plan.data:
        for network in plan.networks:
            for optimizer in ("sgd", "online"):
                for seed in range(plan.seeds):
                    yield replace(
                        _common(plan, seed, plan.epochs), part="sizes", data=data, network=network,
                        optimizer=optimizer, alpha=plan.size_alpha, every=plan.epochs,
                    )  # fmt: skip


def _epochs(plan: Plan) -> Iterator[Training]:
    for optimizer in ("sgd", "online"):
        for seed in range(plan.few_seeds):
            yield replace(_common(plan, seed, plan.every), part="epochs", optimizer=optimizer, epochs=plan.curve_epochs)


def _variants(plan: Plan) -> Iterator[Training]:
    for optimizer in ("sgd", "online", "kfac", "exact"):
        for seed in range(plan.few_seeds):
            yield replace(
                _common(plan, seed, plan.every), part="variants", network=plan.variant_network, optimizer=optimizer,
                samples=plan.variant_samples, lr=plan.lr if optimizer in ("sgd", "online") else plan.unscaled_lr,
            )  # fmt: skip


def _smoothing(plan: Plan) -> Iterator[Training]:
    swept: list[tuple[str, float, float]] = [("sgd", plan.alpha, plan.epsilon)]
    swept += [("online", alpha, plan.epsilon) for alpha in plan.alphas]
    swept += [("online", plan.alpha, epsilon) for epsilon in plan.epsilons]
    for optimizer, alpha, epsilon in dict.fromkeys(swept):
        for seed in range(plan.few_seeds):
            yield replace(
                _common(plan, seed, plan.sweep_epochs), part="smoothing", optimizer=optimizer, alpha=alpha,
                epsilon=epsilon, epochs=plan.sweep_epochs, every=plan.sweep_epochs,
            )  # fmt: skip


def _branches(plan: Plan) -> Iterator[Training]:
    low, middle, high = plan.low_lr, plan.middle_lr, plan.high_lr
    raised = (f"sgd@{low:g}", f"online@{low:g}", f"online@{middle:g}", f"online@{high:g}", f"sgd@{high:g}")
    trunks = [
        (plan.data[0], high, plan.trunk_epochs, (f"sgd@{high:g}", f"online@{high:g}")),
        (plan.data[-1], low, plan.low_trunk_epochs, raised),
    ]
    for data, rate, trunk_epochs, rates in trunks:
        for seed in range(plan.branch_seeds):
            yield replace(
                _common(plan, seed, plan.branch_epochs), part="branches", data=data, optimizer="branches", lr=rate,
                epochs=plan.branch_epochs, rates=rates, trunk_epochs=trunk_epochs,
            )  # fmt: skip


def _overfitting(plan: Plan) -> Iterator[Training]:
    for optimizer in ("sgd", "online"):
        for seed in range(plan.few_seeds):
            yield replace(
                _common(plan, seed, 3 * plan.overfit_every), part="overfitting", optimizer=optimizer,
                lr=plan.overfit_lr, epochs=plan.overfit_epochs, samples=plan.overfit_samples,
                label_noise=plan.label_noise, every=plan.overfit_every,
            )  # fmt: skip
