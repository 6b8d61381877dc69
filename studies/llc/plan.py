"""What the study does, as plain values: its settings at either scale, the jobs they make, and which run together."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from studies.common.plans import PlainJob, grouped

NAME, VERSION = "llc", 1
PARTS = ("truth", "resolution", "atlas", "entropy", "beyond", "cost")

# Steps of the published code, ε·nβ at either end of the sizes it was run on: 5e-6 with n = 10⁴ for networks of some
# 10⁴ parameters, 5e-9 with n = 10⁶ for 10⁸. Sizes between have a step between.
_PUBLISHED = ((4.0, 5e-6 * 1e4 / math.log(1e4)), (8.0, 5e-9 * 1e6 / math.log(1e6)))
_FULL_RANK = 0.8
_UNIT = 16  # of the widths of large networks
_BATCH = 512  # what the calibrated sampler takes
_POPULATION = 20  # networks of an optimizer that are trained together
# How many λ̂ the views of a network take besides the moments of its training, and seconds of an H200 for each.
_BEYOND: dict[str, tuple[dict[str, int], float]] = {
    "resnet": ({"weights": 6, "data": 5}, 30.0), "text": ({"weights": 12, "data": 2}, 15.0), "grokking": ({}, 6.0),
}  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """Settings of the study.

    Attributes:
        parts: which parts to run: `truth` (deep linear networks against exact λ), `resolution` (λ_t over decades of
            nβ), `atlas` (plain SGLD over its settings), `entropy` (Entropy-SGD against SGD), `beyond` (residual
            network, transformer, grokking), `cost` (time and memory of a chain draw).
        decades: exponents of the sizes of deep linear networks: 2 stands for 10² to 10³ parameters.
        networks: how many of each.
        hidden_layers: fewest and most hidden layers.
        minibatch_samples: of deep linear networks measured on minibatches, or their number of inputs where that is
            more. On all data there are as many samples as inputs: they are orthogonal, so that more of them with the
            same stiffness have the same posterior, and only cost more.
        truth_gamma: γ there, in units of the mean width. The published γ is 1.
        truth_stiffness: nβσ of their inputs' second moment σ, in units of γ, for each of the decades: how fine the
            resolution is. Far from w* the factors have singular values of some truth_gamma^(−½), so that the steepest
            directions of L layers are T = truth_stiffness·truth_gamma^(1−L) times as steep as the localiser.
        truth_minibatch: how many networks of each of the decades are also measured on minibatches alone.
        truth_budgets: nominal seconds of sampling for each of the decades; on minibatches alone 60 at least.
        published_samples, published_draws: of the published chain; draws for each of the decades.
        published_batch: samples of its batches.
        rungs: values of nβ of the ladders; the real network's end at n/log n, as many decades below.
        ladder_cases: `quadratic`, `chain`, `network` (deep linear, the last two) and `real`.
        ladder_gamma, ladder_budget: γ, and nominal seconds a rung.
        atlas_cases: `small`, `real`.
        factors: values of γ, nβ and ε on the maps, in units of the calibrated ones.
        lengths: of chains on the maps; the calibrated one is 2,000.
        batches: sizes on the maps; the calibrated one is 512 or all samples.
        atlas_chains, atlas_budget: chains a cell, and nominal seconds of each reference.
        data: of the real networks, of Entropy-SGD and of the atlas.
        atlas_widths: hidden widths of the real network of atlas and ladder.
        atlas_samples, atlas_epochs: what it is trained on, and how long.
        entropy_widths: hidden widths.
        entropy_samples, entropy_seeds, entropy_batch, entropy_lr: of both optimizers; 0 samples: all. `entropy_lr` is
            that of Entropy-SGD's outer loop, `entropy_inner_steps` the length of its inner one.
        entropy_looks: epochs after which λ̂ is measured; training ends with the last.
        entropy_full: seeds that get the calibrated λ̂ at the end.
        entropy_draws: of the paper's SGLD (4 chains, γ = 100, ε = 1e-5), and `entropy_step` its ε.
        entropy_budget: nominal seconds of the calibrated λ̂.
        beyond_cases: `resnet`, `text`, `grokking`.
        beyond_size: `small` or `full` networks and data.
        beyond_epochs, beyond_moments: of residual network and transformer, and how many times λ̂ is measured on the way.
        grokking_epochs, grokking_moments: the same of the other.
        beyond_budget, grokking_budget: nominal seconds of each λ̂.
        beyond_sampler, beyond_chains, beyond_draws: as for `bs.llc`, of all three; 0 for what it chooses.
        cost_cases: architectures that are timed.
        cost_draws, cost_chains: of the timing.
        large: parameters, in millions, of the network whose memory is measured.
        seed: of the first of everything.
    """

    parts: tuple[str, ...] = PARTS
    decades: tuple[int, ...] = (2, 3, 4, 5, 6, 7)
    networks: tuple[int, ...] = (14, 14, 14, 10, 5, 3)
    hidden_layers: tuple[int, ...] = (1, 5)
    minibatch_samples: int = 2000
    truth_gamma: float = 0.5
    # By Gibbs sampling a perfect sampler is then below λ by 1 % (median) and 12 % (95th percentile) in decade 2, 0 and
    # 9 % in decade 3, at most 5 % in decade 4, 0 and 5 % in decade 5. Finer than that, chains do not reach equilibrium.
    truth_stiffness: tuple[float, ...] = (6000.0, 1000.0, 1000.0, 300.0, 300.0, 300.0)
    truth_minibatch: tuple[int, ...] = (4, 4, 3, 2, 1, 0)
    truth_budgets: tuple[float, ...] = (20.0, 40.0, 120.0, 30.0, 45.0, 100.0)
    published_samples: int = 20_000
    published_draws: tuple[int, ...] = (10_000, 10_000, 10_000, 50_000, 10_000, 10_000)
    published_batch: int = 500
    rungs: tuple[float, ...] = (10.0, 31.6, 100.0, 316.0, 1000.0, 3162.0, 10_000.0, 31_623.0, 100_000.0)
    ladder_cases: tuple[str, ...] = ("quadratic", "chain", "network", "real")
    ladder_gamma: float = 1.0
    ladder_budget: float = 5.0
    atlas_cases: tuple[str, ...] = ("small", "real")
    factors: tuple[float, ...] = (0.0625, 0.25, 1.0, 4.0, 16.0)
    lengths: tuple[int, ...] = (125, 500, 2000, 8000)
    batches: tuple[int, ...] = (32, 128, 512, 2048)
    atlas_chains: int = 4
    atlas_budget: float = 2.0
    data: str = "mnist"
    atlas_widths: tuple[int, ...] = (128,)
    atlas_samples: int = 10_000
    atlas_epochs: int = 30
    entropy_widths: tuple[int, ...] = (1024, 1024)
    entropy_samples: int = 0
    entropy_seeds: int = 80
    entropy_looks: tuple[int, ...] = (2, 5, 10, 20, 50, 200)
    entropy_batch: int = 512
    entropy_lr: float = 0.01
    entropy_inner_steps: int = 5
    entropy_full: int = 5
    entropy_draws: int = 400
    entropy_step: float = 1e-5
    entropy_budget: float = 8.0
    beyond_cases: tuple[str, ...] = ("resnet", "text", "grokking")
    beyond_size: str = "full"
    beyond_epochs: int = 60
    beyond_moments: int = 5
    grokking_epochs: int = 1500
    grokking_moments: int = 20
    beyond_budget: float = 6.0
    grokking_budget: float = 15.0
    beyond_sampler: str = "auto"
    beyond_chains: int = 0
    beyond_draws: int = 0
    cost_cases: tuple[str, ...] = ("mlp", "lenet5", "resnet", "text", "large")
    cost_draws: int = 200
    cost_chains: int = 4
    large: float = 100.0
    seed: int = 0


SCALES: dict[str, dict[str, Any]] = {
    "smoke": {
        "decades": [2], "networks": [3], "minibatch_samples": 400, "hidden_layers": [1, 2], "truth_budgets": [1.0],
        "truth_minibatch": [0], "truth_gamma": 4.0, "truth_stiffness": [100.0],
        "published_samples": 400, "published_draws": [1000],
        "rungs": [10.0, 100.0, 1000.0, 10_000.0, 100_000.0], "ladder_budget": 1.0,
        "ladder_cases": ["quadratic", "chain", "real"], "atlas_cases": ["small"], "factors": [0.25, 1.0, 4.0],
        "lengths": [125, 500], "batches": [32, 128],
        "atlas_chains": 2, "atlas_budget": 0.5, "data": "digits", "atlas_widths": [8], "atlas_samples": 400,
        "atlas_epochs": 60, "entropy_widths": [16], "entropy_samples": 400, "entropy_seeds": 5,
        "entropy_looks": [5, 20, 60], "entropy_batch": 32, "entropy_lr": 0.02, "entropy_full": 2,
        "entropy_draws": 100, "entropy_step": 1e-4,
        "entropy_budget": 0.5,
        "beyond_size": "small", "beyond_epochs": 20, "beyond_moments": 4, "grokking_epochs": 1200,
        "grokking_moments": 4,
        "beyond_budget": 0.3, "grokking_budget": 0.3,
        "beyond_sampler": "sgld", "beyond_chains": 2, "beyond_draws": 100,
        "cost_cases": ["mlp", "text", "large"], "cost_draws": 4, "cost_chains": 2, "large": 1.0,
    },
    "paper": {},
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Truth(PlainJob):
    """One deep linear network of random widths and rank: calibrated λ̂ and the published protocol against exact λ.

    It is calibrated on as many orthogonal samples as there are inputs. With `minibatch_samples`, which is 0 otherwise,
    it is taken once more on minibatches of so many.

    `published_samples`, `step_size`, `draws` and `batch_size` are the published chain's; `gamma`, `stiffness` (nβσ of
    the inputs' second moment σ, in units of γ) and `budget` ours.
    """

    part: Literal["truth"] = "truth"
    decade: int
    seed: int
    widths: tuple[int, ...]
    rank: int
    gamma: float
    stiffness: float
    budget: float
    minibatch_samples: int
    published_samples: int
    step_size: float
    draws: int
    batch_size: int


@dataclass(frozen=True, kw_only=True)
class Ladder(PlainJob):
    """λ_t at every rung nβ, by the same chains."""

    part: Literal["resolution"] = "resolution"
    case: str
    seed: int
    rungs: tuple[float, ...]
    gamma: float
    budget: float
    data: str
    widths: tuple[int, ...]
    samples: int
    epochs: int


@dataclass(frozen=True, kw_only=True)
class Map(PlainJob):
    """Plain SGLD with one batch size over γ, nβ, ε and chain length; with the calibrated one also the references."""

    part: Literal["atlas"] = "atlas"
    case: str
    seed: int
    batch_size: int
    calibrated_batch: int
    factors: tuple[float, ...]
    lengths: tuple[int, ...]
    chains: int
    budget: float
    data: str
    widths: tuple[int, ...]
    samples: int
    epochs: int


@dataclass(frozen=True, kw_only=True)
class Descent(PlainJob):
    """One network trained by `sgd` or `entropy-sgd`: λ̂ by the paper's settings after `looks` epochs, and at the end
    the calibrated one if `full`."""

    part: Literal["entropy"] = "entropy"
    optimizer: str
    seed: int
    data: str
    widths: tuple[int, ...]
    samples: int
    looks: tuple[int, ...]
    train_batch: int
    lr: float
    inner_steps: int
    draws: int
    step_size: float
    full: bool
    budget: float


@dataclass(frozen=True, kw_only=True)
class Follow(PlainJob):
    """λ̂ through a training (`training`), or of parts of the weights (`weights`) or the data (`data`) at its end."""

    part: Literal["beyond"] = "beyond"
    case: str
    view: str
    seed: int
    size: str
    epochs: int
    moments: int
    budget: float
    sampler: str
    chains: int
    draws: int


@dataclass(frozen=True, kw_only=True)
class Timing(PlainJob):
    """Time and memory of chain draws of one architecture."""

    part: Literal["cost"] = "cost"
    case: str
    seed: int
    chains: int
    draws: int
    millions: float


Job = Truth | Ladder | Map | Descent | Follow | Timing
KINDS: dict[str, type[PlainJob]] = {
    "truth": Truth, "resolution": Ladder, "atlas": Map, "entropy": Descent, "beyond": Follow, "cost": Timing,
}  # fmt: skip


def job_of(config: Mapping[str, Any]) -> Any:
    """The job of a config.

    Examples:
        >>> job = next(jobs(Plan()))
        >>> job_of(job.config()) == job
        True
    """
    return KINDS[config["part"]].of(config)


def jobs(plan: Plan) -> Iterator[Any]:
    """All jobs, in the order of the table.

    Examples:
        >>> [job.case for job in jobs(Plan(parts=("cost",), cost_cases=("mlp", "text")))]
        ['mlp', 'text']
    """
    makers = {
        "truth": _truth, "resolution": _ladders, "atlas": _maps, "entropy": _descents, "beyond": _follows,
        "cost": _timings,
    }  # fmt: skip
    for part in PARTS:
        if part in plan.parts:
            yield from makers[part](plan)


def together(job: Any) -> tuple[Any, ...] | None:
    """Jobs with the same key run as one population; None: alone."""
    return (job.part, job.optimizer, job.seed // _POPULATION) if job.part == "entropy" else None


def units(all_jobs: Iterable[Any]) -> list[list[Any]]:
    """The jobs as they run: populations, and single ones."""
    return grouped(all_jobs, together)


def label(unit: Sequence[Any]) -> str:
    """A unit's name, such as `truth-decade4-seed7`."""
    job = unit[0]
    told = {
        "truth": lambda: f"decade{job.decade}-seed{job.seed}",
        "resolution": lambda: job.case,
        "atlas": lambda: f"{job.case}-batch{job.batch_size}",
        "entropy": lambda: f"{job.optimizer}-seed{job.seed}",
        "beyond": lambda: f"{job.case}-{job.view}",
        "cost": lambda: job.case,
    }
    return f"{job.part}-{told[job.part]()}"


