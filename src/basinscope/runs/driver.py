"""run: take a study from whatever is stored to its end, and survive what happens on the way."""

from __future__ import annotations

import json
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import InputError, StoreError
from ..progress import Report, tracked
from .executors.base import Executor, RunPlan
from .executors.inline import Inline
from .forecast import Forecast, forecast
from .identity import canonical, checksum
from .index import Index
from .lease import Lease, driving
from .references import load, reference_to
from .settings import resolved
from .store import Entry, Store, record_name
from .study import Study
from .units import Planned, Unit, planned, selected, units
from .work import JobOutcome
from .worker import WORKER

INTERRUPTED = "it was interrupted"
_FLUSH = 0.5  # seconds between writes to the index
_SHOW_EVERY = 0.5  # seconds between words on progress
_RECENT = 1000  # finished units that the forecast looks at


@dataclass(frozen=True)
class RunSummary:
    """How a run of a study ended.

    Attributes:
        study: its name.
        total: jobs asked for.
        known: results that were stored before.
        fresh: results that this run stored.
        failed: errors by the job's label.
        aside: what was wrong with damaged results that were set aside, by key.
        stopped: why it ended before all was tried; empty when it did not.
        seconds: it took.
    """

    study: str
    total: int
    known: int
    fresh: int
    failed: Mapping[str, str]
    aside: Mapping[str, str]
    stopped: str
    seconds: float

    @property
    def complete(self) -> bool:
        return self.known + self.fresh == self.total


def run(
    study: Study | str,
    store: Store | str | os.PathLike[str] = "runs",
    *,
    scale: str = "smoke",
    settings: Mapping[str, Any] | None = None,
    on: Executor | None = None,
    minutes: float | None = None,
    only: str = "",
    progress: bool = True,
) -> RunSummary:
    """Run the jobs of a study that are not stored yet.

    Every result is stored the moment it exists. Whatever dies, and whenever, the same call goes on where the last one
    was, and the final table is the same to the bit.

    Args:
        study: a `Study`, or a reference to one (`package.module:name`).
        store: where results live: a folder or any fsspec path.
        scale: whose settings to start from.
        settings: changes to them.
        on: where to run; in this process unless given.
        minutes: start nothing that would take longer than what is left of so many, and stop.
        only: words such as `seed=3` or `width=1*`: only the jobs whose settings match each of them.
        progress: show a bar.

    Returns:
        A `RunSummary`. Failed jobs do not stop the others; Ctrl-C ends the run with what is stored by then.

    Examples:
        >>> from basinscope.runs.sweep import Sweep
        >>> sweep = Sweep("squares", lambda x: {"square": x**2}, {"grid": {"x": [1, 2, 3]}})
        >>> run(sweep, "memory://example-run").fresh
        3
        >>> run(sweep, "memory://example-run", settings={"grid": {"x": [3, 4]}}).fresh
        1
    """
    if os.environ.get(WORKER):
        raise InputError("a worker cannot run a study — put the call under `if __name__ == '__main__':`")
    definition = load(study) if isinstance(study, str) else study
    opened = store if isinstance(store, Store) else Store(store)
    resolved_settings = resolved(definition, scale, settings or {})
    jobs = planned(definition, resolved_settings)
    reference = study if isinstance(study, str) else reference_to(definition)
    until = None if minutes is None else time.monotonic() + 60 * minutes
    wanted = selected(jobs, only)
    plan = RunPlan(definition, reference, opened, lambda: math.inf if until is None else until - time.monotonic())
    with driving(opened.files) as lease:
        opened.prepare()
        index = Index(opened)
        try:
            write_manifest(opened, definition, scale, resolved_settings, jobs)
            with tracked(definition.name, progress) as report:
                return _Drive(plan, jobs, wanted, index, lease, report).through(on or Inline())
        finally:
            index.close()


