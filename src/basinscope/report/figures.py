"""The figures of reports and of the live page, from plain values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from ..estimates import Estimate
from ..measures.measured import ChainTraces, Measurement, SpectrumCurve
from .charts import Chart, Scale, padded, thinned
from .words import number, with_error

STYLES = ("s1", "s2", "s3", "s4", "s5", "s6")
NAN = math.nan
MOST_LAYERS = 24  # of which bars are drawn
TANGENT = 3.0  # times more and less than γ to which the slope of λ̂ is drawn


def real(value: Any) -> float:
    """A number, or NaN for whatever else a table may hold.

    Examples:
        >>> real(2), real(None), real("text")
        (2.0, nan, nan)
    """
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else NAN


def gauge(measured: Measurement) -> Markup:
    """λ̂, or the basin where w* is no minimum, between nothing and half of all parameters, ½ soft rank beside it."""
    llc, half = measured.llc.of_basin, measured.quadratic.value
    name, value = "λ̂" if llc is measured.llc else "basin", llc.value
    most = measured.subject.parameters / 2
    high = max(most, 1.15 * max(reading for reading in (value, half, 0.0) if math.isfinite(reading)))
    width, left, right = 640.0, 6.0, 634.0

    def place(number_: float) -> float:
        return left + (right - left) * min(1.0, max(0.0, number_ / high))

    ends = llc.interval(0.9)
    parts = [
        f'<rect class="track" x="{left}" y="34" width="{right - left}" height="12" rx="6"/>',
        f'<rect class="fill" x="{left}" y="34" width="{place(most) - left:.1f}" height="12" rx="6"/>',
    ]
    if math.isfinite(value) and value > 0:
        parts.append(
            f'<rect class="reading" x="{left}" y="34" width="{max(6.0, place(value) - left):.1f}" height="12" rx="6"/>'
        )
        if all(map(math.isfinite, ends)):
            wide = max(3.0, place(ends[1]) - place(ends[0]))
            parts.append(
                f'<rect class="spread" x="{place(ends[0]):.1f}" y="28" width="{wide:.1f}" height="24" rx="2"/>'
            )
        parts.append(_flag(place(value), 22, f"{name} {number(value)}", "reading"))
    if math.isfinite(half):
        parts.append(f'<path class="needle" d="M{place(half):.1f} 28V60"/>')
        parts.append(_flag(place(half), 74, f"½ soft rank {number(half)}", "quadratic"))
    if math.isfinite(value) and abs(place(most) - place(half if math.isfinite(half) else 0)) > 180:
        parts.append(_flag(place(most), 74, f"d/2 = {number(most)}", "muted"))
    label = f"{name} = {number(value)}, half the soft rank {number(half)}, half the number of parameters {number(most)}"
    return Markup(
        f'<svg class="gauge" viewBox="0 0 {width:g} 84" role="img" aria-label="{escape(label)}">'
        f"<title>{escape(label)}</title>{''.join(parts)}</svg>"
    )


def _flag(x: float, y: float, text: str, style: str) -> str:
    anchor = "start" if x < 90 else "end" if x > 540 else "middle"
    return f'<text class="flag {style}" x="{x:.1f}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def chains(trace: ChainTraces, llc: Estimate) -> Markup:
    """nβ(L(w) − L(w*)) along the chains, burn-in shaded, λ̂ with its interval over the part that counts."""
    draws, burn_in, mean, rows = trace.draws, trace.burn_in, trace.mean, trace.chains
    blocks = len(mean)
    where = [(place + 0.5) * draws / blocks for place in range(blocks)]
    settled = [value for row in rows for value in row[blocks // 8 :] if math.isfinite(value)]
    scale = padded([*settled, *mean[blocks // 8 :], llc.value])
    chart = Chart(
        f"Excess loss of {trace.count} chains over {draws} draws, the first {burn_in} of them burn-in",
        Scale(0.0, float(draws)), scale, "draw", "nβ (L(w) − L(w*))",
    )  # fmt: skip
    for row in rows:
        chart.line(list(zip(where, row, strict=True)), "", "s1", "chain")
    chart.shade(0, burn_in, "burn-in")
    shown = f"{len(rows)} of {trace.count} chains" if trace.count > len(rows) else f"{len(rows)} chains"
    chart.line([], shown, "s1", "chain")
    chart.line(list(zip(where, mean, strict=True)), "mean of all chains", "s1")
    low, high = llc.interval(0.9)
    chart.band([(burn_in, low, high), (draws, low, high)], "λ̂ with its 90 % interval", "s2")
    chart.line([(burn_in, llc.value), (draws, llc.value)], "", "s2")
    return chart.svg()


def resolutions(measured: Measurement) -> Markup | None:
    """λ̂ where it was sampled with its slope in γ, over ½ soft rank, as functions of γ."""
    llc, curve = measured.llc, list(measured.curve)
    gamma, slope = (real(llc.diagnostics.get(name)) for name in ("gamma", "gamma_slope"))
    tangent = [(gamma * times, llc.value + slope * math.log(times)) for times in (1 / TANGENT, TANGENT)]
    tangent = [point for point in tangent if all(map(math.isfinite, point))]
    gammas = [place for place, _ in curve + tangent]
    if len(gammas) < 2:
        return None
    low, high = llc.interval(0.9)
    heights = [height for height in (*(height for _, height in curve + tangent), low, high) if math.isfinite(height)]
    top, bottom = max(heights, default=1.0), min([0.0, *heights])
    chart = Chart(
        "λ̂ from sampling and half the soft rank, over the localisation γ",
        Scale(min(gammas), max(gammas), "log"), Scale(1.1 * bottom, 1.1 * max(top, 1e-9)), "localisation γ",
        "effective dimension / 2",
    )  # fmt: skip
    chart.mark(gamma, f"γ = {number(gamma, 3)}")
    chart.line(curve, "½ soft rank: what curvature alone gives", "s3")
    chart.line(tangent, "slope ∂λ̂/∂log γ by sampling", "s1")
    text = f"γ = {number(gamma)}: λ̂ = {with_error(llc.value, llc.stderr)}"
    chart.points([(gamma, llc.value, low, high, text)], "λ̂ by sampling, 90 % interval", "s1")
    return chart.svg()


def by_layer(measured: Measurement) -> Markup | None:
    """The Hessian's trace by layer, a bar each, with the layer's share of it and of the parameters."""
    trace = measured.estimates.get("hessian_trace")
    blocks = None if trace is None else trace.diagnostics.get("per_layer")
    if not isinstance(blocks, Mapping):
        return None
    sizes = {name: math.prod(shape) for name, shape in measured.subject.layers}
    layers: dict[str, list[float]] = {}
    for name, pair in blocks.items():
        layer = layers.setdefault(name.rpartition(".")[0] or name, [0.0, 0.0])
        layer[0] += real(pair[0])
        layer[1] += sizes.get(name, 0)
    values = [value for value, _ in layers.values()]
    if not 2 <= len(layers) <= MOST_LAYERS or not all(map(math.isfinite, values)) or min(values) < 0 or not max(values):
        return None
    total, counted, high = sum(values), sum(size for _, size in layers.values()) or 1.0, max(values)
    rows = []
    for place, (name, (value, size)) in enumerate(layers.items()):
        y = 14 + 24 * place
        label = f"{number(value, 3)}, {value / total:.0%} of the trace, {size / counted:.0%} of the parameters"
        rows.append(
            f'<text x="196" y="{y + 5}" text-anchor="end">{escape(name[-28:])}</text>'
            f'<rect class="reading" x="204" y="{y - 7}" width="{max(1.0, 170 * value / high):.1f}" height="14" rx="2"/>'
            f'<text x="{212 + max(1.0, 170 * value / high):.1f}" y="{y + 5}">{escape(label)}</text>'
        )
    title = f"Trace of the Hessian by layer, of {len(layers)} layers"
    return Markup(
        f'<svg class="chart" viewBox="0 0 720 {24 * len(layers) + 8}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(rows)}</svg>"
    )


def spectrum(curve: SpectrumCurve) -> Markup:
    """Eigenvalues per e-fold, the outermost ones as strokes."""
    sizes, density = curve.sizes, curve.density
    floor = 0.1
    top = max([1.0, *(height for height in density if math.isfinite(height))])
    ends = [*curve.largest, *curve.smallest]
    low, high = min([*sizes, *ends]), max([*sizes, *ends])
    chart = Chart(
        "Density of the Hessian's eigenvalues",
        Scale(low, high, "asinh", max(curve.resolution, 1e-30)), Scale(floor, 2 * top, "log"),
        "eigenvalue (logarithmic beyond the resolution around zero)", "eigenvalues per e-fold",
    )  # fmt: skip
    rows = zip(sizes, density, curve.stderr, strict=True)
    chart.band([(s, max(floor, m - 2 * e), max(floor, m + 2 * e)) for s, m, e in rows], "± 2 standard errors", "s4")
    chart.line([(s, max(floor, m)) for s, m in zip(sizes, density, strict=True)], "all others", "s4")
    chart.ticked(curve.largest, f"{len(curve.largest)} largest", "s1")
    chart.ticked(curve.smallest, f"{len(curve.smallest)} smallest", "s3")
    return chart.svg()


def over_training(
    series: Sequence[tuple[str, Sequence[tuple[float, ...]]]],
    axis: str,
    label: str,
    *,
    logarithmic: bool = False,
    title: str = "",
    styles: Sequence[str] = STYLES,
) -> Markup | None:
    """Curves over training: each a name with points (x, y) or (x, y, stderr). Styles go by the place in the list."""
    curves = [
        (name, styles[place % len(styles)], [point for point in points if math.isfinite(point[1])])
        for place, (name, points) in enumerate(series)
    ]
    curves = [curve for curve in curves if curve[2]]
    if not curves:
        return None
    xs = [point[0] for *_, points in curves for point in points]
    ys = [edge for *_, points in curves for point in points for edge in _edges(point)]
    log = logarithmic and min(ys) > 0 and max(ys) > 20 * min(ys)
    span = Scale(min(xs), max(xs) if max(xs) > min(xs) else min(xs) + 1)
    chart = Chart(
        title or f"{label} over training", span, padded(ys, "log" if log else "linear"), axis, label, height=300
    )
    for name, style, points in curves:
        shown = thinned(points)
        if any(len(point) > 2 and math.isfinite(point[2]) and point[2] > 0 for point in shown):
            chart.band([(p[0], *_edges(p)) for p in shown], "", style)
        few = len(shown) <= 120
        chart.line([(point[0], point[1]) for point in shown], name, style)
        if few:
            labels = [with_error(p[1], p[2]) if len(p) > 2 else number(p[1]) for p in shown]
            chart.points(
                [
                    (p[0], p[1], NAN, NAN, f"{name}, {axis} {number(p[0])}: {text}")
                    for p, text in zip(shown, labels, strict=True)
                ],
                "",
                style,
            )  # fmt: skip
    return chart.svg()


def _edges(point: tuple[float, ...]) -> tuple[float, float]:
    half = 1.645 * point[2] if len(point) > 2 and math.isfinite(point[2]) else 0.0
    return point[1] - half, point[1] + half