def minibatch_budget(job: Truth) -> float:
    """Nominal seconds on minibatches alone: those that `bs.llc` has by default at least, because a batch has more
    samples there than there are in all elsewhere."""
    return max(job.budget, 60.0)


def cost(job: Any) -> float:
    """Seconds on an H200, roughly."""
    if job.part == "truth":
        size, once_more = size_of(job.widths), minibatch_budget(job) if job.minibatch_samples else 0.0
        return 6.0 + 1.2 * job.budget + once_more + job.draws * (1.2e-4 + 1.2e-10 * size)
    if job.part == "resolution":
        return 4.0 + len(job.rungs) * job.budget * 0.8
    if job.part == "atlas":
        cells = len(job.factors) ** 2 if job.batch_size == job.calibrated_batch else 0
        return 10.0 + max(job.lengths) * 1e-3 + cells * job.budget
    if job.part == "entropy":
        epoch = 0.007 if job.optimizer == "sgd" else 0.022
        return 0.6 + 0.15 * len(job.looks) + epoch * job.looks[-1] + (1.2 * job.budget + 2.0 if job.full else 0.0)
    if job.part == "beyond":
        times, each = _BEYOND[job.case]
        return 20.0 + each * times.get(job.view, job.moments + 1)
    return 12.0


# ---------------------------------------------------------------------- the parts


