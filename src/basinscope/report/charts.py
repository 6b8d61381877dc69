"""Line charts as SVG: no script, no font or colour of their own, so that they print and follow the page's theme."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from markupsafe import Markup, escape

from .words import number

Pairs = Sequence[tuple[float, float]]
LEFT, RIGHT, TOP, BOTTOM = 74.0, 16.0, 14.0, 50.0


@dataclass(frozen=True)
class Scale:
    """Values to positions along an axis.

    Examples:
        >>> Scale(0.0, 10.0)(2.5), Scale(1.0, 100.0, "log")(10.0)
        (0.25, 0.5)
    """

    low: float
    high: float
    kind: Literal["linear", "log", "asinh"] = "linear"
    width: float = 1.0  # where an asinh axis turns from linear to logarithmic

    def __call__(self, value: float) -> float:
        low, high = self._map(self.low), self._map(self.high)
        return (self._map(value) - low) / (high - low)

    def _map(self, value: float) -> float:
        if self.kind == "log":
            return math.log(max(value, 1e-300))
        return math.asinh(value / self.width) if self.kind == "asinh" else value

    def ticks(self, most: int = 6) -> list[float]:
        """Round values within the axis.

        Examples:
            >>> Scale(0.0, 10.0).ticks(), Scale(0.5, 2000.0, "log").ticks(), Scale(3.0, 40.0, "log").ticks()
            ([0.0, 2.0, 4.0, 6.0, 8.0, 10.0], [1.0, 10.0, 100.0, 1000.0], [5.0, 10.0, 20.0])
        """
        if self.kind == "linear":
            return _round_values(self.low, self.high, most)
        if self.kind == "log":
            return _powers(self.low, self.high, most)
        beyond = 3 * self.width
        up = _powers(beyond, self.high, most // 2) if self.high > beyond else []
        down = _powers(beyond, -self.low, most // 2) if -self.low > beyond else []
        return [-tick for tick in reversed(down)] + [0.0, *up]


@dataclass
class Chart:
    """One chart, drawn from back to front.

    Args:
        title: what it shows, for those who hear the page.
        x, y: the axes' scales.
        x_label, y_label: what they measure.
        width, height: in units of the page's pixels.

    Examples:
        >>> chart = Chart("a line", Scale(0, 1), Scale(0, 1), "x", "y")
        >>> chart.line([(0, 0), (1, 1)], "first", "s1")
        >>> str(chart.svg()).startswith('<svg class="chart" viewBox="0 0 640 320" role="img"')
        True
    """

    title: str
    x: Scale
    y: Scale
    x_label: str
    y_label: str
    width: float = 640.0
    height: float = 320.0
    _body: list[str] = field(default_factory=list)
    _front: list[str] = field(default_factory=list)
    _legend: list[tuple[str, str, str]] = field(default_factory=list)

    # ------------------------------------------------------------------ what is drawn

    def line(self, points: Pairs, name: str = "", style: str = "s1", note: str = "line") -> None:
        """A line through points; it breaks where a value is missing."""
        path = "".join(self._path(part) for part in _unbroken(points))
        if path:
            self._body.append(f'<path class="{note} {style}" d="{path}"/>')
        self._name(name, style, note)

    def band(self, points: Sequence[tuple[float, float, float]], name: str = "", style: str = "s1") -> None:
        """The area between two values at every x."""
        finite = [point for point in points if all(map(math.isfinite, point))]
        if len(finite) > 1:
            up = self._path([(x, low) for x, low, _ in finite])
            down = self._path([(x, high) for x, _, high in reversed(finite)]).replace("M", "L", 1)
            self._body.append(f'<path class="band {style}" d="{up}{down}Z"/>')
        self._name(name, style, "band")

    def points(self, points: Iterable[tuple[float, float, float, float, str]], name: str, style: str = "s1") -> None:
        """Points with intervals: x, y, low, high and a text that appears over them."""
        for x, y, low, high, text in points:
            if not all(map(math.isfinite, (x, y))):
                continue
            px, py = self._x(x), self._y(y)
            bar = ""
            if math.isfinite(low) and math.isfinite(high) and high > low:
                bar = f'<path class="whisker {style}" d="M{px:.1f} {self._y(low):.1f}V{self._y(high):.1f}"/>'
            self._front.append(
                f'<g>{bar}<circle class="point {style}" cx="{px:.1f}" cy="{py:.1f}" r="3.6"/>'
                f"<title>{escape(text)}</title></g>"
            )
        self._name(name, style, "point")

    def ticked(self, values: Iterable[float], name: str, style: str) -> None:
        """Short strokes from the bottom, one for each value."""
        bottom = self.height - BOTTOM
        strokes = "".join(f"M{self._x(value):.1f} {bottom:.1f}v-26" for value in values)
        if strokes:
            self._front.append(f'<path class="rug {style}" d="{strokes}"/>')
            self._name(name, style, "rug")

    def shade(self, low: float, high: float, text: str) -> None:
        """A stretch of the x axis that does not count."""
        left, right = self._x(low), self._x(high)
        if right - left < 1:
            return
        self._body.insert(
            0,
            f'<rect class="shade" x="{left:.1f}" y="{TOP}" width="{right - left:.1f}" height="{self._depth:.1f}"/>'
            f'<text class="note" x="{(left + right) / 2:.1f}" y="{TOP + 16}" text-anchor="middle">'
            f"{escape(text)}</text>",
        )

    def mark(self, x: float, text: str) -> None:
        """A vertical line at x."""
        px = self._x(x)
        anchor, shift = ("end", -5) if px > self.width * 0.6 else ("start", 5)
        self._body.append(
            f'<path class="mark" d="M{px:.1f} {TOP}V{self.height - BOTTOM}"/>'
            f'<text class="note" x="{px + shift:.1f}" y="{TOP + 12}" text-anchor="{anchor}">{escape(text)}</text>'
        )

    def level(self, y: float, text: str, style: str = "mark") -> None:
        """A horizontal line at y."""
        if self.y.low <= y <= self.y.high:
            self._body.append(
                f'<path class="mark {style}" d="M{LEFT} {self._y(y):.1f}H{self.width - RIGHT}"/>'
                f'<text class="note" x="{self.width - RIGHT - 4}" y="{self._y(y) - 5:.1f}" text-anchor="end">'
                f"{escape(text)}</text>"
            )

    # ------------------------------------------------------------------ the whole

    def svg(self) -> Markup:
        """The chart; its legend follows as a list."""
        clip = f'<g class="plot">{"".join(self._body)}{"".join(self._front)}</g>'
        picture = (
            f'<svg class="chart" viewBox="0 0 {self.width:g} {self.height:g}" role="img" '
            f'aria-label="{escape(self.title)}">'
            f"<title>{escape(self.title)}</title>{self._axes()}{clip}</svg>"
        )
        items = "".join(
            f'<li><svg class="key" viewBox="0 0 22 10" aria-hidden="true">{_key(style, note)}</svg>{escape(name)}</li>'
            for name, style, note in self._legend
        )
        return Markup(picture + (f'<ul class="legend">{items}</ul>' if items else ""))

    def _axes(self) -> str:
        bottom, parts = self.height - BOTTOM, []
        for value in self.y.ticks():
            y = self._y(value)
            parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{self.width - RIGHT}"/>')
            parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{number(value, 3)}</text>')
        for value in self._apart(self.x.ticks()):
            x = self._x(value)
            parts.append(f'<path class="tick" d="M{x:.1f} {bottom}v5"/>')
            parts.append(f'<text x="{x:.1f}" y="{bottom + 20}" text-anchor="middle">{number(value, 3)}</text>')
        middle = (TOP + bottom) / 2
        parts.append(f'<path class="axis" d="M{LEFT} {bottom}H{self.width - RIGHT}"/>')
        parts.append(
            f'<text class="label" x="{(LEFT + self.width - RIGHT) / 2:.1f}" y="{self.height - 8}" '
            f'text-anchor="middle">{escape(self.x_label)}</text>'
        )
        parts.append(
            f'<text class="label" transform="translate(15 {middle:.1f}) rotate(-90)" text-anchor="middle">'
            f"{escape(self.y_label)}</text>"
        )
        return "".join(parts)

    def _apart(self, values: list[float]) -> list[float]:
        """The ticks whose numbers do not run into one another; zero first."""
        ticks: list[float] = []
        for value in sorted(values, key=lambda tick: (tick != 0, -abs(tick))):
            room = [4.5 * (len(number(value, 3)) + len(number(other, 3))) + 14 for other in ticks]
            if all(abs(self._x(value) - self._x(other)) > gap for other, gap in zip(ticks, room, strict=True)):
                ticks.append(value)
        return sorted(ticks)

    def _name(self, name: str, style: str, note: str) -> None:
        if name:
            self._legend.append((name, style, note))

    def _path(self, points: Pairs) -> str:
        steps = [f"{self._x(x):.1f} {self._y(y):.1f}" for x, y in points]
        return f"M{'L'.join(steps)}" if steps else ""

    @property
    def _depth(self) -> float:
        return self.height - TOP - BOTTOM

    def _x(self, value: float) -> float:
        return LEFT + (self.width - LEFT - RIGHT) * min(1.0, max(0.0, self.x(value)))

    def _y(self, value: float) -> float:
        return self.height - BOTTOM - self._depth * min(1.0, max(0.0, self.y(value)))


def padded(values: Iterable[float], kind: Literal["linear", "log"] = "linear", room: float = 0.06) -> Scale:
    """A scale that holds all finite values with some room; from zero on where that is near.

    Examples:
        >>> padded([1.0, 9.0]).low, padded([100.0, 101.0]).low > 99
        (0.0, True)
    """
    finite = [value for value in values if math.isfinite(value) and (kind == "linear" or value > 0)]
    if not finite:
        return Scale(0.1, 1.0, kind)
    low, high = min(finite), max(finite)
    if kind == "log":
        stretch = max((high / low) ** room, 1.05)
        return Scale(low / stretch, high * stretch, "log")
    if 0 <= low < 0.4 * high:
        low = 0.0
    span = (high - low) or abs(high) or 1.0
    return Scale(low if low == 0 else low - room * span, high + room * span)


def thinned(points: Sequence[tuple[float, ...]], most: int = 400) -> list[tuple[float, ...]]:
    """At most `most` of the points, the first and the last among them.

    Examples:
        >>> len(thinned([(float(k), 0.0) for k in range(1000)], 100)), thinned([(1.0, 2.0)])
        (100, [(1.0, 2.0)])
    """
    if len(points) <= most:
        return list(points)
    return [points[round(place * (len(points) - 1) / (most - 1))] for place in range(most)]


def _key(style: str, note: str) -> str:
    symbols: dict[str, Callable[[], str]] = {
        "band": lambda: f'<rect class="band {style}" x="1" y="1" width="20" height="8"/>',
        "point": lambda: f'<circle class="point {style}" cx="11" cy="5" r="3.6"/>',
        "rug": lambda: f'<path class="rug {style}" d="M7 0v10M11 0v10M15 0v10"/>',
    }
    return symbols[note]() if note in symbols else f'<path class="{note} {style}" d="M1 5H21"/>'


def _unbroken(points: Pairs) -> list[list[tuple[float, float]]]:
    parts: list[list[tuple[float, float]]] = [[]]
    for x, y in points:
        if math.isfinite(x) and math.isfinite(y):
            parts[-1].append((x, y))
        elif parts[-1]:
            parts.append([])
    return [part for part in parts if part]


def _round_values(low: float, high: float, most: int) -> list[float]:
    rough = (high - low) / max(1, most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in (1, 2, 2.5, 5, 10) if size * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [0.0 + round(k * step, 12) for k in range(first, math.floor(high / step + 1e-9) + 1)]


def _powers(low: float, high: float, most: int) -> list[float]:
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    if last - first >= 2:
        stride = max(1, math.ceil((last - first + 1) / max(1, most)))
        return [float(10.0**power) for power in range(first, last + 1, stride)]
    fine = [size * 10.0**power for power in range(first - 1, last + 1) for size in (1, 2, 5)]
    ticks = [value for value in fine if low <= value <= high]
    return ticks if len(ticks) >= 2 else _round_values(low, high, most)
