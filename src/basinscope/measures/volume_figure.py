"""The figure of volume scaling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from ..figure_style import INK, LINE, POINT, panels, tidy

if TYPE_CHECKING:
    from .volume import VolumeScaling


def figure(scaling: VolumeScaling) -> Any:
    """Left: V(ε) with ± 2 standard errors and the fitted law. Right: the local exponent d log V / d log ε."""
    if "levels" not in scaling.diagnostics:
        raise InputError(f"nothing to plot: {'; '.join(scaling.warnings)}")
    picture, (left, right) = panels(2, 2, 4.5, 4.0)
    _volumes(left, scaling)
    draw_exponents(right, scaling)
    picture.suptitle(
        f"λ̂ = {scaling.value:.3f} ± {scaling.stderr:.3f} with θ = {scaling.diagnostics['multiplicity']}", color=INK
    )
    return picture


def _volumes(axes: Any, scaling: VolumeScaling) -> None:
    diagnostics = scaling.diagnostics
    levels, logs = np.array(diagnostics["levels"]), np.array(diagnostics["log_volume"])
    errors = np.array(diagnostics["log_volume_stderr"])
    axes.errorbar(
        levels, np.exp(logs), np.abs(np.exp(logs + 2 * np.array([-errors, errors])) - np.exp(logs)), color=POINT,
        marker="o", markersize=3, linestyle="none", linewidth=0.8, capsize=2, label="multilevel splitting",
    )  # fmt: skip
    fitted_levels = levels[-diagnostics["fitted_points"] - 1 :]
    law = _law(scaling, fitted_levels)
    axes.plot(fitted_levels, np.exp(logs[-1] + law - law[-1]), color=LINE, linewidth=1.8, label="fitted law")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("loss ε")
    axes.set_ylabel("V(ε)")
    axes.legend(frameon=False, fontsize=9)


def draw_exponents(axes: Any, scaling: VolumeScaling) -> None:
    """Slopes over half decades or more, since single steps of the ladder are noisy; and that of the fitted law."""
    diagnostics = scaling.diagnostics
    levels, logs, errors = (np.array(diagnostics[name]) for name in ("levels", "log_volume", "step_stderr"))
    x = np.log(levels)
    stride = max(1, round(0.5 * np.log(10) * (len(x) - 1) / (x[0] - x[-1])))
    upper, lower = np.arange(0, len(x) - stride, stride), np.arange(stride, len(x), stride)
    width = x[upper] - x[lower]
    slopes = (logs[upper] - logs[lower]) / width
    variance = np.cumsum(errors**2)
    spread = np.sqrt(variance[lower] - variance[upper]) / width
    axes.errorbar(
        np.exp((x[upper] + x[lower]) / 2), slopes, 2 * spread, color=POINT, marker="o", markersize=3, linestyle="none",
        linewidth=0.8, capsize=2,
    )  # fmt: skip
    axes.axhspan(scaling.value - 2 * scaling.stderr, scaling.value + 2 * scaling.stderr, color=LINE, alpha=0.15)
    axes.axhline(scaling.value, color=LINE, linewidth=1.8, label="λ̂")
    if diagnostics["multiplicity"] > 1:
        fitted_x = x[-diagnostics["fitted_points"] - 1 :]
        law = scaling.value - (diagnostics["multiplicity"] - 1) / (diagnostics["offset"] - fitted_x)
        axes.plot(np.exp(fitted_x), law, color=LINE, linewidth=1.5, linestyle="--", label="slope of the fitted law")
    axes.set_xscale("log")
    axes.set_xlabel("loss ε")
    axes.set_ylabel("d log V / d log ε")
    axes.legend(frameon=False, fontsize=9)
    tidy(axes)


def _law(scaling: VolumeScaling, levels: Any) -> Any:
    diagnostics = scaling.diagnostics
    law = scaling.value * np.log(levels)
    if diagnostics["multiplicity"] > 1:
        law = law + (diagnostics["multiplicity"] - 1) * np.log(diagnostics["offset"] - np.log(levels))
    return law
