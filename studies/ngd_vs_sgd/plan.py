"""What the study does, as plain values: its settings at either scale, the jobs they make, and which run together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from studies.common.plans import PlainJob, grouped

NAME, VERSION = "ngd-vs-sgd", 3
PARTS = ("sizes", "smoothing", "branches", "epochs", "overfitting", "variants")


@dataclass(frozen=True)
class Plan:
    """Settings of the study; the defaults are those of the authors' published code.

    Attributes:
        parts: which parts to run: `sizes` (Fig. 1), `epochs` (Fig. 2), `smoothing` (Fig. 3), `branches` (Fig. 4–6),
            `overfitting` (Fig. 7–8), `variants` (Fig. 2 for three natural gradients).
        data: data sets of the comparison of sizes; the first one serves the other parts but the branches.
        networks: `LAYERSxWIDTH` or `lenet5`, for the comparison of sizes.
        kinds: optimizers compared there.
        network: for all other parts but the variants.
        variant_network: small enough for the exact Fisher matrix.
        samples: training samples to use; 0 for all.
        variant_samples: the same for the variants.
        seeds: repetitions of the comparison of sizes.
        few_seeds: repetitions in all other parts.
        full_seeds: how many of them are measured in full, with the calibrated λ̂ and soft ranks.
        full_parts: parts in which anything is measured in full.
        full_networks: networks that are; those of the other parts are in any case.
        kept_seeds: how many networks of each size and optimizer have their final weights kept.
        batch_size: of training.
        lr: learning rate of SGD and of the online natural gradient.
        unscaled_lr: of KFAC and the exact one, whose steps do not keep the gradient's norm.
        momentum: Nesterov's, of all optimizers.
        size_alpha: smoothing α of the comparison of sizes.
        alpha: smoothing α elsewhere.
        epsilon: floor ε.
        epochs: of sizes and variants.
        measured: epochs of the comparison of sizes after which λ̂ is measured, besides the last two.
        curve_epochs: of the network that is followed epoch by epoch.
        every: epochs between two measurements of the variants in full.
        alphas: α that are swept, at ε = `epsilon`.
        epsilons: ε that are swept, at α = 0.
        sweep_epochs: epochs of the sweeps.
        trunks: of the branches, each as "data rate split end branch branch …": trained with SGD at the rate until the
            epoch `split`, and from there with every branch, `optimizer@rate`, until the epoch `end`.
        branch_every: epochs between two measurements of trunks and branches.
        overfit_samples, overfit_epochs, overfit_lr, overfit_every: of the part that trains too long.
        label_noise: share of its labels that are drawn anew.
        draws: of the paper's SGLD, in each of two chains.
        gamma: localisation γ of every measurement.
        sampler, chains, budget, rtol: of the calibrated λ̂, as for `bs.llc`; 0 chains: as many as it chooses.
    """

    parts: tuple[str, ...] = PARTS
    data: tuple[str, ...] = ("mnist",)
    networks: tuple[str, ...] = ("1x64", "2x256", "2x64", "1x256", "1x128", "2x128")
    kinds: tuple[str, ...] = ("sgd", "online", "accurate")
    network: str = "2x256"
    variant_network: str = "1x64"
    samples: int = 0
    variant_samples: int = 20_000
    seeds: int = 30
    few_seeds: int = 5
    full_seeds: int = 3
    full_parts: tuple[str, ...] = ("variants",)
    full_networks: tuple[str, ...] = ("1x64", "1x256", "2x64", "2x256")
    kept_seeds: int = 4
    batch_size: int = 128
    lr: float = 1e-2
    unscaled_lr: float = 1e-3
    momentum: float = 0.9
    size_alpha: float = 1e-2
    alpha: float = 1e-1
    epsilon: float = 1e-10
    epochs: int = 20
    measured: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 10, 13, 16)
    curve_epochs: int = 30
    every: int = 5
    alphas: tuple[float, ...] = (0.0, 1e-4, 1e-3, 1e-2, 1e-1, 5e-1, 1.0, 2.0, 5.0, 10.0, 50.0)
    epsilons: tuple[float, ...] = (1e-2, 1e-3, 1e-4, 1e-5, 5e-7, 1e-10, 1e-13, 1e-19)
    sweep_epochs: int = 30
    trunks: tuple[str, ...] = (
        "mnist 1e-4 15 50 sgd@1e-4 online@1e-4 online@5e-4 online@1e-3 online@1e-2 sgd@1e-3 sgd@1e-2",
        "mnist 1e-2 20 60 sgd@1e-2 online@1e-2",
        "mnist 1e-4 30 80 sgd@1e-4 online@1e-3 online@1e-2",
        "mnist 1e-3 30 80 sgd@1e-3 online@1e-3",
        "mnist 1e-2 30 80 sgd@1e-2 online@1e-2",
        "fashion_mnist 1e-2 15 80 sgd@1e-2 online@1e-2",
        "fashion_mnist 1e-3 30 80 sgd@1e-3 online@1e-3",
    )
    branch_every: int = 5
    overfit_samples: int = 0
    overfit_epochs: int = 60
    overfit_lr: float = 1e-2
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
        "samples": 400, "batch_size": 32, "variant_samples": 400, "seeds": 3, "few_seeds": 2, "full_seeds": 2,
        "full_parts": ["sizes", "variants"], "full_networks": ["1x8"], "kept_seeds": 1, "lr": 0.05,
        "unscaled_lr": 0.01, "epochs": 20, "measured": [2, 5, 10],
        "curve_epochs": 20, "every": 20, "draws": 200, "alphas": [1e-2, 1e-1, 1.0, 50.0],
        "epsilons": [1e-10, 1e-5, 1e-3, 1e-1], "sweep_epochs": 12,
        "trunks": ["digits 0.05 12 24 sgd@0.05 online@0.05",
                   "digits 0.005 12 24 sgd@0.005 online@0.005 online@0.05 sgd@0.05"],
        "branch_every": 4, "overfit_samples": 300, "overfit_epochs": 60, "overfit_lr": 0.05, "overfit_every": 6,
        "label_noise": 0.2, "sampler": "hmc", "chains": 4, "budget": 0.1, "rtol": 0.1,
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
        optimizer: `sgd`; `online`, the natural gradient of the papers; `accurate`, the same without its rounding
            errors; `kfac` or `exact`; `branches` for a trunk.
        lr, alpha, epsilon, momentum, batch_size: of the optimizer; for branches `lr` is that of the trunk.
        rates: of branches, `optimizer@rate` each.
        epochs: passes through the data; for branches, those of the trunk included.
        trunk_epochs: those of the trunk.
        measured: epochs after which λ̂ is measured, besides the last two.
        traced: whether Tr H is measured then too, and not at the end alone.
        full_every: epochs between two measurements in full; in a population, 0 or at the end; 0 for never.
        kept: whether the final weights are kept.
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
    full_every: int
    kept: bool
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
    """Jobs with the same key run as populations of one program, all seeds side by side. None: alone."""
    if job.part == "variants":
        return None
    return (job.part, job.data, job.network, job.optimizer == "accurate")


def units(all_jobs: Iterable[Training]) -> list[list[Training]]:
    """The jobs as they run: populations, and single ones."""
    return grouped(all_jobs, together)


def label(unit: Sequence[Training]) -> str:
    """A unit's name, such as `sizes-mnist-2x256-sgd-seed0`: that of its first job."""
    first = unit[0]
    return f"{first.part}-{first.data}-{first.network}-{first.optimizer}-seed{first.seed}"