@dataclass
class _Drive:
    """One run of a study: what is done, what failed, what is left."""

    plan: RunPlan
    jobs: list[Planned]
    wanted: set[str]  # keys of those that this run is for
    index: Index
    lease: Lease
    report: Report
    known: int = 0
    left: dict[str, Unit] = field(default_factory=dict)
    open: dict[str, set[str]] = field(default_factory=dict)  # wanted keys by unit
    unit_of: dict[str, Unit] = field(default_factory=dict)
    fresh: dict[str, Entry] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    last_shown: float = -math.inf
    timed: list[tuple[float, float]] = field(default_factory=list)

    def through(self, executor: Executor) -> RunSummary:
        started = time.monotonic()
        sound, aside = self.index.refresh()
        self.plan = replace(self.plan, expected=self._expected)
        self.known = len(self.wanted & sound.keys())
        excluded = sound.keys() | {plan.key for plan in self.jobs if plan.key not in self.wanted}
        self.left = {unit.key: unit for unit in units(self.plan.study, self.jobs, excluded.__contains__)}
        self.unit_of = {key: unit for unit in self.left.values() for key in unit.wanted}
        self.open = {unit.key: set(unit.wanted) for unit in self.left.values()}
        for key in self.plan.store.failed() & self.unit_of.keys():
            self.plan.store.forgive(key)
        stopped = ""
        try:
            if self.left:
                self._execute(executor)
            if self.left:
                stopped = "the time was up"
        except KeyboardInterrupt:
            stopped = INTERRUPTED
        labels = {plan.key: plan.label for plan in self.jobs}
        failed = {labels[key]: error for key, error in self.failed.items()}
        total, seconds = len(self.wanted), time.monotonic() - started
        return RunSummary(self.plan.study.name, total, self.known, len(self.fresh), failed, aside, stopped, seconds)

    def _execute(self, executor: Executor) -> None:
        self._show(executor)
        with self._recording() as record, closing(executor.run(self.plan, list(self.left.values()))) as running:
            for outcomes in running:
                for outcome in outcomes:
                    self._note(outcome, record)
                self._show(executor)
        self.plan.store.insist()

    def _note(self, outcome: JobOutcome, record: Callable[[Entry], None]) -> None:
        unit = self.unit_of[outcome.key]
        if outcome.entry is None:
            self.failed[outcome.key] = outcome.error
        else:
            self._insist(outcome.key)
            self.fresh[outcome.key] = outcome.entry
            record(outcome.entry)
        open_keys = self.open[unit.key]
        open_keys.discard(outcome.key)
        if not open_keys:
            del self.left[unit.key]
            if outcome.entry is not None:
                self.timed.append((outcome.entry.seconds * len(unit.keys), unit.cost))

    def _insist(self, key: str) -> None:
        """A worker on a machine that does not share the folder writes its results elsewhere."""
        files = self.plan.store.files
        if files.folder is None:
            return
        self.plan.store.insist()
        if not files.exists(record_name(key)):
            raise StoreError(
                f"a worker stored result {key} in {files.url!r}, but it is not there — use a path that all machines "
                f"share, or object storage, with --store"
            )

    @contextmanager
    def _recording(self) -> Iterator[Callable[[Entry], None]]:
        """Entries reach the index in batches, and in any case in the end."""
        waiting: list[Entry] = []
        written = time.monotonic()

        def record(entry: Entry) -> None:
            nonlocal written
            waiting.append(entry)
            if time.monotonic() - written > _FLUSH:
                self.index.add(waiting)
                waiting.clear()
                written = time.monotonic()

        try:
            yield record
        finally:
            self.index.add(waiting)

    def _show(self, executor: Executor) -> None:
        if time.monotonic() - self.last_shown < _SHOW_EVERY:
            return
        self.last_shown = time.monotonic()
        done, total = self.known + len(self.fresh), len(self.wanted)
        remaining = self._forecast(executor.workers)
        words = f"{done} of {total}" + (f", {len(self.failed)} failed" if self.failed else "")
        self.report(done / total, words + (f", {remaining}" if remaining else ""))
        self.lease.tell(
            {
                "study": self.plan.study.name,
                "on": executor.name,
                "workers": executor.workers,
                "running": min(executor.workers, len(self.left)),
                "left": None if remaining is None else str(remaining),
            }
        )

    def _expected(self, unit: Unit) -> float:
        """Seconds that a unit will take: the median of those that ended, by their costs; 0 before any did."""
        return unit.cost * statistics.median(seconds / cost for seconds, cost in self.timed[-_RECENT:] or [(0.0, 1.0)])

    def _forecast(self, workers: int) -> Forecast | None:
        return forecast(self.timed[-_RECENT:], [unit.cost for unit in self.left.values()], workers)


def write_manifest(store: Store, study: Study, scale: str, settings: Any, jobs: list[Planned]) -> None:
    """What was asked for, so that `status` and `report` can tell without loading the study."""
    plain = settings.config()
    manifest = {
        "study": study.name,
        "title": study.title,
        "version": study.version,
        "scale": scale,
        "settings": plain,
        "asked": time.time(),
        "jobs": [[plan.key, plan.label] for plan in jobs],
    }
    digest = checksum(canonical([study.version, scale, plain]).encode())[:12]
    store.files.write(f"studies/{study.name}/{digest}.json", json.dumps(manifest).encode(), durable=False)
