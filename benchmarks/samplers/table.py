"""The leaderboard as a page and a figure."""

from __future__ import annotations

import inspect
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from basinscope.figure_style import BULK, POINT, panels

from .contest import BUDGETS, Outcome
from .entries import ENTRIES

OURS = "bs.llc"
WRONG = 0.5  # relative error from which on a number says nothing
RESAMPLED = 400
EXAMPLE = "HMC"  # the entry that the page shows


def ranked(outcomes: Sequence[Outcome]) -> list[str]:
    """Samplers by their median error at the largest budget, the best first."""
    names = dict.fromkeys(each.sampler for each in outcomes)
    return sorted(names, key=lambda name: middle(outcomes, name, BUDGETS[-1]))


def errors(outcomes: Sequence[Outcome], name: str, gradients: int) -> list[float]:
    return [each.error for each in outcomes if each.sampler == name and each.gradients == gradients]


def middle(outcomes: Sequence[Outcome], name: str, gradients: int) -> float:
    """The median error; infinite where there is none."""
    found = errors(outcomes, name, gradients)
    return statistics.median(found) if found else math.inf


def counted(count: int, noun: str) -> str:
    """So many of them, in words.

    Examples:
        >>> counted(1, "seed"), counted(3, "seed")
        ('1 seed', '3 seeds')
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"


def interval(outcomes: Sequence[Outcome], name: str, gradients: int) -> tuple[float, float]:
    """90 % of the medians of landscapes drawn again, and of seeds drawn again of each."""
    places: dict[str, list[float]] = {}
    for each in outcomes:
        if each.sampler == name and each.gradients == gradients:
            places.setdefault(each.landscape, []).append(each.error)
    if not places:
        return math.inf, math.inf
    rng = np.random.default_rng(0)
    rows = list(places.values())
    medians = [
        np.median(
            np.concatenate([rng.choice(rows[place], len(rows[place])) for place in rng.choice(len(rows), len(rows))])
        )
        for _ in range(RESAMPLED)
    ]
    low, high = np.quantile(medians, (0.05, 0.95), method="nearest")
    return float(low), float(high)


def page(outcomes: Sequence[Outcome], provenance: Sequence[str]) -> str:
    """Markdown, with the answer first."""
    names = ranked(outcomes)
    landscapes = list(dict.fromkeys(each.landscape for each in outcomes))
    seeds = len({each.seed for each in outcomes})
    return "\n".join([
        "# Samplers: error against cost", "",
        answer(outcomes, names, len(landscapes)), "",
        "![Median error over the number of gradients](samplers.svg)", "",
        f"Median of |λ̂ − λ_t|/λ_t over {len(landscapes)} landscapes and {counted(seeds, 'seed')} of each, λ_t from "
        "closed forms, quadrature and exact Gibbs sampling. In brackets is the interval that holds 90 % of the medians "
        "of landscapes and seeds drawn again. A gradient is one chain's on all data. The last columns have the largest "
        f"error with {BUDGETS[-1]:,} gradients, and how many of these runs are off by {WRONG:.0%} or gave no number.",
        "",
        f"| sampler | {' | '.join(f'{count:,} gradients' for count in BUDGETS)} | worst | off |",
        f"|---|{'---:|' * (len(BUDGETS) + 2)}",
        *(row(outcomes, name) for name in names), "",
        f"## Landscape by landscape, with {BUDGETS[-1]:,} gradients", "",
        f"| landscape | λ_t | {' | '.join(names)} |", f"|---|---:|{'---:|' * len(names)}",
        *(by_landscape(outcomes, name, names) for name in landscapes), "",
        "## What each was told", "",
        "All sample the posterior at nβ = n/log n and γ = 1 from w*, with n = 1,000 and four chains. The first quarter "
        "is left out, unless a sampler tunes itself. Those with a step size are told the stiffest curvature that a "
        "chain meets, which nobody knows beforehand, and take half of what it allows. MALA and HMC take less by what "
        "their dimension asks for. MCLMC and MAMS tune themselves with three tenths of the gradients. `bs.llc` is told "
        "nothing, and its count includes curvature, tuning and all. devinterp 2.0.1 averages over burn-in, too, as "
        "it does. RMSProp-SGLD of devinterp takes a tenth of the step, as that is divided by 0.1 at least.", "",
        "On quadratics `bs.llc` is exact but for rounding: it knows the mean of what curvature at w* explains.", "",
        "## Add a sampler", "",
        "Write a function of landscape, number of gradients and seed that returns λ̂, and name it by `@entry(…)` in "
        "`benchmarks/samplers/entries.py`: `make bench-samplers ARGS='--samplers NAME'` then runs it alone and adds "
        "it to this page. The landscape has `land`, with its loss, gradients and data, `nbeta`, `gamma`, and "
        f"`stiffest`. The entry {EXAMPLE} is this:", "",
        "```python", inspect.getsource(ENTRIES[EXAMPLE]).rstrip(), "```", "",
        "A sampler of another package runs in its own environment, by a worker like those in "
        "`benchmarks/samplers/peers/`. The shortest of these have twenty lines of their own.", "",
        "## Where the numbers come from", "",
        *(f"- {line}" for line in provenance), "",
    ])  # fmt: skip


def answer(outcomes: Sequence[Outcome], names: Sequence[str], landscapes: int) -> str:
    """The first line: ours beside the best of the others, at the least and the largest budget."""
    said = []
    for gradients in (BUDGETS[-1], BUDGETS[0]):
        others = [name for name in names if name != OURS]
        best = min(others, key=lambda name: middle(outcomes, name, gradients))
        said.append(
            f"with {gradients:,} gradients `bs.llc` is {middle(outcomes, OURS, gradients):.1%} off in the median, and "
            f"the best of the others, {best}, {middle(outcomes, best, gradients):.1%}"
        )
    return f"On {landscapes} landscapes with exact answers, {said[0]}; {said[1]}."


def row(outcomes: Sequence[Outcome], name: str) -> str:
    last = errors(outcomes, name, BUDGETS[-1])
    cells = [_with_interval(outcomes, name, count) for count in BUDGETS]
    off = sum(error >= WRONG for error in last)
    return f"| {name} | {' | '.join(cells)} | {_percent(max(last, default=math.inf))} | {off} of {len(last)} |"


def by_landscape(outcomes: Sequence[Outcome], landscape: str, names: Sequence[str]) -> str:
    own = [each for each in outcomes if each.landscape == landscape]
    cells = [_percent(middle(own, name, BUDGETS[-1])) for name in names]
    return f"| {landscape} | {own[0].reference:.4g} | {' | '.join(cells)} |"


def _with_interval(outcomes: Sequence[Outcome], name: str, gradients: int) -> str:
    value = middle(outcomes, name, gradients)
    if not math.isfinite(value):
        return "—"
    return f"{_percent(value)} ({', '.join(map(_percent, interval(outcomes, name, gradients)))})"


def _percent(error: float) -> str:
    return "—" if not math.isfinite(error) else f"{error:.1%}" if error < 10 else f"{error:.0f} ×"


def figure(outcomes: Sequence[Outcome], path: Path) -> None:
    """Median error over the number of gradients with its interval, a line each; ours is drawn last."""
    drawn, (axes,) = panels(1, 1, width=7.5, height=4.8)
    names = ranked(outcomes)
    for place, name in enumerate(sorted(names, key=lambda name: name == OURS)):
        values = np.array([middle(outcomes, name, count) for count in BUDGETS])
        ends = np.array([interval(outcomes, name, count) for count in BUDGETS]).T
        shift = 1.015 ** (place - len(names) / 2)  # so that bars stand beside each other
        ours: dict[str, Any] = {"color": POINT, "linewidth": 2.5, "marker": "o"}
        style = (
            ours
            if name == OURS
            else {
                "linewidth": 1.1,
                "marker": "osv^DPX"[place % 7],
                "markersize": 4,
                "linestyle": "-" if place < 10 else "--",
            }
        )  # ten colours
        bars = np.where(np.isfinite(ends), np.abs(ends - values), 0.0)
        axes.errorbar(np.array(BUDGETS) * shift, values, bars, label=name, elinewidth=0.6, capsize=1.5, **style)
    axes.axhline(1.0, color=BULK, linewidth=0.8, linestyle=":")
    axes.set(xscale="log", yscale="log", xlabel="gradients on all data", ylabel="median |λ̂ − λₜ| / λₜ")
    axes.set_xticks(BUDGETS, [f"{count:,}" for count in BUDGETS])
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    drawn.savefig(path, metadata={"Date": None}, bbox_inches="tight")
