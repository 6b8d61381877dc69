"""A development as one page: every curve over the same logarithmic axis of time, stages marked in all of them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from markupsafe import Markup

from .charts import Chart, Scale, padded
from .development import Development
from .figures import STYLES
from .pages import data_link, templates
from .words import number, with_error

_CURVES = {"loss": "loss", "llc_basin": "basin", "in_context_score": "in-context score"}
_MOST = len(STYLES)  # curves in a chart

Points = Sequence[tuple[float, float, float]]


def page(growth: Development) -> str:
    """The page."""
    return (
        templates()
        .get_template("development.html")
        .render(
            growth=growth,
            summary=summary(growth),
            charts=[(title, drawn) for title, drawn in _charts(growth) if drawn is not None],
            boundaries=[
                (_CURVES[name], number(each.at, 3), number(each.low, 3), number(each.high, 3), f"{each.support:.0%}")
                for name, own in growth.boundaries.items()
                for each in own
            ],
            verdicts=verdicts(growth),
            downloads=[
                ("CSV", "development.csv", data_link("text/csv", growth.to_dataframe().to_csv(index=False))),
                ("JSON", "development.json", data_link("application/json", json.dumps(growth.to_dict()))),
            ],
        )
    )


def summary(growth: Development) -> str:
    """What happened from the first checkpoint to the last, in sentences."""
    first, last = growth.rows[0], growth.rows[-1]
    losses = f"from {number(first['loss'])} to {number(last['loss'])}"
    said = [f"Over {len(growth.rows)} checkpoints the loss goes {losses}."]
    if "llc_basin" in first and "llc_basin" in last:
        ends = [with_error(row["llc_basin"], row["llc_basin_stderr"]) for row in (first, last)]
        said.append(f"The basin goes from {ends[0]} to {ends[1]}.")
    best = max(last["heads"].items(), key=lambda entry: entry[1][0], default=None)
    if best is not None:
        said.append(
            f"Of all heads {best[0]} matches prefixes best in the end, with {with_error(*best[1])} of at most 1."
        )
    counts = ", ".join(f"{len(own) + 1} of the {_CURVES[name]}" for name, own in growth.boundaries.items())
    if counts:
        said.append(f"Stages that the curves show: {counts}.")
    return " ".join(said)


def verdicts(growth: Development) -> dict[str, int]:
    """How often each verdict was given to a λ̂, of the network and of its parts."""
    counts = dict.fromkeys(("ok", "doubtful", "failed"), 0)
    for row in growth.rows:
        for point in (row, *row["parts"].values()):
            counts[point["llc_verdict"]] += 1
    return counts


def _charts(growth: Development) -> list[tuple[str, Markup | None]]:
    heads = {name: _prefix(growth, name) for name in growth.rows[-1]["heads"]}
    made: list[tuple[str, Markup | None]] = [
        ("Loss on the measured data", _over(growth, {"loss": growth.curve("loss")}, "mean loss")),
        (
            "λ̂ = basin − drop; where w* is no minimum, λ̂ is far below the basin",
            _over(growth, {"basin": growth.curve("llc_basin"), "λ̂": growth.curve("llc")},
                  "effective dimension / 2", floor="llc_basin"),
        ),
        ("In-context score: loss late in a sequence less that early in it",
         _over(growth, {"in-context score": growth.curve("in_context_score")}, "nats a token")),
        ("Prefix matching of the heads that do it best", _over(growth, _largest(heads), "attention")),
    ]  # fmt: skip
    for kind in ("layer", "head", ""):
        own = {name: growth.curve("llc_basin", name) for name in growth.parts if _kind(name) == kind}
        title = f"Basin of each {kind}" if kind else "Basin of other parts"
        made.append((f"{title}, the others held fixed", _over(growth, _largest(own), "effective dimension / 2")))
    axes = {
        f"axis {axis + 1}, {share:.0%} of the variance": [
            (time, where[axis], math.nan) for time, where in zip(growth.times, growth.components, strict=True)
        ]
        for axis, share in enumerate(growth.shares)
    }
    made.append(("The path through function space along its principal axes", _over(growth, axes, "outputs")))
    return made


def _kind(name: str) -> str:
    words = name.split()
    return "head" if "head" in words else "layer" if len(words) == 2 and words[0] == "layer" else ""


def _prefix(growth: Development, name: str) -> list[tuple[float, float, float]]:
    scores = [row["heads"].get(name, (math.nan, math.nan)) for row in growth.rows]
    return [(time, *score) for time, score in zip(growth.times, scores, strict=True)]


def _largest(curves: dict[str, list[tuple[float, float, float]]]) -> dict[str, list[tuple[float, float, float]]]:
    """Those that end highest, as many as a chart can tell apart."""
    order = sorted(curves, key=lambda name: -_end(curves[name]))
    return {name: curves[name] for name in curves if name in order[:_MOST]}


def _end(points: Points) -> float:
    return points[-1][1] if math.isfinite(points[-1][1]) else -math.inf


def _over(growth: Development, curves: dict[str, list[tuple[float, float, float]]], label: str, floor: str = "") -> (
    Markup | None
):  # fmt: skip
    """Curves with 90 % bands over the common axis; of the stages, those of the curve itself."""
    curves = {name: points for name, points in curves.items() if any(math.isfinite(y) for _, y, _ in points)}
    if not curves:
        return None
    edges = [edge for points in curves.values() for point in points for edge in _edges(point)]
    if floor:  # a λ̂ far below its basin would squeeze the basin to a line
        top = max(y for points in curves.values() for _, y, _ in points if math.isfinite(y))
        edges = [max(edge, -0.25 * top) for edge in edges]
    times = growth.times
    span = Scale(times[0], times[-1], "log") if times[-1] > times[0] else Scale(times[0] / 2, times[0] * 2, "log")
    chart = Chart(f"{', '.join(curves)} over training", span, padded(edges), "step", label, width=860.0, height=260.0)
    for name, own in growth.boundaries.items():
        if _CURVES[name] in curves:
            for each in own:
                chart.shade(each.low, each.high, "")
                chart.mark(each.at, number(each.at, 2))
    for place, (name, points) in enumerate(curves.items()):
        style = STYLES[place % len(STYLES)]
        if any(math.isfinite(error) and error > 0 for *_, error in points):
            chart.band([(point[0], *_edges(point)) for point in points], "", style)
        chart.line([(time, y) for time, y, _ in points], name, style)
        chart.points(
            [(t, y, math.nan, math.nan, f"{name}, step {number(t)}: {with_error(y, error)}") for t, y, error in points],
            "", style,
        )  # fmt: skip
    return chart.svg()


def _edges(point: tuple[float, float, float]) -> tuple[float, float]:
    half = 1.645 * point[2] if math.isfinite(point[2]) else 0.0
    return point[1] - half, point[1] + half
