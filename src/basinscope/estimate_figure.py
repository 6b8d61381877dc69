"""The figure of an estimate: its chains, what they tell beside the value, and what each check saw."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from .figure_style import BULK, INK, LINE, POINT, panels
from .verdict import Check

_DETAILS = 58  # letters in a line of the list of checks
_SPAN = 3.0  # factor of γ to either side of its own
_BINS = 40


class Drawable(Protocol):
    """What of an estimate is drawn."""

    @property
    def name(self) -> str: ...
    @property
    def value(self) -> float: ...
    @property
    def stderr(self) -> float: ...
    @property
    def bounds(self) -> tuple[float, float] | None: ...
    @property
    def checks(self) -> tuple[Check, ...]: ...
    @property
    def diagnostics(self) -> Mapping[str, Any]: ...
    def interval(self, level: float = 0.9) -> tuple[float, float]: ...


def figure(estimate: Drawable) -> Any:
    """A panel for whatever the estimate's diagnostics hold, and a list of its checks."""
    drawings = [*_drawings(estimate), lambda axes: draw_checks(axes, estimate.checks)]
    columns = 2 if len(drawings) == 4 else 3
    picture, axes = panels(len(drawings), columns, 4.6, 3.4)
    for draw, panel in zip(drawings, axes, strict=True):
        draw(panel)
    picture.suptitle(str(estimate), color=INK)
    return picture


def _drawings(estimate: Drawable) -> Iterator[Callable[[Any], None]]:
    facts = estimate.diagnostics
    if _filled(facts.get("trace")):
        yield lambda axes: draw_chains(axes, estimate)
    if facts.get("gamma_slope") is not None and math.isfinite(estimate.value):
        yield lambda axes: draw_slope(axes, estimate)
    if len(facts.get("by_step_size") or ()) > 1:
        yield lambda axes: draw_steps(axes, estimate)
    if _filled(facts.get("ladder")):
        yield lambda axes: draw_ladder(axes, facts)
    if facts.get("per_layer") and estimate.name == "llc":
        yield lambda axes: draw_layers(axes, facts["per_layer"])
    pointwise = facts.get("pointwise") or {}
    if _filled(pointwise.get(estimate.name)):
        yield lambda axes: draw_terms(axes, estimate)
    if _filled(pointwise.get("shape")):
        yield lambda axes: draw_shapes(axes, facts)
    if not _filled(facts.get("trace")) and not _filled(facts.get("ladder")) and math.isfinite(estimate.value):
        yield lambda axes: draw_value(axes, estimate)


def _filled(values: Any) -> bool:
    return values is not None and np.size(values) > 0


def _coefficient(estimate: Drawable) -> tuple[float, float]:
    """λ̂ and its standard error, of itself or of the WBIC that is made of it."""
    facts = estimate.diagnostics
    return (facts["llc"], facts["llc_stderr"]) if estimate.name == "wbic" else (estimate.value, estimate.stderr)


def draw_chains(axes: Any, estimate: Drawable) -> None:
    """Every chain and the mean of all; of λ̂ with burn-in, and the value ± 2 standard errors."""
    facts = estimate.diagnostics
    rows = np.asarray(facts["trace"], dtype=float)
    draws = facts.get("draws", rows.shape[1])
    x = (np.arange(rows.shape[1]) + 0.5) * draws / rows.shape[1]
    axes.plot(x, rows.T, color=BULK, linewidth=0.5, alpha=max(0.15, 1.5 / len(rows)))
    axes.plot(x, rows.mean(0), color=POINT, linewidth=1.5, label=f"mean of {len(rows)} chains")
    if "gamma_slope" in facts:
        value, stderr = _coefficient(estimate)
        axes.axvspan(0, facts["burn_in"], color=BULK, alpha=0.1, linewidth=0, label="burn-in")
        axes.axhspan(value - 2 * stderr, value + 2 * stderr, color=LINE, alpha=0.2, linewidth=0)
        axes.axhline(value, color=LINE, linewidth=1.5, label="λ̂ ± 2 standard errors")
        axes.set_ylabel("nβ (Lₙ(w) − Lₙ(w*))")
    else:
        axes.set_ylabel("mean log-likelihood")
    low, high = np.nanquantile(rows, [0.005, 0.995])
    axes.set_ylim(low - 0.1 * (high - low) - 1e-12, high + 0.35 * (high - low) + 1e-12)  # the legend has the top
    axes.set_xlim(0, draws)
    axes.set_xlabel("draw of each chain")
    axes.legend(frameon=False, fontsize=8, loc="upper right", ncols=2)


def draw_slope(axes: Any, estimate: Drawable) -> None:
    """λ̂ over γ as far as the draws at its own γ tell: the tangent in log γ, with ± 2 standard errors."""
    facts = estimate.diagnostics
    value, stderr = _coefficient(estimate)
    gammas = facts["gamma"] * np.geomspace(1 / _SPAN, _SPAN, 61)
    logs = np.log(gammas / facts["gamma"])
    line, half = value + facts["gamma_slope"] * logs, 2 * np.hypot(stderr, facts["gamma_slope_stderr"] * logs)
    axes.fill_between(gammas, line - half, line + half, color=LINE, alpha=0.15, linewidth=0)
    axes.plot(gammas, line, color=LINE, linewidth=1.5, label="tangent ± 2 standard errors")
    axes.errorbar([facts["gamma"]], [value], [2 * stderr], color=POINT, marker="o", markersize=4, capsize=2, label="λ̂")
    if facts.get("half_soft_rank") is not None:
        axes.plot([facts["gamma"]], [facts["half_soft_rank"]], "x", color=INK, markersize=6, label="½ soft rank")
    axes.set_xscale("log")
    axes.set_xticks([], minor=True)
    ticks = facts["gamma"] * np.array([1 / _SPAN, 1, _SPAN])
    axes.set_xticks(ticks, [f"{tick:.3g}" for tick in ticks])
    axes.set_xlabel("localisation γ")
    axes.set_ylabel("λ̂")
    axes.legend(frameon=False, fontsize=8)