def cost(job: Training) -> float:
    """Seconds on an H200 with 16 processor cores, roughly.

    A network of a population takes 20 µs a step with SGD. Natural gradient solves eigenvalue problems on the
    processor every fourth step, 15 µs a step for each axis of 160 or more entries, and takes 50 µs besides; a small
    population takes no less than 1.5 ms a step. Measuring λ̂ the paper's way takes 0.05 s, in full 5 s; alone, KFAC
    and the exact Fisher matrix take 3 ms a step.
    """
    steps = math.ceil((job.samples or 60_000) / job.batch_size)
    full = 5.0 * (job.epochs / job.full_every if job.full_every else 0)
    if together(job) is None:
        return job.epochs * (steps * (1e-3 if job.optimizer == "sgd" else 3e-3) + 0.3) + full
    natural = max(_natural_step(job.network), 1.5e-3 / 5 if job.part in ("epochs", "overfitting") else 0.0)
    count = len([rate for rate in job.rates if not rate.startswith("sgd")]) or (job.optimizer != "sgd")
    after = job.epochs - job.trunk_epochs
    measured = 0.05 * (1 + len(job.rates)) * (2 + len(job.measured))
    return steps * (job.epochs * 2e-5 * max(1, len(job.rates)) + after * count * natural) + measured + full


