"""Runs side by side, as a piece of the live page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from markupsafe import Markup

from ..estimates import Estimate
from ..measures.measured import ChainTraces
from ..training.history_figure import measured
from . import figures
from .catalogue import Catalogue, Detail
from .figures import real
from .pages import axis_of, templates
from .words import title_of

_NAME = 60
_CURVES = 12
_BESIDE = ("_stderr", "_verdict", "_warnings")
_RESOLUTION = ("llc_nbeta", "llc_gamma", "nbeta", "gamma")
_FIRST = (
    "llc",
    "llc_basin",
    "llc_drop",
    *_RESOLUTION,
    "half_soft_rank",
    "train_loss",
    "validation_loss",
    "loss",
    "wbic",
    "gap",
)


def comparison(catalogue: Catalogue, identities: Sequence[str]) -> str:
    """Numbers, curves over training and chains of the runs that are there."""
    runs = [
        (row, catalogue.detail(identity))
        for identity in dict.fromkeys(identities)
        if (row := catalogue.row(identity)) is not None
    ]
    return (
        templates()
        .get_template("compare.html")
        .render(
            runs=[
                (row, detail, figures.STYLES[place % len(figures.STYLES)]) for place, (row, detail) in enumerate(runs)
            ],
            columns=_columns([row for row, _ in runs]),
            mismatch=mismatch([row for row, _ in runs]),
            curves=_curves(runs),
            chains=[(row["name"], chart) for row, detail in runs if (chart := _chains(detail)) is not None],
        )
    )


def run_page(catalogue: Catalogue, identity: str) -> str:
    """The page of one run: all its numbers, its curves over training and its chains; empty where there is none."""
    row, detail = catalogue.row(identity), catalogue.detail(identity)
    if row is None:
        return ""
    names = _columns([row])
    return (
        templates()
        .get_template("run.html")
        .render(
            row=row,
            detail=detail,
            place=catalogue.root.name,
            columns=names,
            curves=_curves([(row, detail)]),
            chains=_chains(detail),
        )
    )


def mismatch(rows: Sequence[dict[str, Any]]) -> str:
    """Which part of the resolution differs between runs that have a λ̂ and say at which they took it; empty for none.

    Examples:
        >>> runs = [{"values": {"llc": 3.0, "llc_nbeta": 80.0, "llc_gamma": gamma}} for gamma in (1.0, 2.0)]
        >>> mismatch(runs), mismatch(runs[:1]), mismatch([runs[0], {"values": {"llc": 4.0}}])
        ('γ', '', '')
    """
    measured = [row["values"] for row in rows if "llc" in row["values"]]
    symbols = []
    for name, symbol in (("nbeta", "nβ"), ("gamma", "γ")):
        stated = [values.get(f"llc_{name}", values.get(name)) for values in measured]
        numbers = [value for value in stated if isinstance(value, float | int)]
        if any(not math.isclose(value, numbers[0], rel_tol=1e-6) for value in numbers):
            symbols.append(symbol)
    return " and ".join(symbols)


def _columns(rows: list[dict[str, Any]]) -> list[str]:
    """Names of the values, the most wanted first; a standard error stands with its value."""
    names = dict.fromkeys(name for row in rows for name in row["values"])
    first = [name for name in _FIRST if name in names]
    return [*first, *(name for name in names if name not in first and not _beside(name, names))]


def _beside(name: str, names: Iterable[str]) -> bool:
    """Whether a column stands with another: its standard error, its verdict, or the reasons for that."""
    return any(name.endswith(end) and name.removesuffix(end) in names for end in _BESIDE)


def _curves(runs: list[tuple[dict[str, Any], Detail]]) -> list[tuple[str, Markup]]:
    charts = []
    histories = [row for _, detail in runs for row in _history(detail)]
    others = [name for name in measured(histories) if name != "llc"]
    drawn: list[tuple[str, tuple[str, ...], bool]] = [
        ("λ̂ over training", ("llc",), False),
        ("basin over training", ("llc_basin",), False),
        ("training loss", ("train_loss", "loss"), True),
        ("validation loss", ("validation_loss",), True),
        *((f"{title_of(name)} over training", (name,), True) for name in others),
    ]
    for title, names, logarithmic in drawn[:_CURVES]:
        axis = "epoch" if all(_has(detail, "epoch") for _, detail in runs if _history(detail)) else "step"
        series = [(row["name"][:_NAME], _points(detail, axis, names)) for row, detail in runs]
        chart = figures.over_training(series, axis, title, logarithmic=logarithmic)
        if chart is not None and any(len(points) > 1 for _, points in series):
            charts.append((title, chart))
    return charts


def _history(detail: Detail) -> list[dict[str, Any]]:
    """The rows over training: of the training itself, or of the checkpoints that were measured."""
    if detail.report is not None and len(detail.report.points) > 1:
        axis, places = axis_of(detail.report.points)
        name = "step" if axis == "checkpoint" else axis
        return [{name: x, **row} for x, row in zip(places, detail.report.rows(), strict=True)]
    return detail.rows if len(detail.rows) > 1 else []


def _has(detail: Detail, name: str) -> bool:
    return all(row.get(name) is not None for row in _history(detail))


def _points(detail: Detail, axis: str, names: Sequence[str]) -> list[tuple[float, ...]]:
    rows = _history(detail)
    name = next((candidate for candidate in names if any(row.get(candidate) is not None for row in rows)), names[0])
    return [
        (real(row.get(axis)), real(row.get(name)), real(row.get(f"{name}_stderr")))
        for row in rows
        if row.get(name) is not None and row.get(axis) is not None
    ]


def _chains(detail: Detail) -> Markup | None:
    if detail.report is not None:
        final = detail.report.final
        return None if final.trace is None else figures.chains(final.trace, final.llc)
    if not detail.trace or not detail.trace[0]:
        return None
    row = detail.rows[-1] if detail.rows else {}
    draws = row.get("draws") or len(detail.trace[0])
    mean = [sum(column) / len(column) for column in zip(*detail.trace, strict=True)]
    trace = ChainTraces(draws, draws // 2, len(detail.trace), detail.trace[:12], mean)
    return figures.chains(trace, Estimate("value", real(row.get("value")), real(row.get("stderr"))))
