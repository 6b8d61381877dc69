"""Empty figures for the studies to draw on."""

from __future__ import annotations

from typing import Any

from basinscope.errors import InputError


def panels(count: int, columns: int, width: float = 4.2, height: float = 3.1) -> tuple[Any, list[Any]]:
    """An empty figure with so many panels, at most `columns` of them side by side."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("figures need matplotlib: install basinscope[plot]") from None
    across = min(count, columns)
    down = -(-count // across)
    drawn = Figure(figsize=(width * across, height * down), layout="constrained")
    axes = list(drawn.subplots(down, across, squeeze=False).flat)
    for extra in axes[count:]:
        extra.set_visible(False)
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
        each.grid(alpha=0.15)
    return drawn, axes[:count]
