"""What lies in a folder of runs: jobs of studies, trainings and reports, each as one row; read again as it changes."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ..adapters.training_header import training_header
from ..errors import BasinscopeError, InputError
from ..runs.status import Status, manifests_in, statuses
from ..runs.store import Damaged, Store, recorded_key
from .report import Report
from .rows import clean, latest, shown_values

TRAINING, REPORT, STORE = "checkpoint.safetensors", "report.json", "store.json"
_DEPTH = 6
_FRESH = 60.0  # seconds since the last write within which a training counts as running
_OWN = ("results", "failures", "studies", "aside", "points")  # folders whose files are not runs of their own


@dataclass(frozen=True)
class Detail:
    """What can be drawn of a run.

    Attributes:
        rows: its history.
        report: its measurements, where it is a report.
        trace: chains by draws, where a job kept them.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    report: Report | None = None
    trace: list[list[float]] | None = None


@dataclass
class _Entry:
    row: dict[str, Any]
    version: int
    stamp: Any
    load: Callable[[], Detail]


class Catalogue:
    """The runs below a folder, by an id that says nothing of where they lie.

    A run is found by looking its id up, never by a path from outside. Links that lead out of the folder are not
    followed. Nothing is written.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     catalogue = Catalogue(Path(folder))
        ...     catalogue.scan()
        ...     catalogue.changed(0)
        (0, [], [])
    """

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise InputError(f"there is no folder of runs at {root}")
        self.root = root.resolve()
        self.version = 0
        self.studies: list[dict[str, Any]] = []
        self._entries: dict[str, _Entry] = {}
        self._removed: dict[str, int] = {}
        self._lock = threading.Lock()
        self._scanning = threading.Lock()

    # ------------------------------------------------------------------ reading

    def changed(self, since: int) -> tuple[int, list[dict[str, Any]], list[str]]:
        """Rows that are newer than a version, and ids that went away after it."""
        with self._lock:
            rows = [entry.row for entry in self._entries.values() if entry.version > since]
            removed = [identity for identity, version in self._removed.items() if version > since]
            return self.version, rows, removed

    def row(self, identity: str) -> dict[str, Any] | None:
        """The row of a run; None when there is no such run."""
        with self._lock:
            entry = self._entries.get(identity)
            return None if entry is None else entry.row

    def detail(self, identity: str) -> Detail:
        """What can be drawn of a run."""
        with self._lock:
            entry = self._entries.get(identity)
        if entry is None:
            return Detail()
        try:
            return entry.load()
        except Exception:  # whatever its files make of a reader: its row says what is wrong
            return Detail()

    # ------------------------------------------------------------------ scanning

    def scan(self) -> None:
        """Look at the folder once more; what has not changed since is not read again."""
        with self._scanning:
            identities: set[str] = set()
            studies: list[dict[str, Any]] = []
            for folder, names in self._folders():
                if STORE in names:
                    studies += self._scan_store(folder, identities)
                if TRAINING in names or f"{TRAINING}.part" in names:
                    self._scan_training(folder, identities)
                if REPORT in names:
                    self._scan_report(folder, identities)
            with self._lock:
                removed = self._entries.keys() - identities
                if removed or studies != self.studies:
                    self.version += 1
                for identity in removed:
                    del self._entries[identity]
                    self._removed[identity] = self.version
                self.studies = studies

    def _folders(self) -> Iterator[tuple[Path, set[str]]]:
        """Folders that may hold a run, with the names of the files in them."""
        for place, folders, files in os.walk(self.root, followlinks=False):
            here = Path(place)
            depth = len(here.relative_to(self.root).parts)
            skipped = _OWN if STORE in files or REPORT in files else ()
            folders[:] = sorted(n for n in folders if depth < _DEPTH and n not in skipped and not n.startswith("."))
            yield here, {name for name in files if self._inside(here / name)}

    def _inside(self, path: Path) -> bool:
        return not path.is_symlink() or path.resolve().is_relative_to(self.root)

    def _put(self, identities: set[str], row: dict[str, Any], stamp: Any, load: Callable[[], Detail]) -> None:
        row = clean(row)
        identities.add(row["id"])
        with self._lock:
            before = self._entries.get(row["id"])
            if before is not None and before.row == row:
                before.stamp = stamp
                return
            self.version += 1
            self._removed.pop(row["id"], None)
            self._entries[row["id"]] = _Entry(row, self.version, stamp, load)

    def _unchanged(self, identity: str, stamp: Any) -> bool:
        with self._lock:
            before = self._entries.get(identity)
            return before is not None and before.stamp == stamp

    def _place(self, folder: Path) -> tuple[str, str]:
        """Group and name of a run that is a folder."""
        parts = folder.relative_to(self.root).parts
        return "/".join(parts[:-1]) or "·", parts[-1] if parts else self.root.name

    # ------------------------------------------------------------------ trainings and reports

    def _scan_training(self, folder: Path, identities: set[str]) -> None:
        file = folder / TRAINING
        stamp = _stamp(file)
        fresh = stamp is not None and time.time() - stamp[1] / 1e9 < _FRESH
        group, name = self._place(folder)

        def read() -> dict[str, Any] | None:
            if stamp is None:
                return {"status": "starting", "note": "its first checkpoint is still being written"}
            header = training_header(file)
            if header is None:
                return None
            status, note = header["over"] or ("running" if fresh else "at rest", "")
            return {
                "status": status,
                "note": note,
                "updated": stamp[1] / 1e9,
                "values": shown_values(latest(header["rows"])),
            }

        identity = _identity("training", str(folder.relative_to(self.root)))
        self._note(
            identities, {"id": identity, "kind": "training", "group": group, "name": name}, (stamp, fresh), read,
            lambda: Detail(_rows_of(file)),
        )  # fmt: skip

    def _scan_report(self, folder: Path, identities: set[str]) -> None:
        file = folder / REPORT
        group, name = self._place(folder)

        def read() -> dict[str, Any]:
            report = Report.load(file)
            return {
                "status": "measured",
                "note": report.title + (f", {len(report.points)} checkpoints" if len(report.points) > 1 else ""),
                "updated": report.made,
                "values": shown_values(report.rows()[-1]),
            }

        identity = _identity("report", str(folder.relative_to(self.root)))
        self._note(
            identities, {"id": identity, "kind": "report", "group": group, "name": name}, _stamp(file), read,
            lambda: _report_detail(file),
        )  # fmt: skip

    def _note(
        self, identities: set[str], row: dict[str, Any], stamp: Any, read: Callable[[], dict[str, Any] | None],
        load: Callable[[], Detail],
    ) -> None:  # fmt: skip
        """Put a run into the catalogue, unless its stamp says that it is there already.

        Args:
            identities: of the runs of this scan.
            row: what is known of it without reading.
            stamp: changes when it does.
            read: the rest of its row; None where it is no run after all. What it raises is shown as damage.
            load: what can be drawn of it.
        """
        if self._unchanged(row["id"], stamp):
            identities.add(row["id"])
            return
        try:
            facts = read()
        except Exception as error:  # whatever its files make of a reader: it must not hide other runs
            facts, load = {"status": "damaged", "note": _cause(error)}, Detail
        if facts is not None:
            self._put(identities, {"values": {}, **row, **facts}, stamp, load)

    # ------------------------------------------------------------------ studies

    def _scan_store(self, folder: Path, identities: set[str]) -> list[dict[str, Any]]:
        try:
            store = Store(folder)
            progress = statuses(store)
            failures, manifests, finished = store.failed(), manifests_in(store), _finished(store)
        except Exception as error:  # whatever its files make of a reader: it must not hide other runs
            broken = {"study": folder.name, "title": _cause(error), "scale": "", "done": 0, "total": 0, "failed": 0}
            return [{**broken, "running": False, "left": None}]
        running = {status.study for status in progress if status.driver is not None and status.driver["alive"]}
        for manifest in manifests:
            for key, label in manifest["jobs"]:
                identity = _identity("job", f"{folder.relative_to(self.root)}/{key}")
                if identity not in identities:
                    row = {"id": identity, "kind": "job", "group": manifest["study"], "name": label, "note": ""}
                    self._scan_job(identities, row, store, key, finished, failures, manifest["study"] in running)
        return [_progress(status) for status in progress]

    def _scan_job(
        self, identities: set[str], row: dict[str, Any], store: Store, key: str, finished: Mapping[str, Any],
        failures: set[str], running: bool,
    ) -> None:  # fmt: skip
        state = "done" if key in finished else "failed" if key in failures else "in line" if running else "waiting"

        def read() -> dict[str, Any]:
            if state == "failed":
                try:
                    return {"status": state, "note": store.failure(key)["error"]}
                except BasinscopeError as error:
                    return {"status": state, "note": str(error)}
            if state != "done":
                return {"status": state}
            record = store.record(key)
            table, _ = store.contents(record)
            values = {**record["config"], **latest(table.to_pylist()), "seconds": record["seconds"]}
            return {"status": state, "updated": record["finished"], "values": shown_values(values)}

        load = partial(_job_detail, store, key) if state == "done" else Detail
        self._note(identities, row, (state, finished.get(key), running), read, load)


