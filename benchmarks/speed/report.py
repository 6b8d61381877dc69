"""The comparison as Markdown and CSV."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from basinscope.files import write_whole

from .accuracy import Score
from .timing import CHAINS, PEER_CHAINS, Timing


@dataclass(frozen=True)
class Goal:
    """A factor in CPU time per draw that must be reached."""

    text: str
    wanted: float
    reached: float

    @property
    def met(self) -> bool:
        return self.reached >= self.wanted


def goals(timings: Sequence[Timing]) -> list[Goal]:
    """devinterp 1.3.2's cost of a chain draw over ours: the same call, whole, at the best of our chain counts."""
    found = []
    for (network, parameters, batch), rows in _grouped(timings):
        theirs = next(row.whole for row in rows if row.tool == "devinterp 1.3.2")
        ours = min(row.whole for row in rows if row.tool == "basinscope")
        found.append(Goal(f"{network}, batch {batch}", 1.5 if parameters > 1000 else 5.0, theirs / ours))
    return found


def markdown(timings: Sequence[Timing], scores: Sequence[Score], provenance: Sequence[str]) -> str:
    """The whole page."""
    lines = ["# Learning coefficients: time per draw, and error against time", ""]
    lines += [f"- {item}" for item in provenance]
    if timings:
        lines += ["", "## Time per draw", "", *_timing_text(), "", *_targets(goals(timings)), "", *_timings(timings)]
    if scores:
        lines += ["", "## Error against time", "", *_accuracy_text(), "", *_summary(scores), "", *_scores(scores)]
    return "\n".join(lines) + "\n"


def _timing_text() -> list[str]:
    return [
        "Milliseconds of CPU per draw of one chain of plain SGLD: same network, data, step size, batch size and number",
        f"of draws over all chains ({PEER_CHAINS} chains for devinterp, where their number makes no difference;",
        f"{', '.join(map(str, CHAINS))} for us, where chains run as one batch). *Whole call* divides the call's CPU",
        "seconds by its draws; *one more draw* leaves out what a call costs once. devinterp 2 takes language models",
        "only: the networks are dressed as one (a sample's number is the token, its loss the loss of the next one).",
    ]


def _targets(found: Sequence[Goal]) -> list[str]:
    lines = ["| fewer CPU seconds per draw than devinterp 1.3.2 | wanted | measured | |", "|---|---:|---:|---|"]
    for goal in found:
        verdict = "met" if goal.met else "**missed**"
        lines.append(f"| {goal.text} | {goal.wanted:g}× | {goal.reached:.2f}× | {verdict} |")
    return lines


def _timings(timings: Sequence[Timing]) -> list[str]:
    lines = [
        "| network | parameters | batch | tool | chains | whole call | one more draw | range |",
        "|---|---:|---:|---|---:|---:|---:|---:|",
    ]
    for row in timings:
        lines.append(
            f"| {row.network} | {row.parameters:,} | {row.batch_size} | {row.tool} | {row.chains} | {row.whole:.3f} | "
            f"{row.marginal:.3f} | {row.lowest:.3f}–{row.highest:.3f} |" + (f" {row.remark}" if row.remark else "")
        )
    return lines


def _accuracy_text() -> list[str]:
    return [
        "Random deep linear networks at a minimum whose learning coefficient λ a theorem gives. λ_t is the exact mean",
        "at the (nβ, γ) that was sampled, from a Gibbs sampler; where γ is 0, as in devinterp's defaults and README,",
        "it is not defined. In the rows with nβ = n/log n devinterp was given our γ and a step size of a tenth (or",
        "half) of 1/(nβ·h_max + γ) from the true curvature, which a user would have to find first. Errors are absolute",
        "and relative; times are per network.",
    ]


def _summary(scores: Sequence[Score]) -> list[str]:
    lines = [
        "| tool | settings | error in λ: median | worst | from λ_t: median | worst | NaN | CPU s | wall s |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for (tool, label), rows in _settings(scores):
        missing = sum(not math.isfinite(row.value) for row in rows)
        lines.append(
            f"| {tool} | {label} | {_middle(row.error for row in rows)} | {_worst(row.error for row in rows)} | "
            f"{_middle(row.sampling_error for row in rows)} | {_worst(row.sampling_error for row in rows)} | "
            f"{missing} of {len(rows)} | {_mean(row.cpu for row in rows)} | {_mean(row.wall for row in rows)} |"
        )
    return lines


def _scores(scores: Sequence[Score]) -> list[str]:
    ours = [row for row in scores if row.tool == "basinscope"]
    lines = ["Ours, network by network:", "", "| network | settings | λ | λ_t | λ̂ | verdict | CPU s |"]
    lines.append("|---|---|---:|---:|---:|---|---:|")
    for row in ours:
        lines.append(
            f"| {row.network} | {row.label} | {row.coefficient:g} | {row.reference:.4g} | {row.value:.4g} | "
            f"{row.verdict} | {row.cpu:.1f} |"
        )
    return lines


def write_csv(path: Path, rows: Sequence[Any]) -> None:
    """All numbers in full precision."""
    table = [asdict(row) for row in rows]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=list(table[0]))
    writer.writeheader()
    writer.writerows(table)
    write_whole(path, text.getvalue().encode())


def _grouped(timings: Sequence[Timing]) -> Iterable[tuple[tuple[str, int, int], list[Timing]]]:
    for key, rows in groupby(timings, lambda row: (row.network, row.parameters, row.batch_size)):
        yield key, list(rows)


def _settings(scores: Sequence[Score]) -> Iterable[tuple[tuple[str, str], list[Score]]]:
    for key, rows in groupby(scores, lambda row: (row.tool, row.label)):
        yield key, list(rows)


def _finite(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def _middle(values: Iterable[float]) -> str:
    kept = _finite(values)
    return f"{statistics.median(kept):.1%}" if kept else "—"


def _worst(values: Iterable[float]) -> str:
    kept = _finite(values)
    return f"{max(kept):.1%}" if kept else "—"


def _mean(values: Iterable[float]) -> str:
    kept = _finite(values)
    return f"{statistics.mean(kept):.2g}" if kept else "—"
