"""The demonstration's figure: the chains, and λ̂ as a function of the localisation γ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .estimates import Estimate

CHAIN, MEAN, QUADRATIC, INK = "#9ecae1", "#2166ac", "#b2182b", "#333333"


def draw(llc: Estimate, curve: Sequence[tuple[float, float]]) -> Any:
    """Left: nβ·(L_n(w) − L_n(w*)) along the chains. Right: λ̂ and its slope in γ over half the soft rank.

    Args:
        llc: the estimate, with its traces.
        curve: pairs of γ and half the soft rank of the Hessian at γ/(nβ).
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    if "trace" in llc.diagnostics:
        _chains(left, llc)
    _resolutions(right, llc, curve)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.15)
    found = llc.diagnostics
    figure.suptitle(
        f"λ̂ = {llc.value:.4g} ± {llc.stderr:.2g} ({llc.verdict}), {found['dimension']:,} parameters, "
        f"nβ = {found['nbeta']:.4g}, γ = {found['gamma']:.3g}",
        color=INK,
    )
    return figure


def _chains(axes: Any, llc: Estimate) -> None:
    found = llc.diagnostics
    trace = np.asarray(found["trace"])
    chains, blocks = trace.shape
    draw_number = (np.arange(blocks) + 0.5) * found["draws"] / blocks
    axes.axvspan(0, found["burn_in"], color=INK, alpha=0.06, linewidth=0)
    axes.plot(draw_number, trace.T, color=CHAIN, linewidth=0.6, alpha=0.8)
    axes.plot([], [], color=CHAIN, label=f"{chains} chains")
    axes.plot(draw_number, trace.mean(0), color=MEAN, linewidth=1.6, label="their mean")
    low, high = llc.interval(0.9)
    kept = (found["burn_in"], found["draws"])
    axes.fill_between(kept, low, high, color=INK, alpha=0.35, linewidth=0)
    axes.plot(kept, [llc.value] * 2, color=INK, linewidth=1.0, label="λ̂ with its 90 % interval")
    axes.set_xlim(0, found["draws"])
    bottom, top = np.quantile(trace[:, blocks // 2 :], (0.0, 1.0))
    room = 0.35 * (top - bottom)
    axes.set_ylim(max(0.0, bottom - 1.6 * room), top + room)
    axes.text(
        0.5 * found["burn_in"] / found["draws"], 0.97, "burn-in", color=INK, fontsize=9, ha="center", va="top",
        transform=axes.transAxes,
    )  # fmt: skip
    axes.set_xlabel("draw")
    axes.set_ylabel("nβ (L(w) − L(w*))")
    axes.legend(frameon=False, fontsize=9, loc="lower right", ncols=3)


def _resolutions(axes: Any, llc: Estimate, curve: Sequence[tuple[float, float]]) -> None:
    gammas, halves = np.array(curve).T
    axes.plot(gammas, halves, color=QUADRATIC, linewidth=1.4, label="½ soft rank of the Hessian")
    gamma = llc.diagnostics["gamma"]
    axes.errorbar(
        gamma, llc.value, 1.645 * llc.stderr, fmt="o", color=MEAN, markersize=5, capsize=3,
        label="λ̂, 90 % interval and slope",
    )  # fmt: skip
    around = gamma * np.array([1 / 3, 3])
    slope = llc.diagnostics.get("gamma_slope", np.nan)
    axes.plot(around, llc.value + slope * np.log(around / gamma), color=MEAN, linewidth=1.4)
    axes.axvline(gamma, color=INK, linewidth=0.8, linestyle=":")
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("localisation γ")
    axes.set_ylabel("effective dimension / 2")
    axes.legend(frameon=False, fontsize=9, loc="lower left")
