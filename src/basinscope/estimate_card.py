"""An estimate as a notebook shows it: the number, its interval as a small picture, and what speaks against it."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

_WIDTH, _TOP, _HEIGHT, _MARGIN = 360, 22, 48, 50
_LEAST_WIDE = 0.3  # of the picture, that the interval takes at least where both its ends are labelled
_COLOURS = {"ok": "#2f8a57", "doubtful": "#b07300", "failed": "#d0402f"}


def card(
    heading: str,
    verdict: str,
    facts: str,
    interval: tuple[float, float],
    value: float,
    warnings: Sequence[str],
    beside: Mapping[str, float] | None = None,
) -> str:
    """A few lines of HTML that bring their own look, for a light page and a dark one.

    Args:
        heading: the value with its standard error.
        verdict: `ok`, `doubtful` or `failed`.
        facts: interval and resolution, in words.
        interval: of 90 %.
        value: the number.
        warnings: what speaks against it.
        beside: names and values of what is marked beside it.

    Examples:
        >>> card("llc = 10 ± 0.5", "ok", "", (9.2, 10.8), 10.0, ()).count("<svg")
        1
    """
    colour = _COLOURS[verdict]
    badge = f'<span style="border:1px solid {colour};color:{colour};border-radius:.6em;padding:0 .5em">{verdict}</span>'
    listed = "".join(f"<li>{html.escape(warning)}</li>" for warning in warnings)
    return (
        f'<div style="max-width:44rem"><p style="margin:.3em 0"><b>{html.escape(heading)}</b> {badge}</p>'
        f"{interval_picture(interval, value, colour, beside or {})}"
        f'<p style="margin:.3em 0;opacity:.75">{html.escape(facts)}</p>'
        + (f"<ul>{listed}</ul>" if listed else "")
        + "</div>"
    )


def interval_picture(interval: tuple[float, float], value: float, colour: str, beside: Mapping[str, float]) -> str:
    """The interval as a bar with the value as a dot, and marks beside it, in SVG; empty for an exact value or none.

    Examples:
        >>> interval_picture((3.0, 3.0), 3.0, "#000", {})
        ''
        >>> interval_picture((2.0, 4.0), 3.0, "#000", {"½ soft rank": 3.5, "other": math.nan}).count("<text")
        3
        >>> "99<" in interval_picture((2.0, 4.0), 3.0, "#000", {"½ soft rank": 99.0})
        True
    """
    low, high = interval
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        return ""
    marks = {name: mark for name, mark in beside.items() if math.isfinite(mark)}
    left, right = min([low, *marks.values()]), max([high, *marks.values()])

    labelled = (low, high) if high - low > _LEAST_WIDE * (right - left) else (value, *marks.values())

    def place(x: float) -> str:
        return f"{_MARGIN + (x - left) / (right - left) * (_WIDTH - 2 * _MARGIN):.1f}"

    def text(x: float, y: int, words: str) -> str:
        return f'<text x="{place(x)}" y="{y}" text-anchor="middle" font-size="11" fill="currentColor">{words}</text>'

    lines = "".join(
        f'<path d="M{place(mark)} {_TOP - 8}v16" stroke="currentColor" stroke-width="1.5" opacity=".6"/>'
        + text(mark, _TOP - 12, html.escape(name))
        for name, mark in marks.items()
    )
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="90 % interval from {low:.4g} to {high:.4g}">{lines}'
        f'<path d="M{place(low)} {_TOP - 5}v10M{place(high)} {_TOP - 5}v10M{place(low)} {_TOP}H{place(high)}" '
        f'stroke="{colour}" stroke-width="2" fill="none"/>'
        f'<circle cx="{place(value)}" cy="{_TOP}" r="4.5" fill="{colour}"/>'
        + "".join(text(x, _HEIGHT - 6, f"{x:.4g}") for x in labelled)
        + "</svg>"
    )