def _cause(error: Exception) -> str:
    expected = isinstance(error, (BasinscopeError, Damaged, OSError))
    return str(error) if expected else f"it cannot be read ({type(error).__name__}: {error})"


def _finished(store: Store) -> dict[str, Any]:
    return {key: tuple(stamp) for name, stamp in store.results().items() if (key := recorded_key(name)) is not None}


def _progress(status: Status) -> dict[str, Any]:
    alive = status.driver is not None and bool(status.driver["alive"])
    return {
        "study": status.study,
        "title": status.title,
        "scale": status.scale,
        "done": status.done,
        "total": status.total,
        "failed": len(status.failed),
        "running": alive,
        "left": (status.driver or {}).get("left") if alive else None,
    }


def _identity(kind: str, place: str) -> str:
    return hashlib.sha256(f"{kind}:{place}".encode("utf-8", "surrogateescape")).hexdigest()[:20]


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        info = file.stat()
    except OSError:
        return None
    return info.st_size, info.st_mtime_ns


def _rows_of(file: Path) -> list[dict[str, Any]]:
    header = training_header(file)
    return [] if header is None else [dict(row) for row in header["rows"]]


def _report_detail(file: Path) -> Detail:
    report = Report.load(file)
    return Detail([dict(row) for row in report.history], report)


def _job_detail(store: Store, key: str) -> Detail:
    result = store.load(key)
    trace = result.arrays.get("trace")
    usable = trace is not None and getattr(trace, "ndim", 0) == 2
    return Detail([dict(row) for row in result.rows], None, trace.tolist() if usable and trace is not None else None)
