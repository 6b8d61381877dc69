"""The figure of λ̂ part by part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..figure_style import INK, POINT, panels

if TYPE_CHECKING:
    from .llc_by_part import LlcByPart

_INCHES, _EDGE = 0.75, 2.2  # of a cell, and of what is around them
_LIGHT = 0.55  # of the scale, from which on words are dark


def by_part(result: LlcByPart) -> Any:
    """Heads and groups as a map of layers by numbers, each with its basin and standard error; others as points."""
    grid = all(each.layer is not None and each.number is not None for each in result.parts)
    return _map(result) if grid else _points(result)


def _map(result: LlcByPart) -> Any:
    layers = 1 + max(int(each.layer or 0) for each in result.parts)
    numbers = 1 + max(int(each.number or 0) for each in result.parts)
    values = np.full((layers, numbers), np.nan)
    picture, (axes,) = panels(1, 1, _EDGE + _INCHES * numbers, _EDGE / 2 + _INCHES * layers)
    for each, estimate in zip(result.parts, result.estimates, strict=True):
        values[int(each.layer or 0), int(each.number or 0)] = estimate.of_basin.value
    image = axes.imshow(values, cmap="viridis", aspect="auto")
    top, bottom = np.nanmax(values), np.nanmin(values)
    for each, estimate in zip(result.parts, result.estimates, strict=True):
        shown = estimate.of_basin
        light = (shown.value - bottom) / max(top - bottom, 1e-300) > _LIGHT
        mark = "" if shown.verdict == "ok" else "?"
        axes.text(
            each.number, each.layer, f"{shown.value:.3g}{mark}\n±{shown.stderr:.1g}", ha="center", va="center",
            fontsize=7, color=INK if light else "white",
        )  # fmt: skip
    axes.set_xticks(range(numbers))
    axes.set_yticks(range(layers))
    axes.set_xlabel(result.parts[0].kind)
    axes.set_ylabel("layer")
    picture.colorbar(image, ax=axes, label="effective dimension / 2")
    return picture


def _points(result: LlcByPart) -> Any:
    picture, (axes,) = panels(1, 1, 6.2, 1.2 + 0.28 * len(result))
    for place, estimate in enumerate(result.estimates):
        shown = estimate.of_basin
        low, high = shown.interval(0.9)
        face = POINT if shown.verdict == "ok" else "white"
        axes.errorbar(
            shown.value, place, xerr=[[shown.value - low], [high - shown.value]], fmt="o", color=POINT,
            markerfacecolor=face, markersize=4.5,
        )  # fmt: skip
    axes.set_yticks(range(len(result)), list(result))
    axes.invert_yaxis()
    axes.set_xlabel("effective dimension / 2")
    return picture
