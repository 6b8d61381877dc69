"""How far the studies of a store are, from its files alone: no study is loaded, nothing is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import InputError, StoreError
from ..foreign import parsed
from .index import Index
from .lease import driver
from .store import Store

_LATEST = 4e9  # seconds since 1970 that are still a date


@dataclass(frozen=True)
class Status:
    """How far one study at one choice of settings is.

    Attributes:
        study: its name.
        title: in one line.
        scale: that was asked for.
        settings: that were asked for.
        asked: when.
        total: jobs.
        done: those stored.
        failed: error by label, of jobs whose last attempt failed.
        seconds: computing time behind the stored results.
        driver: what the driver last told if it is at this study; `alive` says whether it still runs.
    """

    study: str
    title: str
    scale: str
    settings: Mapping[str, Any]
    asked: float
    total: int
    done: int
    failed: Mapping[str, str]
    seconds: float
    driver: Mapping[str, Any] | None


def statuses(store: Store, name: str | None = None) -> list[Status]:
    """The studies that were ever run in a store, the latest last.

    Examples:
        >>> from basinscope.runs.driver import run
        >>> from basinscope.runs.sweep import Sweep
        >>> sweep = Sweep("cubes", lambda x: {"cube": x**3}, {"grid": {"x": [1, 2, 3]}})
        >>> _ = run(sweep, "memory://example-status")
        >>> [(status.done, status.total) for status in statuses(Store("memory://example-status"))]
        [(3, 3)]
    """
    if not store.head:
        raise InputError(
            f"there is no store at {store.url!r} yet — start one with `basinscope study run`, or name --store"
        )
    index = Index(store, readonly=True)
    try:
        finished = index.finished()
    finally:
        index.close()
    failed, running = store.failed() - finished.keys(), driver(store.files)
    rows = []
    manifests = [asked for asked in manifests_in(store) if name in (None, asked["study"])]
    for asked in sorted(manifests, key=lambda manifest: manifest["asked"]):
        mine = [key for key, _ in asked["jobs"] if key in finished]
        entries = [entry for key in mine if (entry := finished[key]) is not None]
        rows.append(
            Status(
                asked["study"],
                asked["title"],
                asked["scale"],
                asked["settings"],
                asked["asked"],
                len(asked["jobs"]),
                len(mine),
                {label: _error(store, key) for key, label in asked["jobs"] if key in failed},
                sum(entry.seconds for entry in entries),
                None,
            )
        )
    if running is not None:
        latest = max((n for n, row in enumerate(rows) if row.study == running.get("study")), default=None)
        if latest is not None:
            rows[latest] = Status(**{**vars(rows[latest]), "driver": running})
    return rows


def _error(store: Store, key: str) -> str:
    try:
        return str(store.failure(key)["error"])
    except InputError as error:
        return str(error)


def last_asked(store: Store, name: str) -> dict[str, Any] | None:
    """What was last asked of a study in a store; None when nothing was."""
    manifests = [manifest for manifest in manifests_in(store) if manifest["study"] == name]
    return max(manifests, key=lambda manifest: float(manifest["asked"]), default=None)


def manifests_in(store: Store) -> list[dict[str, Any]]:
    """What was asked of a store: studies with their settings and lists of jobs; unreadable ones are left out."""
    manifests = []
    for name in store.files.listed("studies"):
        try:
            manifest = parsed(store.files.read(name))
        except (ValueError, OSError, StoreError):
            continue  # the next run writes it anew
        if _is_manifest(manifest):
            manifests.append(manifest)
    return manifests


def _is_manifest(content: Any) -> bool:
    """Whether somebody's file has what `write_manifest` writes."""
    if not isinstance(content, dict) or not isinstance(content.get("settings"), dict):
        return False
    texts = all(isinstance(content.get(name), str) for name in ("study", "title", "scale"))
    asked, jobs = content.get("asked"), content.get("jobs")
    when = isinstance(asked, (int, float)) and 0 <= asked < _LATEST
    return texts and when and isinstance(jobs, list) and all(map(_is_job, jobs))


def _is_job(content: Any) -> bool:
    return isinstance(content, list) and len(content) == 2 and all(isinstance(part, str) for part in content)
