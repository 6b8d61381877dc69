"""The figure of a spectrum."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..figure_style import BULK, INK, LINE, POINT, panels

if TYPE_CHECKING:
    from .spectrum import Spectrum

NAMES = {"hessian": "Hessian", "fisher": "Fisher matrix", "covariance": "gradient covariance"}
DECADES = 6  # eigenvalues smaller than the largest by more than this count as zero
NARROW = 0.3  # the density's narrowest kernel, in e-folds


def figure(spectrum: Spectrum) -> Any:
    """Left: how many eigenvalues there are at each size. Right: how many lie beyond it.

    Bands are ± 2 standard errors; on the right with the error bound of the quadrature rule added.
    """
    ends, norm = _ends(spectrum), _norm(spectrum)
    picture, (left, right) = panels(2, 2, 5.0, 4.0)
    _density(left, spectrum, norm)
    _beyond(right, spectrum, ends, norm)
    picture.suptitle(f"Spectrum of the {NAMES[spectrum.matrix]}, {spectrum.dimension:,} parameters", color=INK)
    return picture


def density(spectrum: Spectrum, points: int = 600) -> tuple[Tensor, Tensor, Tensor, float]:
    """The bulk's eigenvalues per e-fold: sizes λ, density, its standard error, and the resolution s around zero.

    The axis is u = asinh(λ/s): logarithmic in |λ| beyond s, smooth through zero.
    """
    norm, small = _norm(spectrum), _resolution(spectrum, _norm(spectrum))
    low = _lowest(spectrum)
    place = torch.linspace(math.asinh(low / small) - 3, math.asinh(norm / small) + 1, points, dtype=torch.float64)
    nodes = torch.asinh(spectrum.bulk.nodes / small)
    width = _gaps(nodes).clamp(min=NARROW)[..., None]
    bells = torch.exp(-((place - nodes[..., None]) / width).square() / 2) / (width * math.sqrt(2 * math.pi))
    mean, stderr = spectrum.bulk.average(bells)
    return small * torch.sinh(place), mean, stderr, small


def _ends(spectrum: Spectrum) -> Tensor:
    return torch.cat([spectrum.largest, spectrum.smallest])


def _norm(spectrum: Spectrum) -> float:
    return max(float(torch.cat([_ends(spectrum), spectrum.bulk.nodes.flatten()]).abs().max()), 1e-30)


def _lowest(spectrum: Spectrum) -> float:
    return min(0.0, float(torch.cat([_ends(spectrum), spectrum.bulk.nodes.flatten()]).min()))


def _density(axes: Any, spectrum: Spectrum, norm: float) -> None:
    sizes, mean, stderr, small = density(spectrum)
    low, floor = _lowest(spectrum), 0.1
    axes.fill_between(
        sizes, (mean - 2 * stderr).clamp(min=floor), (mean + 2 * stderr).clamp(min=floor), color=BULK, alpha=0.25,
        linewidth=0,
    )  # fmt: skip
    axes.plot(sizes, mean.clamp(min=floor), color=BULK, linewidth=1.5, label="all others")
    for values, colour, name in ((spectrum.largest, POINT, "largest"), (spectrum.smallest, LINE, "smallest")):
        if len(values):
            axes.vlines(values, floor, 1, color=colour, linewidth=1.2, label=f"{len(values)} {name}")
    axes.set_xscale("asinh", linear_width=small)
    axes.set_yscale("log")
    axes.set_ylim(bottom=floor)
    axes.set_xticks(_ticks(norm, low, small))
    axes.xaxis.set_major_formatter(_power)
    axes.set_xlabel("eigenvalue λ")
    axes.set_ylabel("eigenvalues per e-fold")
    axes.legend(frameon=False, fontsize=9)


def _resolution(spectrum: Spectrum, norm: float) -> float:
    """How far apart the nodes around zero are: what is smaller cannot be told from zero."""
    nodes = spectrum.bulk.nodes
    if nodes.shape[1] < 3:
        return norm * 10.0**-DECADES
    nearest = nodes.abs().argmin(1, keepdim=True)
    return float(_gaps(nodes).gather(1, nearest).mean().clamp(min=norm * 10.0**-DECADES))


def _gaps(nodes: Tensor) -> Tensor:
    """The distance of each node from its neighbours, on average."""
    if nodes.shape[1] < 2:
        return torch.ones_like(nodes)
    steps = nodes.diff(dim=1)
    return torch.cat([steps[:, :1], (steps[:, 1:] + steps[:, :-1]) / 2, steps[:, -1:]], 1)


def _beyond(axes: Any, spectrum: Spectrum, ends: Tensor, norm: float) -> None:
    start = 2 * _resolution(spectrum, norm)
    sizes = torch.logspace(math.log10(min(start, norm / 10)), math.log10(norm), 400, dtype=torch.float64)
    for sign, colour, name in ((1, POINT, "above λ"), (-1, LINE, "below −λ")):
        mean, stderr, slack = spectrum.bulk.above(sign * sizes)
        middle = (mean if sign > 0 else spectrum.bulk.mass - mean) + (sign * ends[:, None] >= sizes * (1 - 1e-9)).sum(0)
        if not bool((middle > 0.5).any()):
            continue
        error = slack + 2 * stderr
        countable = middle > 0.5
        shown, number, band = sizes[countable], middle[countable], error[countable]
        axes.fill_between(shown, (number - band).clamp(min=0.5), number + band, color=colour, alpha=0.25, linewidth=0)
        axes.plot(shown, number, color=colour, linewidth=1.5, label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(bottom=0.8)
    axes.set_xlabel("size λ")
    axes.set_ylabel("number of eigenvalues")
    axes.legend(frameon=False, fontsize=9)


def _ticks(norm: float, low: float, small: float) -> list[float]:
    powers = [10.0**power for power in range(math.ceil(math.log10(small)), math.floor(math.log10(norm)) + 1)]
    return [-power for power in powers if -power >= low] + [0.0, *powers]


def _power(value: float, _: int) -> str:
    if value == 0:
        return "0"
    return f"${'-' if value < 0 else ''}10^{{{round(math.log10(abs(value)))}}}$"
