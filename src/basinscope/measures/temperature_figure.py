"""The figure of a temperature regression."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from ..figure_style import INK, LINE, POINT, panels, tidy

if TYPE_CHECKING:
    from .temperature import TemperatureRegression


def figure(regression: TemperatureRegression) -> Any:
    """Left: E[nL_n] − nL_n(w*) against 1/β, the means of every data set and the common slope. Right: the slopes."""
    if "slopes" not in regression.diagnostics:
        raise InputError(f"nothing to plot: {'; '.join(regression.warnings)}")
    picture, (left, right) = panels(2, 2, 4.5, 4.0, ratios=(3, 2))
    draw_lines(left, regression)
    draw_slopes(right, regression)
    explained = regression.diagnostics["r_squared"]
    picture.suptitle(f"λ̂ = {regression.value:.3f} ± {regression.stderr:.3f},  R² = {explained:.4f}", color=INK)
    return picture


def draw_lines(axes: Any, regression: TemperatureRegression) -> None:
    """Means of every data set with ± 2 standard errors, and the common slope through their average."""
    points = regression.diagnostics["points"]
    sets = sorted({point["data_set"] for point in points})
    for number in sets:
        of_set = [point for point in points if point["data_set"] == number]
        axes.errorbar(
            [1 / point["beta"] for point in of_set], [point["mean"] for point in of_set],
            [2 * point["stderr"] for point in of_set], color=POINT, alpha=0.6, marker="o", markersize=3,
            linewidth=0.8, capsize=2, label="data sets" if number == sets[0] else None,
        )  # fmt: skip
    x, y = np.array([1 / point["beta"] for point in points]), np.array([point["mean"] for point in points])
    ends = np.array([x.min(), x.max()])
    axes.plot(ends, y.mean() + regression.value * (ends - x.mean()), color=LINE, linewidth=1.8, label="common slope λ̂")
    axes.set_xlabel("temperature 1/β")
    axes.set_ylabel("E[nLₙ(w)] − nLₙ(w*)")
    axes.legend(frameon=False, fontsize=9)
    tidy(axes)


def draw_slopes(axes: Any, regression: TemperatureRegression) -> None:
    """The slope of every data set with ± 2 standard errors, and the pooled one as a band of ± 2."""
    diagnostics = regression.diagnostics
    numbers = np.arange(1, len(diagnostics["slopes"]) + 1)
    axes.errorbar(
        diagnostics["slopes"], numbers, xerr=2 * np.array(diagnostics["slope_stderrs"]), color=POINT, marker="o",
        markersize=3, linestyle="none", linewidth=0.8, capsize=2,
    )  # fmt: skip
    half = 2 * regression.stderr
    axes.axvspan(regression.value - half, regression.value + half, color=LINE, alpha=0.15)
    axes.axvline(regression.value, color=LINE, linewidth=1.8)
    axes.set_xlabel("slope")
    axes.set_ylabel("data set")
    axes.yaxis.get_major_locator().set_params(integer=True)
    tidy(axes)
