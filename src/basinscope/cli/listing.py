"""The table of studies that can be run by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from ..progress import duration
from ..studies import Known, durations

_SCALES = ("smoke", "paper")


def table_of(studies: Mapping[str, Known], results: Path) -> Table:
    """Name, question, and what the results in a folder took to compute, a row for each study."""
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2))
    table.add_column("study", no_wrap=True)
    table.add_column("what it asks", ratio=1)
    for scale in _SCALES:
        table.add_column(f"{scale} took", no_wrap=True)
    for name, entry in studies.items():
        times = durations(results, name)
        shown = [_in_words(*times[scale]) if scale in times else "" for scale in _SCALES]
        table.add_row(f"[bold]{escape(name)}[/]", escape(entry.title), *shown)
    return table


def _in_words(seconds: float, device: str) -> str:
    return duration(seconds) + (" on a GPU" if "NVIDIA" in device else "")