def size_of(widths: Iterable[int]) -> int:
    """Parameters of a deep linear network.

    Examples:
        >>> size_of([10, 5, 10])
        100
    """
    return sum(a * b for a, b in pairwise(widths))


def random_widths(decade: int, seed: int, layers: tuple[int, ...] = (1, 5)) -> tuple[tuple[int, ...], int]:
    """Widths and rank of a deep linear network of 10^decade to 10^(decade + 1) parameters and so many hidden layers.

    The size is log-uniform and widths differ by up to a factor of three; from 10⁵ parameters on they are multiples of
    16, which suits the matrix products of a GPU. As in the published code a layer is of full rank with probability 0.8,
    and else of any rank from 0 on; the map has the smallest of these ranks.

    Examples:
        >>> widths, rank = random_widths(3, seed=0)
        >>> 1000 <= size_of(widths) <= 10_000, 0 <= rank <= min(widths)
        (True, True)
    """
    draw = random.Random(1000 * decade + seed)
    shape = [draw.uniform(0.5, 1.5) for _ in range(draw.randint(*layers) + 2)]
    wanted = 10 ** draw.uniform(decade + 0.05, decade + 0.95)
    scale = math.sqrt(wanted / sum(a * b for a, b in pairwise(shape)))
    unit = _UNIT if decade >= 5 else 1
    widths = tuple(max(2, unit * round(scale * part / unit)) for part in shape)
    full = [min(pair) for pair in pairwise(widths)]
    return widths, min(most if draw.random() < _FULL_RANK else draw.randint(0, most) for most in full)


