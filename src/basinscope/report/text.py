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
from .report import Report
from .story import Story, story
from .words import MISSING, VERDICTS, interval, meaning_of, number, title_of, with_error

COLOURS = {"ok": "green", "doubtful": "yellow", "failed": "red"}


def lines(report: Report) -> Iterator[str]:
    """The verdict and the numbers, a line each."""
    summary = story(report)
    yield f"{report.title}: {summary.verdict} — {summary.sentence}"
    for name, estimate in _shown(report.final).items():
        yield f"  {title_of(name)} = {with_error(estimate.value, estimate.stderr)} ({estimate.verdict})"
    for reason, remedy in (*summary.warnings, *summary.asides):
        yield f"  ! {reason}" + (f" → {remedy}" if remedy else "")


def rich_summary(report: Report) -> Group:
    """The verdict first, then every number with its interval."""
    summary = story(report)
    colour = COLOURS[summary.verdict]
    parts: list[Any] = [escape(summary.sentence)]
    for reason, remedy in (*summary.warnings, *summary.asides):
        parts.append(f"[yellow]•[/] {escape(reason)}" + (f" [bold]→ {escape(remedy)}[/]" if remedy else ""))
    panel = Panel(
        Group(*parts), title=f"[bold {colour}]{summary.verdict}[/]", title_align="left", border_style=colour,
        subtitle=escape(report.title), subtitle_align="right", padding=(0, 1),
    )  # fmt: skip
    return Group(panel, _table(report.final), *(_checkpoints(report) if len(report.points) > 1 else []))


def _shown(measured: Measurement) -> dict[str, Estimate]:
    """All estimates, λ̂ with the two parts that it is made of."""
    parts = {"llc": measured.llc, "llc_basin": measured.llc.basin, "llc_drop": measured.llc.drop}
    known = parts if math.isfinite(measured.llc.basin.value) else {}
    return {**known, **measured.by_name}


def _table(measured: Measurement) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2))
    for title, right in (("", False), ("value", True), ("90 % interval", True), ("verdict", False)):
        table.add_column(title, justify="right" if right else "left", no_wrap=right)
    for name, estimate in _shown(measured).items():
        table.add_row(
            title_of(name),
            f"[bold]{with_error(estimate.value, estimate.stderr)}[/]",
            interval(estimate),
            f"[{COLOURS[estimate.verdict]}]{estimate.verdict}[/]",
        )
    return table


def _checkpoints(report: Report) -> Iterator[Any]:
    yield ""
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2))
    for title in ("checkpoint", "loss", "λ̂", "½ soft rank", "verdict"):
        table.add_column(title, justify="left" if title in ("checkpoint", "verdict") else "right")
    shown = report.points if len(report.points) <= 12 else [*report.points[:5], None, *report.points[-6:]]
    for point in shown:
        if point is None:
            table.add_row("⋮", "", "", "", "")
            continue
        result = point.measured
        if result is None:
            table.add_row(escape(point.name), MISSING, MISSING, MISSING, "[red]failed[/]")
            continue
        verdict = result.llc.verdict
        table.add_row(
            escape(point.name),
            number(result.subject.loss_value),
            with_error(result.llc.value, result.llc.stderr),
            number(result.quadratic.value),
            f"[{COLOURS[verdict]}]{verdict}[/]",
        )
    yield table


def markdown(report: Report) -> str:
    """The report in Markdown."""
    return "\n".join(_markdown(report, story(report))) + "\n"


def _markdown(report: Report, summary: Story) -> Iterator[str]:
    yield f"# {_cell(report.title)}"
    yield ""
    yield f"**{summary.verdict}.** {VERDICTS[summary.verdict]} {_cell(summary.sentence)}"
    yield ""
    for reason, remedy in (*summary.warnings, *summary.asides):
        yield f"- {_cell(reason)}" + (f" — **{_cell(remedy)}**" if remedy else "")
    yield from _section("Numbers", ["", "value", "90 % interval", "verdict", "what it says"], (
        [
            title_of(name), with_error(estimate.value, estimate.stderr), interval(estimate), estimate.verdict,
            meaning_of(name),
        ]
        for name, estimate in report.final.by_name.items()
    ))  # fmt: skip
    if len(report.points) > 1:
        yield from _section(
            "Over training",
            ["checkpoint", "loss", "λ̂", "½ soft rank", "verdict"],
            (
                [point.name, MISSING, MISSING, MISSING, f"failed: {point.error}"]
                if (result := point.measured) is None
                else [
                    point.name,
                    number(result.subject.loss_value),
                    with_error(result.llc.value, result.llc.stderr),
                    number(result.quadratic.value),
                    result.llc.verdict,
                ]
                for point in report.points
            ),
        )
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
