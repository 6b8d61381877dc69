"""An sqlite index of a store's results: quick answers, and rebuilt from the files whenever it is lost or wrong."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ..foreign import parsed
from .files import Stamp, cache_folder
from .store import Damaged, Entry, Store, record_name, recorded_key

_LAYOUT = 1
_TABLE = """
CREATE TABLE results (
  key TEXT PRIMARY KEY, study TEXT NOT NULL, seconds REAL NOT NULL, finished REAL NOT NULL, files TEXT NOT NULL
) WITHOUT ROWID
"""


class Index:
    """What is known of the results of a store without opening their files.

    It lies beside a local store, in the user's cache folder for a remote one, and in memory where neither can be
    written. Only the driver writes it.

    Examples:
        >>> index = Index(Store("memory://example-index"))
        >>> len(index.entries())
        0
    """

    def __init__(self, store: Store, *, readonly: bool = False) -> None:
        self._store = store
        path = _place(store)
        self._open(":memory:" if path is None else str(path), readonly)

    def _open(self, path: str, readonly: bool) -> None:
        if path != ":memory:" and readonly:
            path = path if Path(path).exists() else ":memory:"
        self._readonly = readonly and path != ":memory:"
        self._database = sqlite3.connect(":memory:")
        try:
            self._connect(path)
        except sqlite3.OperationalError:  # no place to write, or somebody else's lock: do without
            self._connect(":memory:")
        except sqlite3.DatabaseError:  # damaged
            self.close()
            if not readonly:
                Path(path).unlink(missing_ok=True)
            self._connect(":memory:" if readonly else path)

    def _connect(self, path: str) -> None:
        self.close()
        if self._readonly and path != ":memory:":
            self._database = sqlite3.connect(f"{Path(path).as_uri()}?mode=ro", uri=True, timeout=5)
        else:
            self._database = sqlite3.connect(path, timeout=30, check_same_thread=False)
            self._database.execute("PRAGMA synchronous = OFF")  # it can be rebuilt
        (sound,) = self._database.execute("PRAGMA quick_check(1)").fetchone()
        if sound != "ok":
            raise sqlite3.DatabaseError(sound)
        (layout,) = self._database.execute("PRAGMA user_version").fetchone()
        if layout == _LAYOUT:
            return
        if self._readonly and path != ":memory:":
            self._database.close()
            self._database = sqlite3.connect(":memory:")
        with self._database:
            self._database.execute("DROP TABLE IF EXISTS results")
            self._database.execute(_TABLE)
            self._database.execute(f"PRAGMA user_version = {_LAYOUT}")

    def entries(self) -> dict[str, Entry]:
        """All entries by key; empty when the index turns out to be damaged."""
        try:
            rows = self._database.execute("SELECT key, study, seconds, finished, files FROM results").fetchall()
            return {row[0]: Entry(row[0], row[1], row[2], row[3], _stamps(row[4])) for row in rows}
        except (sqlite3.Error, ValueError, TypeError, AttributeError, OverflowError):
            return {}

    def add(self, entries: Iterable[Entry]) -> None:
        rows = [(entry.key, entry.study, entry.seconds, entry.finished, _text(entry)) for entry in entries]
        if rows:
            with suppress(sqlite3.DatabaseError), self._database:  # a full disk must not stop the run: files count
                self._database.executemany("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?)", rows)

    def discard(self, keys: Iterable[str]) -> None:
        with suppress(sqlite3.DatabaseError), self._database:
            self._database.executemany("DELETE FROM results WHERE key = ?", [(key,) for key in keys])

    def close(self) -> None:
        self._database.close()

    def refresh(self) -> tuple[dict[str, Entry], dict[str, str]]:
        """Bring the index in line with the files: sound entries by key, and why others were set aside.

        Results that the index does not know, or whose files have another size or time than it remembers, are read
        and checked byte by byte; damaged ones are moved to `aside/` and count as not done.
        """
        listing = self._store.results()
        remembered = self.entries()
        sound: dict[str, Entry] = {}
        fresh: list[Entry] = []
        aside: dict[str, str] = {}
        for key in filter(None, map(recorded_key, listing)):
            entry = remembered.get(key)
            if entry is not None and _unchanged(entry, listing):
                sound[key] = entry
                continue
            try:
                sound[key] = self._store.verified(key, listing)
                fresh.append(sound[key])
            except Damaged as reason:
                aside[key] = f"{reason}; moved to {self._store.set_aside(key)}"
        self.discard(key for key in remembered if key not in sound)
        self.add(fresh)
        return sound, aside

    def finished(self) -> dict[str, Entry | None]:
        """Keys of all results that have a record, with its entry if there is one; nothing is checked or written."""
        remembered = self.entries()
        return {key: remembered.get(key) for key in filter(None, map(recorded_key, self._store.results()))}


def _unchanged(entry: Entry, listing: dict[str, Stamp]) -> bool:
    return record_name(entry.key) in entry.files and all(
        name in listing and stamp.matches(listing[name]) for name, stamp in entry.files.items()
    )


def _place(store: Store) -> Path | None:
    if store.files.private:
        return None
    if store.files.folder is not None:
        return store.files.folder / "index.sqlite" if store.files.folder.is_dir() else None
    cache = cache_folder(store.url)
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return cache / "index.sqlite"


def _stamps(text: str) -> dict[str, Stamp]:
    return {name: Stamp(*stamp) for name, stamp in parsed(text).items()}


def _text(entry: Entry) -> str:
    return json.dumps({name: list(stamp) for name, stamp in entry.files.items()})
