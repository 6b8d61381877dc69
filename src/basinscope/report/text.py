"""A report in Markdown, in the terminal and in plain lines."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from ..estimates import Estimate
from ..measures.measured import Measurement
from .report import Point, Report
from .showing import shows
from .story import Story, story
from .words import MISSING, REFERENCE, VERDICTS, interval, meaning_of, number, title_of, with_error

CHECKPOINTS = ["checkpoint", "loss", "λ̂", "basin", "½ soft rank", "verdict"]
COLOURS = {"ok": "green", "doubtful": "yellow", "failed": "red", "reference": "dim"}


def lines(report: Report) -> Iterator[str]:
    """The verdict and the numbers, a line each."""
    summary = story(report)
    yield f"{report.title}: {summary.verdict} — {summary.sentence}"
    for name, value, _, verdict in _numbers(report.final):
        yield f"  {name} = {value} ({verdict})"
    for reason, remedy in (*summary.warnings, *summary.asides):
        yield f"  ! {reason}" + (f" → {remedy}" if remedy else "")


@shows
def rich_summary(report: Report) -> Group:
    """The verdict first, then every number with its interval."""
    summary = story(report)
    colour = COLOURS[summary.verdict]
    parts: list[Any] = [escape(f"{summary.sentence} {summary.fit}"), escape(f"{summary.others}.")]
    for reason, remedy in (*summary.warnings, *summary.asides):
        parts.append(f"[yellow]•[/] {escape(reason)}" + (f" [bold]→ {escape(remedy)}[/]" if remedy else ""))
    panel = Panel(
        Group(*parts), title=f"[bold {colour}]{summary.verdict}[/]", title_align="left", border_style=colour,
        subtitle=escape(report.title), subtitle_align="right", padding=(0, 1),
    )  # fmt: skip
    return Group(panel, _table(report.final), *(_checkpoints(report) if len(report.points) > 1 else []))


def _table(measured: Measurement) -> Table:
    table = _bare_table(("", False), ("value", True), ("90 % interval", True), ("verdict", False))
    for name, value, ends, verdict in _numbers(measured):
        table.add_row(name, f"[bold]{value}[/]", ends, f"[{COLOURS[verdict]}]{verdict}[/]")
    return table


def _bare_table(*columns: tuple[str, bool]) -> Table:
    """A table without lines; its columns by title, and whether they are aligned on the right."""
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2))
    for title, right in columns:
        table.add_column(title, justify="right" if right else "left", no_wrap=right)
    return table


def _shown(measured: Measurement) -> dict[str, Estimate]:
    """All estimates, λ̂ with the two parts that it is made of."""
    llc = measured.llc
    parts = {"llc": llc, "llc_basin": llc.basin, "llc_drop": llc.drop} if math.isfinite(llc.basin.value) else {}
    return {**parts, **measured.by_name}


def _numbers(measured: Measurement) -> Iterator[tuple[str, str, str, str]]:
    """What was measured: name, value, interval and verdict of each estimate."""
    for name, estimate in _shown(measured).items():
        value = with_error(estimate.value, estimate.stderr)
        yield title_of(name), value, interval(estimate), "reference" if name in REFERENCE else estimate.verdict


def _summary(point: Point) -> tuple[str, ...]:
    """A checkpoint in a row: its name, loss, λ̂, basin, ½ soft rank and verdict."""
    if point.measured is None:
        return point.name, *[MISSING] * (len(CHECKPOINTS) - 2), "failed"
    result, llc = point.measured, point.measured.llc
    loss, half = number(result.subject.loss_value), number(result.quadratic.value)
    basin = with_error(llc.basin.value, llc.basin.stderr)
    return point.name, loss, with_error(llc.value, llc.stderr), basin, half, llc.verdict


def _checkpoints(report: Report) -> Iterator[Any]:
    yield ""
    table = _bare_table(*((title, title not in ("checkpoint", "verdict")) for title in CHECKPOINTS))
    shown = report.points if len(report.points) <= 12 else [*report.points[:5], None, *report.points[-6:]]
    for point in shown:
        if point is None:
            table.add_row("⋮", "", "", "", "")
            continue
        name, *numbers, verdict = _summary(point)
        table.add_row(escape(name), *numbers, f"[{COLOURS[verdict]}]{verdict}[/]")
    yield table


@shows
def markdown(report: Report) -> str:
    """The report in Markdown."""
    return "\n".join(_markdown(report, story(report))) + "\n"


def _markdown(report: Report, summary: Story) -> Iterator[str]:
    yield f"# {_cell(report.title)}"
    yield ""
    yield f"**{summary.verdict}.** {VERDICTS[summary.verdict]} {_cell(summary.sentence)} {_cell(summary.fit)}"
    yield ""
    yield f"{summary.others}. {summary.resolution}".strip()
    yield ""
    for reason, remedy in (*summary.warnings, *summary.asides):
        yield f"- {_cell(reason)}" + (f" — **{_cell(remedy)}**" if remedy else "")
    meanings = map(meaning_of, _shown(report.final))
    yield from _section("Numbers", ["", "value", "90 % interval", "verdict", "what it says"], (
        [*row, meaning] for row, meaning in zip(_numbers(report.final), meanings, strict=True)
    ))  # fmt: skip
    if len(report.points) > 1:
        rows = zip(map(_summary, report.points), report.points, strict=True)
        yield from _section("Over training", CHECKPOINTS, (
            [*row, verdict if point.measured else f"failed: {point.error}"] for (*row, verdict), point in rows
        ))  # fmt: skip
    yield from _section("Checks of the chains", ["check", "seen", "wanted", ""], (
        [check.name, check.seen, check.wanted, "passed" if check.passed else "not passed"] for check in summary.checks
    ))  # fmt: skip
    for heading, pairs in (
        ("What was measured", summary.subject),
        ("Choices", summary.choices),
        ("Provenance", summary.origin),
    ):
        yield from _section(heading, ["", ""], ([name, value] for name, value in pairs))
    fence = "`" * (3 + max(map(len, re.findall("`+", summary.command)), default=0))  # longer than any inside
    yield from ("", "## Reproduce", "", fence, summary.command, fence)


def _section(title: str, header: list[str], rows: Any) -> Iterator[str]:
    rows = list(rows)
    if not rows:
        return
    yield from ("", f"## {title}", "")
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for row in rows:
        yield f"| {' | '.join(map(_cell, row))} |"


def _cell(text: Any) -> str:
    """Text that stays inside its cell, whatever a name holds."""
    escaped = str(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "\\`")
    return " ".join(escaped.split())
