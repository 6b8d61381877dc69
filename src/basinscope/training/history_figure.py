"""The figure of a training: losses, and what was measured on the way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..errors import InputError
from ..figure_style import BULK, INK, LINE, POINT, panels
from .hooks import Row

_LOSSES = {"train_loss": "training", "validation_loss": "validation", "batch_loss": "batch", "loss": "loss"}
_PARTS = ("_basin", "_drop")


def over_training(rows: Sequence[Row]) -> Any:
    """A panel of the losses and one for each measurement with its 90 % interval; hollow where it is not `ok`."""
    names = measured(rows)
    losses = [name for name in _LOSSES if any(name in row for row in rows)]
    if not names and not losses:
        raise InputError("there is nothing to draw: no row has a loss or a measurement")
    figure, axes = panels(len(names) + bool(losses), 2, 4.6, 3.2)
    along = "epoch" if all("epoch" in row for row in rows) else "step"
    if losses:
        _draw_losses(axes[0], rows, losses, along)
    for panel, name in zip(axes[bool(losses) :], names, strict=True):
        if any(f"{name}_basin" in row for row in rows):
            _draw(panel, rows, f"{name}_basin", name, along, POINT, "basin")
            _draw(panel, rows, name, name, along, LINE, "λ̂ = basin − drop" if name == "llc" else name)
            panel.legend(frameon=False, fontsize=9)
        else:
            _draw(panel, rows, name, name, along, LINE, "")
        panel.set_ylabel("λ̂" if name == "llc" else name.replace("_", " "))
        panel.set_title(resolution(rows, name), fontsize=10, color=INK)
    for panel in axes:
        panel.set_xlabel(along)
    return figure


def measured(rows: Sequence[Row]) -> list[str]:
    """The columns that have a standard error, without the parts of λ̂.

    Examples:
        >>> measured([{"step": 1}, {"llc": 2.0, "llc_stderr": 0.1, "llc_basin": 2.0, "llc_basin_stderr": 0.1}])
        ['llc']
    """
    columns = dict.fromkeys(column for row in rows for column in row)
    names = [column.removesuffix("_stderr") for column in columns if column.endswith("_stderr")]
    return [name for name in names if not any(name.endswith(part) and name[: -len(part)] in names for part in _PARTS)]


def resolution(rows: Sequence[Row], name: str) -> str:
    """At which nβ and γ a column was measured, in words; empty where no row says.

    Examples:
        >>> resolution([{"llc_nbeta": 9.0, "llc_gamma": 1.0}, {"llc_nbeta": 9.0, "llc_gamma": 4.0}], "llc")
        'nβ = 9, γ from 1 to 4'
    """
    parts = []
    for key, symbol in (("nbeta", "nβ"), ("gamma", "γ")):
        seen = [row[f"{name}_{key}"] for row in rows if f"{name}_{key}" in row]
        if seen:
            least, most = min(seen), max(seen)
            same = math.isclose(least, most, rel_tol=1e-6)
            parts.append(f"{symbol} = {least:.4g}" if same else f"{symbol} from {least:.4g} to {most:.4g}")
    return ", ".join(parts)


def _draw_losses(panel: Any, rows: Sequence[Row], names: Sequence[str], along: str) -> None:
    for name, colour in zip(names, (LINE, POINT, BULK, INK), strict=False):
        points = [(row[along], row[name]) for row in rows if _finite(row.get(name))]
        panel.plot(*zip(*points, strict=True), color=colour, label=_LOSSES[name]) if points else None
    if all(row[name] > 0 for row in rows for name in names if _finite(row.get(name))):
        panel.set_yscale("log")
    panel.set_ylabel("loss")
    panel.legend(frameon=False, fontsize=9)


def _draw(panel: Any, rows: Sequence[Row], column: str, name: str, along: str, colour: str, label: str) -> None:
    """A curve with intervals; a value whose verdict is not `ok` is hollow."""
    known = [row for row in rows if _finite(row.get(column))]
    panel.plot([row[along] for row in known], [row[column] for row in known], color=colour, alpha=0.5, label=label)
    for row in known:
        filled = row.get(f"{name}_verdict", "ok") == "ok"
        error = row.get(f"{column}_stderr", 0.0)
        panel.errorbar(
            row[along], row[column], yerr=1.645 * error if _finite(error) else 0.0, fmt="o", color=colour, capsize=3,
            markerfacecolor=colour if filled else "white",
        )  # fmt: skip


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)
