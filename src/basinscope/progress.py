"""Progress bars for jobs longer than a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

Report = Callable[[float, str], None]

_MIN_SECONDS = 1.0  # before a bar appears: short jobs stay silent


@contextmanager
def tracked(description: str, enabled: bool = True) -> Iterator[Report]:
    """Yield `report(fraction, text)`; a bar appears on standard error once the job has taken over a second.

    It appears only where it can move: in a terminal or a notebook, never in a file.

    Examples:
        >>> with tracked("sampling", enabled=False) as report:
        ...     report(0.5, "half way")
    """
    console = Console(stderr=True)
    if not enabled or not (console.is_terminal or console.is_jupyter):
        yield lambda fraction, text: None
        return
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[text]}"),
        console=console,
        transient=True,
    )
    task = bar.add_task(description, total=1.0, text="")
    started = time.monotonic()
    shown = False

    def report(fraction: float, text: str) -> None:
        nonlocal shown
        if not shown and time.monotonic() - started > _MIN_SECONDS:
            bar.start()
            shown = True
        bar.update(task, completed=min(fraction, 1.0), text=text)

    try:
        yield report
        bar.update(task, completed=1.0)
    finally:
        if shown:
            bar.stop()


def duration(seconds: float) -> str:
    """A duration in words.

    Examples:
        >>> duration(0.25), duration(42), duration(754), duration(9000), duration(400000)
        ('0.2 s', '42 s', '13 min', '2.5 h', '4.6 days')
    """
    if seconds < 100:
        return f"{seconds:.{1 if 0 < seconds < 9.5 else 0}f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172800 else f"{seconds / 86400:.1f} days"