def draw_steps(axes: Any, estimate: Drawable) -> None:
    """λ̂ at each step size, and the extrapolation to zero with ± 2 standard errors."""
    value, stderr = _coefficient(estimate)
    sizes, values = np.array(estimate.diagnostics["by_step_size"], dtype=float).T
    axes.plot(sizes, values, color=POINT, marker="o", markersize=4, linewidth=0.8, label="at a step size")
    axes.errorbar([0], [value], [2 * stderr], color=LINE, marker="o", markersize=4, capsize=2, label="extrapolated λ̂")
    axes.set_xlabel("step size ε")
    axes.set_ylabel("λ̂")
    axes.legend(frameon=False, fontsize=8)


def draw_ladder(axes: Any, facts: Mapping[str, Any]) -> None:
    """Mean energy at every inverse temperature, ± 2 standard errors: the free energy is the area below."""
    betas, means, stderrs = np.array(facts["ladder"], dtype=float).T
    axes.errorbar(
        betas, means, 2 * stderrs, color=POINT, marker="o", markersize=3, linewidth=0.8, capsize=2,
        label="E[nLₙ] ± 2 standard errors",
    )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log" if (means > 0).all() and means.max() > 20 * means.min() else "linear")
    axes.set_xlabel("inverse temperature β")
    axes.set_ylabel("E[nLₙ(w)]")
    axes.legend(frameon=False, fontsize=8)


def draw_layers(axes: Any, layers: Mapping[str, Any]) -> None:
    """λ̂ of each layer with its 90 % interval, hollow where it is not `ok`; left out where it has failed."""
    for place, layer in enumerate(layers.values()):
        value = layer["value"]
        if value is not None:
            low, high = layer["interval90"]
            face = POINT if layer["verdict"] == "ok" else "white"
            axes.plot([low, high], [place, place], color=POINT, linewidth=1.2)
            axes.plot([value], [place], "o", color=POINT, markerfacecolor=face, markersize=4.5)
    axes.set_yticks(range(len(layers)), [textwrap.shorten(name, 24, placeholder="…") for name in layers], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("λ̂ of each layer, the others held at w*")


def draw_terms(axes: Any, estimate: Drawable) -> None:
    """How many samples have which part in the mean."""
    terms = np.asarray(estimate.diagnostics["pointwise"][estimate.name], dtype=float)
    axes.hist(terms[np.isfinite(terms)], bins=min(_BINS, max(5, len(terms) // 5)), color=POINT, alpha=0.6)
    if math.isfinite(estimate.value):
        axes.axvline(estimate.value, color=LINE, linewidth=1.5, label="mean")
        axes.legend(frameon=False, fontsize=8)
    axes.set_xlabel(f"{estimate.name} of a sample")
    axes.set_ylabel("samples")


def draw_shapes(axes: Any, facts: Mapping[str, Any]) -> None:
    """Pareto shapes k̂ of the samples in order, and the limit up to which a mean of their weights is reliable."""
    shapes = np.sort(np.asarray(facts["pointwise"]["shape"], dtype=float))[::-1]
    axes.plot(np.arange(1, len(shapes) + 1), shapes, ".", color=POINT, markersize=3)
    axes.axhline(facts["reliable_shape"], color=LINE, linewidth=1.5, label="reliable up to here")
    axes.set_xlabel("sample, in order of k̂")
    axes.set_ylabel("Pareto shape k̂")
    axes.legend(frameon=False, fontsize=8)


def draw_value(axes: Any, estimate: Drawable) -> None:
    """The value with its interval and, where it is bracketed, its bounds."""
    if estimate.stderr > 0:
        interval = estimate.interval(0.9)
        axes.plot(interval, [0, 0], color=LINE, linewidth=6, alpha=0.3, solid_capstyle="butt", label="90 % interval")
    if estimate.bounds is not None and all(map(math.isfinite, estimate.bounds)):
        axes.plot(estimate.bounds, [-0.25] * 2, color=POINT, marker="|", markersize=10, linewidth=1.2, label="bounds")
    axes.plot([estimate.value], [0], "o", color=LINE, markersize=5, label="value")
    axes.set_ylim(-1, 1)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(estimate.name)
    axes.legend(frameon=False, fontsize=8)


def draw_checks(axes: Any, checks: tuple[Check, ...]) -> None:
    """A line or two for every check: whether it passed, what it saw and what was wanted."""
    axes.set_axis_off()
    lines = [line for check in checks for line in _lines(check)] or [("exact: there is nothing to check", INK)]
    step = min(0.085, 1 / len(lines))
    for number, (text, color) in enumerate(lines):
        axes.text(0, 1 - number * step, text, transform=axes.transAxes, va="top", fontsize=8, color=color)


def _lines(check: Check) -> Iterator[tuple[str, str]]:
    """The lines of a check, with their colour: what was wanted stands only with one that did not pass."""
    if check.passed:
        yield f"✓ {textwrap.shorten(f'{check.name}: {check.seen}', _DETAILS, placeholder=' …')}", INK
        return
    for number, line in enumerate(textwrap.wrap(check.warning, _DETAILS)):
        yield f"{' ' if number else '✗'} {line}", LINE
