"""Scores as a table: on the terminal, in Markdown and as CSV."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from rich.table import Table

from .scores import Goal, Score

COLUMNS = (
    "case",
    "seed",
    "d",
    "n",
    "λ",
    "λ_t",
    "λ̂",
    "± s.e.",
    "from λ_t",
    "from λ",
    "z",
    "in 90 %",
    "verdict",
    "seconds",
)


def cells(score: Score) -> list[str]:
    """One row of the table."""
    return [
        score.case,
        str(score.seed),
        str(score.d),
        str(score.n),
        "" if math.isnan(score.coefficient) else f"{score.coefficient:g}",
        f"{score.reference:.5g}",
        f"{score.value:.5g}",
        f"{score.stderr:.2g}",
        f"{score.relative_error:+.2%}",
        "" if math.isnan(score.coefficient) else f"{score.error_of_limit:+.1%}",
        f"{score.z:+.1f}",
        "yes" if score.covered else "no",
        score.verdict,
        f"{score.seconds:.1f}",
    ]


def terminal(scores: Sequence[Score]) -> Table:
    table = Table(*COLUMNS, box=None, header_style="bold", pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
        column.no_wrap = True
    for score in scores:
        table.add_row(*cells(score), style=None if score.covered else "yellow")
    return table


def terminal_goals(goals: Sequence[Goal]) -> Table:
    table = Table("target", "measured", "", box=None, header_style="bold", pad_edge=False)
    for goal in goals:
        table.add_row(goal.text, goal.measured, "[green]met[/]" if goal.met else "[red]missed[/]")
    return table


def markdown(title: str, scores: Sequence[Score], goals: Sequence[Goal], provenance: Sequence[str]) -> str:
    """The report as one Markdown page, the answer first."""
    lines = [f"# {title}", "", answer(scores, goals), ""]
    lines += ["| target | measured | |", "|---|---|---|"]
    for goal in goals:
        text = goal.text.replace("|", "\\|")
        lines.append(f"| {text} | {goal.measured} | {'met' if goal.met else '**missed**'} |")
    lines += [
        "",
        "λ is the learning coefficient at w*, λ_t the exact posterior mean at the resolution (nβ, γ) the estimator "
        "used, λ̂ the estimate, whose error is the first of the two columns: the second is what a finite n, and the "
        "localiser, make of it. Seconds are those of the clock or of the processor, whichever are fewer.",
        "",
        f"| {' | '.join(COLUMNS)} |",
        f"|---{'|---:' * (len(COLUMNS) - 1)}|",
    ]
    lines += [f"| {' | '.join(cells(score))} |" for score in scores]
    return "\n".join([*lines, "", "Measured with:", "", *(f"- {item}" for item in provenance)]) + "\n"


def answer(scores: Sequence[Score], goals: Sequence[Goal]) -> str:
    """What was found, in two sentences."""
    middle = float(np.median([abs(score.relative_error) for score in scores]))
    limits = [abs(score.error_of_limit) for score in scores if not math.isnan(score.coefficient)]
    sound = [abs(score.relative_error) for score in scores if score.verdict == "ok"]
    beyond = f" From λ, the limit of λ_t, it is {np.median(limits):.0%} away in the median." if limits else ""
    worst = f", the worst of which is {max(sound):.1%} off" if sound else ""
    return (
        f"{sum(goal.met for goal in goals)} of {len(goals)} targets are met. λ̂ is {middle:.1%} away from λ_t in the "
        f"median; {len(sound)} of {len(scores)} are `ok`{worst}.{beyond}"
    )