def published_step(size: int, samples: int) -> float:
    """ε of the published runs for a network of that size: ε·nβ interpolated between what the published code has.

    Examples:
        >>> published_step(10_000, 10_000), published_step(10**8, 10**6)
        (5e-06, 5e-09)
    """
    (low, first), (high, last) = _PUBLISHED
    share = min(1.0, max(0.0, (math.log10(size) - low) / (high - low)))
    scaled = math.exp((1 - share) * math.log(first) + share * math.log(last))
    return float(f"{scaled * math.log(samples) / samples:.4g}")


def _truth(plan: Plan) -> Iterator[Truth]:
    columns = (
        plan.decades, plan.networks, plan.truth_stiffness, plan.truth_minibatch, plan.truth_budgets,
        plan.published_draws,
    )  # fmt: skip
    for decade, count, stiffness, minibatch, budget, draws in zip(*columns, strict=True):
        for seed in range(plan.seed, plan.seed + count):
            widths, rank = random_widths(decade, seed, plan.hidden_layers)
            gamma = float(f"{plan.truth_gamma * sum(widths) / len(widths):.4g}")
            on_minibatches = max(plan.minibatch_samples, widths[0]) if seed - plan.seed < minibatch else 0
            yield Truth(
                decade=decade, seed=seed, widths=widths, rank=rank, gamma=gamma, stiffness=stiffness, budget=budget,
                minibatch_samples=on_minibatches, published_samples=plan.published_samples,
                step_size=published_step(size_of(widths), plan.published_samples), draws=draws,
                batch_size=plan.published_batch,
            )  # fmt: skip


