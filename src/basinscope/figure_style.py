"""The look of all figures that matplotlib draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .errors import InputError

INK, LINE, POINT, BULK = "#333333", "#b2182b", "#2166ac", "#5e5e5e"


def panels(
    count: int, columns: int, width: float = 4.2, height: float = 3.1, *, ratios: Sequence[float] | None = None
) -> tuple[Any, list[Any]]:
    """An empty figure with so many panels, at most `columns` of them side by side, without frames but with a grid.

    Args:
        count: panels.
        columns: most of them side by side.
        width, height: of one panel, in inches.
        ratios: widths of the columns relative to each other.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("figures need matplotlib: install basinscope[plot]") from None
    across = min(count, columns)
    down = -(-count // across)
    figure = Figure(figsize=(width * across, height * down), layout="constrained")
    axes = list(figure.subplots(down, across, squeeze=False, width_ratios=ratios).flat)
    for extra in axes[count:]:
        extra.set_visible(False)
    for panel in axes:
        tidy(panel)
    return figure, axes[:count]


def tidy(axes: Any) -> None:
    """No frame on the right and above, and a faint grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.15)
