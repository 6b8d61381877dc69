"""What can be said of a network within ten seconds: λ̂ from as many samples and by such chains as that time allows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch

from ..estimates import Check, Estimate
from ..landscape import Landscape, check_landscape
from ..progress import duration, part, tracked
from ..sampling.calibration import FEWEST_PRODUCTS, PRODUCT_PRICE, Resolution, resolution
from ..sampling.chains import ChainLosses
from ..sampling.clock import clock_of
from ..sampling.cost import Cost, measured_cost
from ..sampling.local import Settings
from ..sampling.plan import planned
from .coefficient import LearningCoefficient
from .llc import llc
from .measured import ChainTraces, Measurement
from .measurement import subject_of
from .remedies import followable
from .settings import Sampling

SECONDS = 7.0  # of sampling, so that with reading data and writing a report an answer takes at most ten
_PRICED = 64  # samples at most on which the price of a gradient is measured
_FEWEST = 16  # samples, fewer of which say nothing about the data
_PLAIN_CHAINS, _PLAIN_BATCH = 2, 8
_FEWEST_DRAWS, _MOST_DRAWS = 64, 1000
_SPARE = 0.8  # of the time, that may be planned


class Choice(NamedTuple):
    """How a quick answer is found.

    Attributes:
        samples: of the data, evenly chosen.
        sampler: `auto`, or `sgld` where even the least useful run of the engine would take too long.
        draws: of each chain of `sgld`.
        seconds: that it is expected to take at least.
    """

    samples: int
    sampler: str
    draws: int | None
    seconds: float


def choice(land: Landscape, price: Cost, seconds: float) -> Choice | None:
    """The most samples, and the engine before plain chains, that so many seconds allow; None where nothing does.

    Args:
        land: the landscape.
        price: of a gradient.
        seconds: that there are.

    Examples:
        >>> import basinscope as bs
        >>> land = bs.Landscape(torch.nn.Linear(3, 1), "mse", (torch.zeros(500, 3), torch.zeros(500, 1)))
        >>> choice(land, Cost(1e-4, 1e-7), 7.0).samples, choice(land, Cost(1e-4, 10.0), 7.0)
        (500, None)
        >>> choice(land, Cost(1e-3, 2e-3), 7.0).sampler
        'sgld'
    """
    most = _SPARE * seconds
    for samples in _sizes(land.n):
        view = land if samples == land.n else land.subset(slice(0, samples))
        least = planned(view, Settings(), price, seconds).least_seconds
        if least <= most:
            return Choice(samples, "auto", None, least)
    for samples in _sizes(land.n):
        before = PRODUCT_PRICE * (1 + FEWEST_PRODUCTS) * price.of(samples, 1)  # curvature for the size of the step
        each = price.of(min(samples, _PLAIN_BATCH), _PLAIN_CHAINS)
        draws = int((most - before) / each)
        if draws >= _FEWEST_DRAWS:
            draws = min(draws, _MOST_DRAWS)
            return Choice(samples, "sgld", draws, before + draws * each)
    return None


def _sizes(n: int) -> Iterator[int]:
    """All samples, then half as many again and again."""
    while n >= _FEWEST:
        yield n
        n //= 2


def quick_measurement(
    land: Landscape,
    *,
    seconds: float = SECONDS,
    nbeta: float | None = None,
    gamma: float | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Measurement:
    """λ̂ and what its chains know of the curvature, in about so many seconds; everything else is left out.

    What had to be given up, samples or sound chains, is a check that has not passed.
    """
    check_landscape(land)
    started = time.perf_counter()
    with tracked("quick look", progress) as report:
        report(0.0, "the price of a gradient")
        few = land if land.n <= _PRICED else _evenly(land, _PRICED)
        clock = clock_of(seconds)
        price = measured_cost(ChainLosses(few), clock)
        left = seconds - (time.perf_counter() - started)
        chosen = choice(land, price, left)
        at = resolution(land, nbeta, gamma)
        if chosen is None:
            view, coefficient = few, _too_slow(at, planned(land, Settings(), price, seconds).least_seconds)
        else:
            view = land if chosen.samples == land.n else _evenly(land, chosen.samples)
            settings: Sampling = {"nbeta": at.nbeta, "gamma": at.gamma, "budget": max(1.0, left), "seed": seed}
            if chosen.sampler != "auto":
                settings |= {
                    "sampler": chosen.sampler, "chains": _PLAIN_CHAINS, "draws": chosen.draws,
                    "batch_size": min(view.n, _PLAIN_BATCH),
                }  # fmt: skip
            with part(report, 0.1, 1.0):
                coefficient = llc(view, progress=progress, **settings)
            coefficient = replace(coefficient, checks=(*coefficient.checks, check_samples(view.n, land.n)))
    return Measurement(
        subject_of(land, view), followable("llc", coefficient), _half(coefficient), [], {},
        ChainTraces.of(coefficient), None, ["a quick look: λ̂ alone, in about ten seconds"],
        {"llc": time.perf_counter() - started},
    )  # fmt: skip


def _evenly(land: Landscape, count: int) -> Landscape:
    return land.subset(torch.linspace(0, land.n - 1, count).long())


def _too_slow(at: Resolution, least: float) -> LearningCoefficient:
    reason = (
        f"too slow for a quick look: chains on {_FEWEST} samples make fewer than {_FEWEST_DRAWS} steps in it — call "
        f"bs.llc(land, budget=…), of use from about {duration(least)} on"
    )
    return LearningCoefficient.failed("llc", reason, {"nbeta": at.nbeta, "gamma": at.gamma})


def _half(coefficient: LearningCoefficient) -> Estimate:
    """½ soft rank by the curvature that the sampler has measured for its own use."""
    half = coefficient.diagnostics.get("half_soft_rank")
    if half is None:
        return Estimate.failed("half_soft_rank", "not measured in a quick look — call bs.measure(land)")
    return Estimate("half_soft_rank", half, 0.0, (), {"matrix": "hessian", "method": "as the sampler uses it"})


def check_samples(seen: int, n: int) -> Check:
    """Whether all samples were looked at: the minimum of part of them is elsewhere."""
    return Check(
        "samples", f"{seen:,} of {n:,}", "all", seen == n, "call bs.llc(land)",
        reason=f"part of the data: a quick look had time for {seen:,} of {n:,} samples",
    )  # fmt: skip
