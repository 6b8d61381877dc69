"""The figure of a spectrum."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import InputError

if TYPE_CHECKING:
    from .spectrum import Spectrum

POSITIVE, NEGATIVE, INK = "#2166ac", "#b2182b", "#333333"
DECADES = 6  # eigenvalues smaller than the largest by more than this count as zero
WIDTH = 0.3  # of the density's kernel, in e-folds


def figure(spectrum: Spectrum) -> Any:
    """Left: how many eigenvalues there are at each size. Right: how many lie beyond it. Bands are ± 2 standard errors."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("plot() needs matplotlib: install basinscope[plot]") from None
    ends = torch.cat([spectrum.largest, spectrum.smallest])
    norm = max(float(torch.cat([ends, spectrum.bulk.nodes.flatten()]).abs().max()), 1e-30)
    drawn = Figure(figsize=(10, 4), layout="constrained")
    left, right = drawn.subplots(1, 2)
    _density(left, spectrum, ends, norm)
    _beyond(right, spectrum, ends, norm)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.15)
    drawn.suptitle(f"Spectrum of the {spectrum.matrix}, {spectrum.dimension:,} parameters", color=INK)
    return drawn


def _density(axes: Any, spectrum: Spectrum, ends: Tensor, norm: float) -> None:
    """Eigenvalues per e-fold on the axis u = asinh(λ/s): logarithmic in |λ| beyond s, smooth through zero."""
    small = norm * 10.0**-DECADES
    low = torch.cat([ends, spectrum.bulk.nodes.flatten()]).min().clamp(max=0.0)
    place = torch.linspace(float(torch.asinh(low / small)) - 1, math.asinh(norm / small) + 1, 600, dtype=torch.float64)

    def bell(values: Tensor) -> Tensor:
        scaled = (place - torch.asinh(values / small)[..., None]) / WIDTH
        return torch.exp(-scaled.square() / 2) / (WIDTH * math.sqrt(2 * math.pi))

    mean, stderr = spectrum.bulk.average(bell(spectrum.bulk.nodes))
    sizes = small * torch.sinh(place)
    floor = 0.05
    axes.fill_between(
        sizes, (mean - 2 * stderr).clamp(min=floor), (mean + 2 * stderr).clamp(min=floor), color=POSITIVE, alpha=0.25,
        linewidth=0,
    )  # fmt: skip
    axes.plot(sizes, mean.clamp(min=floor), color=POSITIVE, linewidth=1.5, label="density of the others")
    for values, colour, name in ((spectrum.largest, POSITIVE, "largest"), (spectrum.smallest, NEGATIVE, "smallest")):
        if len(values):
            axes.vlines(values, floor, 1, color=colour, linewidth=1.2, alpha=0.9, label=f"{len(values)} {name}")
    axes.set_xscale("asinh", linear_width=small)
    axes.set_yscale("log")
    axes.set_ylim(bottom=floor)
    axes.set_xticks(_ticks(norm, float(low)))
    axes.xaxis.set_major_formatter(_power)
    axes.set_xlabel("eigenvalue λ")
    axes.set_ylabel("eigenvalues per e-fold")
    axes.legend(frameon=False, fontsize=9)


def _beyond(axes: Any, spectrum: Spectrum, ends: Tensor, norm: float) -> None:
    sizes = torch.logspace(math.log10(norm) - DECADES, math.log10(norm), 400, dtype=torch.float64)
    for sign, colour, name in ((1, POSITIVE, "above λ"), (-1, NEGATIVE, "below −λ")):
        mean, stderr = spectrum.bulk.average((sign * spectrum.bulk.nodes[..., None] > sizes).double())
        exact = (sign * ends[:, None] >= sizes * (1 - 1e-9)).sum(0)
        if not bool((mean + exact > 0).any()):
            continue
        axes.fill_between(
            sizes, (mean - 2 * stderr + exact).clamp(min=0.5), mean + 2 * stderr + exact, color=colour, alpha=0.25,
            linewidth=0,
        )  # fmt: skip
        axes.plot(sizes, torch.where(mean + exact > 0, mean + exact, math.nan), color=colour, linewidth=1.5, label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(bottom=0.8)
    axes.set_xlabel("size λ")
    axes.set_ylabel("number of eigenvalues")
    axes.legend(frameon=False, fontsize=9)


def _ticks(norm: float, low: float) -> list[float]:
    top = math.floor(math.log10(norm))
    powers = [10.0**power for power in range(top, top - DECADES, -2)]
    return [-power for power in powers if -power >= 1.1 * low] + [0.0, *reversed(powers)]


def _power(value: float, _: int) -> str:
    if value == 0:
        return "0"
    return f"${'-' if value < 0 else ''}10^{{{round(math.log10(abs(value)))}}}$"