def _natural_step(network: str) -> float:
    """Seconds of one network's step in a population of natural gradient."""
    layers, times, width = network.partition("x")
    axes = 1 + 3 * int(layers) * min(1.0, int(width) / 160) ** 3 if times else 2
    return 5e-5 + 1.5e-5 * axes


def _common(plan: Plan, seed: int, full: int) -> Training:
    return Training(
        part="", data=plan.data[0], network=plan.network, optimizer="sgd", lr=plan.lr, alpha=plan.alpha,
        epsilon=plan.epsilon, momentum=plan.momentum, epochs=plan.epochs, seed=seed, samples=plan.samples,
        label_noise=0.0, batch_size=plan.batch_size, rates=(), trunk_epochs=0, measured=(), traced=True,
        full_every=full if seed < plan.full_seeds else 0, kept=False, draws=plan.draws, gamma=plan.gamma,
        sampler=plan.sampler, chains=plan.chains, budget=plan.budget, rtol=plan.rtol,
    )  # fmt: skip


def _sizes(plan: Plan) -> Iterator[Training]:
    published = tuple(kind for kind in plan.kinds if kind != "accurate")
    for kinds in (published, tuple(kind for kind in plan.kinds if kind == "accurate")):
        for data in plan.data:
            for network in plan.networks:
                for optimizer in kinds:
                    for seed in range(plan.seeds):
                        yield replace(
                            _common(plan, seed, plan.epochs), part="sizes", data=data, network=network,
                            optimizer=optimizer, alpha=plan.size_alpha, measured=plan.measured,
                            traced=seed < plan.few_seeds, kept=seed < plan.kept_seeds,
                        )  # fmt: skip


def _epochs(plan: Plan) -> Iterator[Training]:
    for optimizer in ("sgd", "online"):
        for seed in range(plan.few_seeds):
            yield replace(
                _common(plan, seed, plan.curve_epochs), part="epochs", optimizer=optimizer, epochs=plan.curve_epochs,
                measured=tuple(range(1, plan.curve_epochs + 1)),
            )  # fmt: skip


def _variants(plan: Plan) -> Iterator[Training]:
    for optimizer in ("sgd", "online", "accurate", "kfac", "exact"):
        for seed in range(plan.few_seeds):
            yield replace(
                _common(plan, seed, plan.every), part="variants", network=plan.variant_network, optimizer=optimizer,
                samples=plan.variant_samples, lr=plan.unscaled_lr if optimizer in ("kfac", "exact") else plan.lr,
                measured=tuple(range(1, plan.epochs + 1)),
            )  # fmt: skip


def _smoothing(plan: Plan) -> Iterator[Training]:
    swept: list[tuple[str, float, float]] = [("sgd", plan.alpha, plan.epsilon)]
    swept += [("online", alpha, plan.epsilon) for alpha in plan.alphas]
    swept += [("online", 0.0, epsilon) for epsilon in plan.epsilons]
    for optimizer, alpha, epsilon in dict.fromkeys(swept):
        for seed in range(plan.few_seeds):
            yield replace(
                _common(plan, seed, plan.sweep_epochs), part="smoothing", optimizer=optimizer, alpha=alpha,
                epsilon=epsilon, epochs=plan.sweep_epochs, traced=False,
            )  # fmt: skip


def _branches(plan: Plan) -> Iterator[Training]:
    for trunk in plan.trunks:
        data, rate, split, end, *branches = trunk.split()
        for seed in range(plan.few_seeds):
            yield replace(
                _common(plan, seed, int(end)), part="branches", data=data, optimizer="branches", lr=float(rate),
                epochs=int(end), trunk_epochs=int(split), rates=tuple(branches), traced=False,
                measured=tuple(range(plan.branch_every, int(end) + 1, plan.branch_every)),
            )  # fmt: skip


def _overfitting(plan: Plan) -> Iterator[Training]:
    for optimizer in ("sgd", "online"):
        for seed in range(plan.few_seeds):
            yield replace(
                _common(plan, seed, plan.overfit_epochs), part="overfitting", optimizer=optimizer,
                lr=plan.overfit_lr, epochs=plan.overfit_epochs, samples=plan.overfit_samples,
                label_noise=plan.label_noise,
                measured=tuple(range(plan.overfit_every, plan.overfit_epochs + 1, plan.overfit_every)),
            )  # fmt: skip
