"""An estimate as a notebook shows it: the number, its interval as a small picture, and what speaks against it."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

_WIDTH, _HEIGHT, _MARGIN = 320, 34, 46
_COLOURS = {"ok": "#2e7d4f", "doubtful": "#a86b00", "failed": "#b3261e"}


def card(
    heading: str,
    verdict: str,
    facts: str,
    interval: tuple[float, float],
    value: float,
    warnings: Sequence[str],
) -> str:
    """A few lines of HTML that bring their own look, for a light page and a dark one.

    Args:
        heading: the value with its standard error.
        verdict: `ok`, `doubtful` or `failed`.
        facts: interval and resolution, in words.
        interval: of 90 %.
        value: the number.
        warnings: what speaks against it.

    Examples:
        >>> card("llc = 10 ± 0.5", "ok", "", (9.2, 10.8), 10.0, ()).count("<svg")
        1
    """
    colour = _COLOURS[verdict]
    badge = f'<span style="border:1px solid {colour};color:{colour};border-radius:.6em;padding:0 .5em">{verdict}</span>'
    listed = "".join(f"<li>{html.escape(warning)}</li>" for warning in warnings)
    return (
        f'<div style="max-width:44rem"><p style="margin:.3em 0"><b>{html.escape(heading)}</b> {badge}</p>'
        f"{interval_picture(interval, value, colour)}"
        f'<p style="margin:.3em 0;opacity:.75">{html.escape(facts)}</p>'
        + (f"<ul>{listed}</ul>" if listed else "")
        + "</div>"
    )


def interval_picture(interval: tuple[float, float], value: float, colour: str) -> str:
    """The interval as a bar with the value as a dot, in SVG; empty for an exact value or none.

    Examples:
        >>> interval_picture((3.0, 3.0), 3.0, "#000")
        ''
    """
    low, high = interval
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        return ""

    def place(x: float) -> float:
        return _MARGIN + (x - low) / (high - low) * (_WIDTH - 2 * _MARGIN)

    look = f'y="{_HEIGHT - 4}" text-anchor="middle" font-size="11" fill="currentColor"'
    ends = "".join(f'<text x="{place(x):.0f}" {look}>{x:.4g}</text>' for x in (low, high))
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="90 % interval from {low:.4g} to {high:.4g}">'
        f'<path d="M{place(low):.1f} 5V15M{place(high):.1f} 5V15M{place(low):.1f} 10H{place(high):.1f}" '
        f'stroke="{colour}" stroke-width="2" fill="none"/>'
        f'<circle cx="{place(value):.1f}" cy="10" r="4.5" fill="{colour}"/>{ends}</svg>'
    )
