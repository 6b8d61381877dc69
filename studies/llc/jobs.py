"""The jobs of the study, which of them run together, and how long they take."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Literal

from basinscope.runs.study import Job

from .settings import PARTS, LlcSettings

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


class Truth(Job):
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


class Ladder(Job):
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


class Map(Job):
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


class Descent(Job):
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


class Follow(Job):
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


class Timing(Job):
    """Time and memory of chain draws of one architecture."""

    part: Literal["cost"] = "cost"
    case: str
    seed: int
    chains: int
    draws: int
    millions: float


def jobs(settings: LlcSettings) -> Iterator[Any]:
    """All jobs, in the order of the table.

    Examples:
        >>> [job.case for job in jobs(LlcSettings(parts=("cost",), cost_cases=("mlp", "text")))]
        ['mlp', 'text']
    """
    makers = {
        "truth": _truth, "resolution": _ladders, "atlas": _maps, "entropy": _descents, "beyond": _follows,
        "cost": _timings,
    }  # fmt: skip
    for part in PARTS:
        if part in settings.parts:
            yield from makers[part](settings)


def together(job: Any) -> tuple[Any, ...] | None:
    """Jobs with the same key run as one population; None: alone."""
    return (job.part, job.optimizer, job.seed // _POPULATION) if job.part == "entropy" else None


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


def _truth(settings: LlcSettings) -> Iterator[Truth]:
    columns = (
        settings.decades, settings.networks, settings.truth_stiffness, settings.truth_minibatch, settings.truth_budgets,
        settings.published_draws,
    )  # fmt: skip
    for decade, count, stiffness, minibatch, budget, draws in zip(*columns, strict=True):
        for seed in range(settings.seed, settings.seed + count):
            widths, rank = random_widths(decade, seed, settings.hidden_layers)
            gamma = float(f"{settings.truth_gamma * sum(widths) / len(widths):.4g}")
            on_minibatches = max(settings.minibatch_samples, widths[0]) if seed - settings.seed < minibatch else 0
            yield Truth(
                decade=decade, seed=seed, widths=widths, rank=rank, gamma=gamma, stiffness=stiffness, budget=budget,
                minibatch_samples=on_minibatches, published_samples=settings.published_samples,
                step_size=published_step(size_of(widths), settings.published_samples), draws=draws,
                batch_size=settings.published_batch,
            )  # fmt: skip


def _ladders(settings: LlcSettings) -> Iterator[Ladder]:
    for case in settings.ladder_cases:
        yield Ladder(
            case=case, seed=settings.seed, rungs=settings.rungs, gamma=settings.ladder_gamma,
            budget=settings.ladder_budget, data=settings.data, widths=settings.atlas_widths,
            samples=settings.atlas_samples, epochs=settings.atlas_epochs,
        )  # fmt: skip


def _maps(settings: LlcSettings) -> Iterator[Map]:
    for case in settings.atlas_cases:
        real = case == "real"
        usual = max((batch for batch in settings.batches if batch <= _BATCH), default=min(settings.batches))
        for batch in settings.batches:
            yield Map(
                case=case, seed=settings.seed, batch_size=batch, calibrated_batch=usual, factors=settings.factors,
                lengths=settings.lengths, chains=settings.atlas_chains, budget=settings.atlas_budget,
                data=settings.data if real else "digits",
                widths=settings.atlas_widths if real else (8,), samples=settings.atlas_samples if real else 1000,
                epochs=settings.atlas_epochs if real else 60,
            )  # fmt: skip


def _descents(settings: LlcSettings) -> Iterator[Descent]:
    for optimizer in ("sgd", "entropy-sgd"):
        for seed in range(settings.seed, settings.seed + settings.entropy_seeds):
            yield Descent(
                optimizer=optimizer, seed=seed, data=settings.data, widths=settings.entropy_widths,
                samples=settings.entropy_samples, looks=settings.entropy_looks, train_batch=settings.entropy_batch,
                lr=settings.entropy_lr, inner_steps=settings.entropy_inner_steps, draws=settings.entropy_draws,
                step_size=settings.entropy_step, full=seed - settings.seed < settings.entropy_full,
                budget=settings.entropy_budget,
            )  # fmt: skip


def _follows(settings: LlcSettings) -> Iterator[Follow]:
    for case in settings.beyond_cases:
        grokking = case == "grokking"
        for view in ("training",) if grokking else ("training", "weights", "data"):
            yield Follow(
                case=case, view=view, seed=settings.seed, size=settings.beyond_size,
                epochs=settings.grokking_epochs if grokking else settings.beyond_epochs,
                moments=settings.grokking_moments if grokking else settings.beyond_moments,
                budget=settings.grokking_budget if grokking else settings.beyond_budget,
                sampler=settings.beyond_sampler, chains=settings.beyond_chains, draws=settings.beyond_draws,
            )  # fmt: skip


def _timings(settings: LlcSettings) -> Iterator[Timing]:
    for case in settings.cost_cases:
        yield Timing(
            case=case,
            seed=settings.seed,
            chains=settings.cost_chains,
            draws=settings.cost_draws,
            millions=settings.large,
        )
