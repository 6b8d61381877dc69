"""Sentences and tables that the pages of several studies have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from basinscope.runs.settings import resolved
from basinscope.runs.study import Settings, Study


def data_and_scale(data: Iterable[str]) -> tuple[str, str]:
    """The names of the data sets, and what is to be said of the smoke scale where they are its own.

    Examples:
        >>> data_and_scale(["mnist", "svhn", "mnist"])
        ('mnist, svhn', '')
    """
    names = ", ".join(dict.fromkeys(data))
    small = " This is the smoke scale: it shows that the study runs, and settles nothing." if "digits" in names else ""
    return names, small


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """The lines of a table in Markdown, and the empty one after it.

    Examples:
        >>> markdown_table(["n", "λ̂"], [(100, 1.5)])
        ['| n | λ̂ |', '|---|---|', '| 100 | 1.5 |', '']
    """
    return [_line(columns), f"|{'---|' * len(columns)}", *map(_line, rows), ""]


def _line(cells: Sequence[Any]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def in_words(verdicts: Iterable[str]) -> str:
    """How often each verdict was given.

    Examples:
        >>> in_words(["ok", "failed", "ok"])
        '2 ok, 0 doubtful, 1 failed'
    """
    counts = Counter(verdicts)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in ("ok", "doubtful", "failed"))


def scale_of(study: Study, settings: Settings) -> str:
    """The name of the scale whose settings these are; empty where they are of none."""
    return next((name for name in study.scales if resolved(study, name).config() == settings.config()), "")


def said_of_scale(scale: str) -> str:
    """What is to be said of a scale other than the paper's.

    Examples:
        >>> said_of_scale("paper"), said_of_scale("digits")
        ('', ' This is the scale `digits`, which a small machine runs.')
    """
    if scale == "smoke":
        return " This is the smoke scale: it shows that the study runs, and settles nothing."
    return "" if scale in ("", "paper") else f" This is the scale `{scale}`, which a small machine runs."


def run_again(origin: Mapping[str, Any]) -> str:
    """How a study's results are made again, and what they took.

    Examples:
        >>> run_again({"study": "volume-scaling", "jobs": 18, "results": 17, "seconds": 600.0})
        '`basinscope study run studies/volume_scaling --scale paper`; 17 jobs took 10 minutes, added up over processes \
of one core each. 1 of 18 jobs have no result and are left out.'
    """
    missing = origin["jobs"] - origin["results"]
    left_out = f" {missing} of {origin['jobs']} jobs have no result and are left out." if missing else ""
    scale = origin.get("scale", "paper")
    return (
        f"`basinscope study run studies/{origin['study'].replace('-', '_')} --scale {scale}`; {origin['results']} jobs "
        f"took {origin['seconds'] / 60:.0f} minutes, added up over processes of one core each.{left_out}"
    )
