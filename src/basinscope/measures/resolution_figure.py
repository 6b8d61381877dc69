"""Figures of λ̂, basin and drop over resolutions and along a training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..estimates import Estimate
from ..figure_style import BULK, INK, LINE, POINT, panels

if TYPE_CHECKING:
    from .llc_along import LlcAlong
    from .resolution_curve import ResolutionCurve

_ROOM = 0.12  # below zero and above the basin, as part of the largest basin


def over_resolution(curve: ResolutionCurve) -> Any:
    """Basin and λ̂ with 90 % intervals over nβ or γ, half the soft rank where it is known, and where w* begins to be a
    minimum."""
    picture, (axes,) = panels(1, 1, 6.2, 4.0)
    places = [point.diagnostics[curve.over] for point in curve.points]
    ranks = [point.diagnostics.get("half_soft_rank") for point in curve.points]
    if all(rank is not None for rank in ranks):
        axes.plot(places, ranks, color=BULK, linestyle=":", linewidth=1.4, label="½ soft rank at w*")
    series(axes, places, [point.basin for point in curve.points], POINT, "o", "basin")
    series(axes, places, curve.points, LINE, "s", "λ̂ = basin − drop")
    _fit(axes, [point.basin for point in curve.points])
    name = "nβ" if curve.over == "nbeta" else "γ"
    if curve.finest is not None:
        axes.axvline(curve.finest, color=INK, linewidth=1, linestyle="--")
        axes.set_title(f"w* is a minimum from {name} = {curve.finest:.3g} on", color=INK, fontsize=10)
    axes.set_xscale("log")
    if curve.over == "nbeta":
        axes.invert_xaxis()
    axes.set_xlabel(f"{name}, from fine to coarse")
    axes.set_ylabel("effective dimension / 2")
    axes.legend(frameon=False, fontsize=9)
    return picture


def along_training(run: LlcAlong) -> Any:
    """Left: the basin at the fine resolution. Right: λ̂ at the common one. Both with 90 % intervals."""
    picture, axes = panels(2 if run.common else 1, 2, 4.6, 3.6)
    places = list(range(len(run.names)))
    series(axes[0], places, [point.basin for point in run.fine], POINT, "o", "basin")
    series(axes[0], places, run.fine, LINE, "s", "λ̂ = basin − drop")
    _fit(axes[0], [point.basin for point in run.fine])
    axes[0].set_title(
        f"nβ = {run.fine[0].diagnostics['nbeta']:.4g}: what it is about to become", fontsize=10, color=INK
    )
    if run.common:
        series(axes[1], places, [point.basin for point in run.common], POINT, "o", "basin")
        series(axes[1], places, run.common, LINE, "s", "λ̂ = basin − drop")
        _fit(axes[1], [point.basin for point in run.common])
        axes[1].set_title(f"nβ = {run.common[0].diagnostics['nbeta']:.4g}: what it is now", fontsize=10, color=INK)
    shown = places[:: max(1, len(places) // 8)]
    for panel in axes:
        panel.set_xticks(shown, [run.names[place] for place in shown])
        panel.set_xlabel("checkpoint")
        panel.set_ylabel("effective dimension / 2")
        panel.legend(frameon=False, fontsize=9)
    return picture


def series(
    axes: Any, places: Sequence[float], estimates: Sequence[Estimate], colour: str, marker: str, label: str
) -> None:
    """Estimates with their 90 % intervals; hollow where the verdict is not `ok`."""
    values = np.array([estimate.value for estimate in estimates])
    ends = np.array([estimate.interval(0.9) for estimate in estimates])
    errors = np.abs(ends.T - values)
    axes.plot(places, values, color=colour, linewidth=1, alpha=0.6)
    sound = np.array([estimate.verdict == "ok" for estimate in estimates])
    for which, face in ((sound, colour), (~sound, "white")):
        if which.any():
            axes.errorbar(
                np.array(places)[which], values[which], errors[:, which], color=colour, marker=marker, markersize=4.5,
                markerfacecolor=face, linestyle="none", linewidth=1, capsize=2,
                label=label if which is sound or not sound.any() else None,
            )  # fmt: skip


def _fit(axes: Any, basins: Sequence[Estimate]) -> None:
    """Show all of the basin; λ̂ far below zero leaves the picture."""
    most = np.nanmax([estimate.interval(0.9)[1] for estimate in basins])
    axes.axhline(0, color=INK, linewidth=0.6)
    axes.set_ylim(-_ROOM * most, (1 + _ROOM) * most)
