"""From plain values to HTML: one set of templates for reports, studies and the live page. Everything is escaped."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ..estimates import Estimate
from ..measures.measured import Measurement
from ..progress import duration
from . import figures
from .figures import real
from .report import Point, Report
from .showing import shows
from .story import story
from .words import (
    BIBTEX,
    REFERENCE,
    VERDICTS,
    interval,
    keywords,
    meaning_of,
    moment,
    number,
    sentence,
    title_of,
    with_error,
)  # fmt: skip


@cache
def templates() -> Environment:
    """The templates, with autoescaping on whatever their names are."""
    environment = Environment(
        loader=PackageLoader("basinscope.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        number=number, with_error=with_error, interval=interval, title_of=title_of, meaning_of=meaning_of,
        moment=moment, duration=duration, VERDICTS=VERDICTS, REFERENCE=REFERENCE, figures=figures, style=style,
        keywords=keywords,
        sentence=sentence,
    )  # fmt: skip
    return environment


def style() -> Markup:
    """The style sheet, as it is."""
    return Markup(asset("style.css"))


def asset(name: str) -> str:
    """A file of the templates' folder, unrendered."""
    from importlib import resources

    return resources.files("basinscope.report").joinpath("templates", name).read_text("utf-8")


@shows
def report_page(report: Report) -> str:
    """The whole report as one page without scripts."""
    measured = report.final
    return (
        templates()
        .get_template("report.html")
        .render(
            report=report,
            story=story(report),
            bibtex=BIBTEX % report.provenance.get("basinscope"),
            measured=measured,
            groups=_groups(measured),
            many=len(report.points) > 1,
            **_training(report),
            downloads=[
                ("CSV", "report.csv", data_link("text/csv", report.to_csv())),
                ("JSON", "report.json", data_link("application/json", _light(report))),
            ],
        )
    )


@shows
def notebook_fragment(report: Report) -> str:
    """The report as a notebook shows it: λ̂ as it shows itself, and a table, styled by the notebook."""
    measured = report.final
    return (
        templates()
        .get_template("notebook.html")
        .render(card=Markup(measured.llc._repr_html_()), story=story(report), estimates=measured.by_name)
    )


def data_link(kind: str, text: str) -> str:
    """A link that carries its content."""
    return f"data:{kind};charset=utf-8;base64,{base64.b64encode(text.encode()).decode()}"


def _light(report: Report) -> str:
    """The report's JSON without what is only drawn."""

    def light(point: Point) -> Point:
        drop = None if point.measured is None else replace(point.measured, trace=None, curve=(), spectrum=None)
        return replace(point, measured=drop)

    return replace(report, points=[light(point) for point in report.points], history=()).to_json()


def _groups(measured: Measurement) -> list[tuple[str, list[tuple[str, Estimate]]]]:
    """Estimates in the tables they belong to."""
    criteria = ("waic", "loo", "tic", "aic", "gap", "measured_gap", "wbic", "bic", "fluctuation", "log_det")
    estimates = measured.estimates
    return [
        ("criteria", [(name, estimates[name]) for name in criteria if name in estimates]),
        ("curvature", [(name, estimate) for name, estimate in estimates.items() if name not in criteria]),
    ]


def _training(report: Report) -> dict[str, Any]:
    """Curves over training, from the checkpoints and from the rows that the training left."""
    axis, points = axis_of(report.points)
    measurements = [
        (x, point.measured) for x, point in zip(points, report.points, strict=True) if point.measured is not None
    ]

    def curve(take: Callable[[Measurement], tuple[float, ...]]) -> list[tuple[float, ...]]:
        return [(x, *take(measured)) for x, measured in measurements]

    coefficient = figures.over_training(
        [
            ("λ̂ by sampling, 90 % band", curve(lambda m: (m.llc.value, m.llc.stderr))),
            ("½ soft rank", curve(lambda m: (m.quadratic.value,))),
            ("basin, 90 % band", curve(lambda m: (m.llc.basin.value, m.llc.basin.stderr))),
        ],
        axis,
        "effective dimension / 2",
        title="λ̂, basin and half the soft rank over training",
        styles=("s1", "s3", "s2"),
    )  # fmt: skip
    measured = [("measured data", curve(lambda m: (m.subject.loss_value,)))]
    losses = figures.over_training(
        [*loss_series(report.history, axis), *measured] if axis != "checkpoint" else measured,
        axis, "mean loss", logarithmic=True,
    )  # fmt: skip
    return {"coefficient_curve": coefficient, "loss_curve": losses}


def axis_of(points: Sequence[Point]) -> tuple[str, list[float]]:
    """What checkpoints are drawn over: their epochs or steps where all know them, else their order.

    Examples:
        >>> axis_of([Point("a", None, step=10), Point("b", None, step=20)]), axis_of([Point("a", None)])
        (('step', [10.0, 20.0]), ('checkpoint', [1.0]))
    """
    for name in ("epoch", "step"):
        values = [getattr(point, name) for point in points]
        if None not in values:
            return name, [float(value) for value in values]
    return "checkpoint", [float(place + 1) for place in range(len(points))]


def loss_series(rows: Sequence[Mapping[str, Any]], axis: str) -> list[tuple[str, list[tuple[float, ...]]]]:
    """Training and validation losses of a history."""
    return [
        (title, [(real(row.get(axis)), real(row.get(name))) for row in rows])
        for name, title in (("train_loss", "training"), ("validation_loss", "validation"))
        if any(row.get(name) is not None for row in rows)
    ]