def _ladders(plan: Plan) -> Iterator[Ladder]:
    for case in plan.ladder_cases:
        yield Ladder(
            case=case, seed=plan.seed, rungs=plan.rungs, gamma=plan.ladder_gamma, budget=plan.ladder_budget,
            data=plan.data, widths=plan.atlas_widths, samples=plan.atlas_samples, epochs=plan.atlas_epochs,
        )  # fmt: skip


def _maps(plan: Plan) -> Iterator[Map]:
    for case in plan.atlas_cases:
        real = case == "real"
        usual = max((batch for batch in plan.batches if batch <= _BATCH), default=min(plan.batches))
        for batch in plan.batches:
            yield Map(
                case=case, seed=plan.seed, batch_size=batch, calibrated_batch=usual, factors=plan.factors,
                lengths=plan.lengths, chains=plan.atlas_chains, budget=plan.atlas_budget,
                data=plan.data if real else "digits",
                widths=plan.atlas_widths if real else (8,), samples=plan.atlas_samples if real else 1000,
                epochs=plan.atlas_epochs if real else 60,
            )  # fmt: skip


def _descents(plan: Plan) -> Iterator[Descent]:
    for optimizer in ("sgd", "entropy-sgd"):
        for seed in range(plan.seed, plan.seed + plan.entropy_seeds):
            yield Descent(
                optimizer=optimizer, seed=seed, data=plan.data, widths=plan.entropy_widths,
                samples=plan.entropy_samples, looks=plan.entropy_looks, train_batch=plan.entropy_batch,
                lr=plan.entropy_lr, inner_steps=plan.entropy_inner_steps, draws=plan.entropy_draws,
                step_size=plan.entropy_step, full=seed - plan.seed < plan.entropy_full, budget=plan.entropy_budget,
            )  # fmt: skip


def _follows(plan: Plan) -> Iterator[Follow]:
    for case in plan.beyond_cases:
        grokking = case == "grokking"
        for view in ("training",) if grokking else ("training", "weights", "data"):
            yield Follow(
                case=case, view=view, seed=plan.seed, size=plan.beyond_size,
                epochs=plan.grokking_epochs if grokking else plan.beyond_epochs,
                moments=plan.grokking_moments if grokking else plan.beyond_moments,
                budget=plan.grokking_budget if grokking else plan.beyond_budget,
                sampler=plan.beyond_sampler, chains=plan.beyond_chains, draws=plan.beyond_draws,
            )  # fmt: skip


def _timings(plan: Plan) -> Iterator[Timing]:
    for case in plan.cost_cases:
        yield Timing(case=case, seed=plan.seed, chains=plan.cost_chains, draws=plan.cost_draws, millions=plan.large)
