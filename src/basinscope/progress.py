"""Progress of jobs longer than a second: one bar in a terminal or a notebook, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

from .memory import memory_explained

Report = Callable[[float, str], None]

_MIN_SECONDS = 1.0  # before anything appears: short jobs stay silent
_SELDOM = 10.0  # seconds between two plain lines
_WHOLE: ContextVar[Report | None] = ContextVar("whole", default=None)  # the job that jobs begun now are a part of


@contextmanager
def tracked(description: str, enabled: bool = True) -> Iterator[Report]:
    """Yield `report(fraction, text)`; progress appears on standard error once the job has taken over a second.

    In a terminal or a notebook it is a bar, elsewhere a line every few seconds. Within `part` it is that part of the
    bar of the whole job. Where memory runs out meanwhile, the error says how much is missing.

    Examples:
        >>> with tracked("sampling", enabled=False) as report:
        ...     report(0.5, "half way")
    """
    with memory_explained(), _shown(description, enabled) as report:
        yield report


@contextmanager
def _shown(description: str, enabled: bool) -> Iterator[Report]:
    whole = _WHOLE.get()
    if not enabled:
        yield lambda fraction, text: None
        return
    if whole is not None:
        yield lambda fraction, text: whole(fraction, f"{description}: {text}" if text else description)
        return
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    shown = _Bar(description, console) if console.is_terminal or console.is_jupyter else _Lines(description, console)
    begin = threading.Timer(max(0.0, _MIN_SECONDS), shown.begin)  # also where the first report takes long to come
    begin.daemon = True
    begin.start()
    try:
        yield shown.report
        shown.report(1.0, "done")
    finally:
        begin.cancel()
        begin.join()
        shown.end()


@contextmanager
def part(report: Report, begin: float, end: float) -> Iterator[None]:
    """Jobs that are tracked within it show their progress as one part of a job's bar instead of bars of their own.

    Args:
        report: that of the whole job.
        begin, end: the fractions of the whole between which the part lies.

    Examples:
        >>> seen = []
        >>> with part(lambda fraction, text: seen.append((fraction, text)), 0.5, 1.0), tracked("chains") as report:
        ...     report(0.5, "λ̂ 3.1")
        >>> seen
        [(0.75, 'chains: λ̂ 3.1')]
    """
    token = _WHOLE.set(lambda fraction, text: report(begin + (end - begin) * min(1.0, fraction), text))
    try:
        yield
    finally:
        _WHOLE.reset(token)


class _Bar:
    """A bar that never goes back."""

    def __init__(self, description: str, console: Console) -> None:
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[text]}"),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task(escape(description), total=1.0, text="")
        self._furthest = 0.0

    def begin(self) -> None:
        self._bar.start()

    def report(self, fraction: float, text: str) -> None:
        self._furthest = max(self._furthest, min(fraction, 1.0))
        self._bar.update(self._task, completed=self._furthest, text=escape(text))

    def end(self) -> None:
        self._bar.stop()


class _Lines:
    """A line as a job is seen to take long, then one every few seconds, and one at its end."""

    def __init__(self, description: str, console: Console) -> None:
        self._description, self._console = description, console
        self._started = time.monotonic()
        self._last: float | None = None  # when a line was written
        self._latest = (0.0, "begun")
        self._written: tuple[float, str] | None = None  # what the last line said
        self._furthest = 0.0

    def begin(self) -> None:
        self._write()

    def report(self, fraction: float, text: str) -> None:
        self._furthest = max(self._furthest, min(fraction, 1.0))
        self._latest = (self._furthest, text)
        if self._last is not None and time.monotonic() - self._last > _SELDOM:
            self._write()

    def _write(self) -> None:
        self._last = time.monotonic()
        self._written = fraction, text = self._latest
        passed = duration(self._last - self._started)
        self._console.print(f"{self._description}: {fraction:.0%} after {passed}, {text}", markup=False)

    def end(self) -> None:
        if self._written is not None and self._written != self._latest:
            self._write()


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
