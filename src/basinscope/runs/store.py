"""Store: results in files, addressed by what was asked. A result exists once its record does."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import PurePosixPath
from typing import Any

from .._version import __version__
from ..errors import InputError, StoreError
from ..foreign import parsed
from .codec import decode_arrays, decode_rows, encode_arrays, encode_rows
from .files import Files, Stamp
from .identity import canonical, checksum
from .scratch import Scratch
from .study import Result

# Each entry takes a store from one schema to the next, may be broken off at any point and started again.
MIGRATIONS: tuple[Callable[[Files], None], ...] = ()
_HEAD = "store.json"
_RESULTS = "results"
_FAILURES = "failures"
_ASIDE = "aside"


def schema() -> int:
    """The schema this version writes, and the newest it reads."""
    return 1 + len(MIGRATIONS)


class Damaged(Exception):
    """A result whose files are not what was written."""


@dataclass(frozen=True)
class Entry:
    """A stored result as the index remembers it."""

    key: str
    study: str
    seconds: float
    finished: float
    files: Mapping[str, Stamp]

    def plain(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "study": self.study,
            "seconds": self.seconds,
            "finished": self.finished,
            "files": {name: list(stamp) for name, stamp in self.files.items()},
        }

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Entry:
        files = {name: Stamp(*stamp) for name, stamp in data["files"].items()}
        return cls(data["key"], data["study"], data["seconds"], data["finished"], files)


class Store:
    """Results under a path. Nothing is ever overwritten by something else, and nothing damaged is ever returned.

    A result's table and arrays are written first, under names that hold a digest of their content; its record, which
    lists them with their checksums, comes last and makes the result exist. Writers may die or race at any point.

    ```
    store.json                        schema
    results/ab/<key>.json             record: config, provenance, files with checksums
    results/ab/<key>.<digest>.parquet, .safetensors
    failures/<key>.json               traceback of the last attempt
    studies/<name>/<digest>.json      what was asked for: settings and the list of jobs
    scratch/<key>/                    partial work of jobs in flight
    aside/                            damaged files, kept for inspection
    index.sqlite, driver.json         can be rebuilt, or do without
    ```

    Args:
        url: a folder, or any fsspec path.

    Examples:
        >>> store = Store("memory://example-store")
        >>> entry = store.save("a" * 40, "powers", {"base": 3}, Result([{"square": 9}]), {}, seconds=0.1)
        >>> store.load("a" * 40).rows
        [{'square': 9}]
    """

    def __init__(self, url: str | PathLike[str] = "runs") -> None:
        self.files = Files(url)

    @property
    def url(self) -> str:
        return self.files.url

    @cached_property
    def head(self) -> dict[str, Any]:
        """What `store.json` says; {} for a place where nothing is yet.

        Raises StoreError for a store that a newer version wrote, and for a folder that is no store.
        """
        try:
            head = dict(parsed(self.files.read(_HEAD)))
            written = head["schema"]
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"{_HEAD} in store {self.url!r} is damaged ({error}) — put back "
                f'{{"schema": {schema()}}} if the results are yours, or choose another --store'
            ) from error
        if not isinstance(written, int) or isinstance(written, bool) or not 1 <= written <= schema():
            raise StoreError(
                f"store {self.url!r} was written by basinscope {head.get('basinscope', 'unknown')} with schema "
                f"{written}; this is {__version__}, which reads up to {schema()} — upgrade basinscope, "
                f"or choose another --store"
            )
        return dict(head)

    def prepare(self) -> None:
        """Make the store ready for writing: new, or brought to the present schema. One driver at a time."""
        written = self.head.get("schema")
        if written is None and self.files.listed(_RESULTS):
            raise StoreError(
                f"{self.url!r} holds a folder {_RESULTS!r} but no {_HEAD} — it is no store of basinscope; choose "
                f"another --store"
            )
        for earlier in range(written or schema(), schema()):
            MIGRATIONS[earlier - 1](self.files)
            self._write_head(earlier + 1)
        if written is None:
            self._write_head(schema())
        self.__dict__.pop("head", None)
        self.files.sweep()

    def insist(self) -> None:
        """Whoever drives the store looks whether it is still there: somebody may delete it meanwhile.

        What its workers have written since then is sound, and a store again.
        """
        if not self.files.exists(_HEAD):
            self._write_head(schema())
            raise StoreError(
                f"store {self.url!r} was deleted while it was written, with the results in it — run the same command "
                f"again to compute them anew"
            )

    def _write_head(self, number: int) -> None:
        head = {"schema": number, "basinscope": __version__}
        self.files.write(_HEAD, json.dumps(head).encode())

    def save(
        self,
        key: str,
        study: str,
        config: Mapping[str, Any],
        result: Result,
        provenance: Mapping[str, Any],
        *,
        seconds: float,
    ) -> Entry:
        """Write a result; it exists, whole and for good, from the moment this returns."""
        parts = {"parquet": encode_rows(result.rows)}
        if result.arrays:
            parts["safetensors"] = encode_arrays(result.arrays)
        stamps: dict[str, Stamp] = {}
        listed = []
        for suffix, data in parts.items():
            digest = checksum(data)
            name = f"{_place(key)}.{digest[:12]}.{suffix}"
            stamps[name] = self.files.write(name, data)
            listed.append({"name": name, "sha256": digest})
        finished = time.time()
        record = {
            "schema": schema(),
            "key": key,
            "study": study,
            "config": dict(config),
            "provenance": dict(provenance),
            "seconds": seconds,
            "finished": finished,
            "files": listed,
        }
        sealed = json.dumps({**record, "digest": _seal(record)}, indent=1).encode()
        stamps[record_name(key)] = self.files.write(record_name(key), sealed)
        return Entry(key, study, seconds, finished, stamps)

    def record(self, key: str) -> dict[str, Any]:
        """A result's record; Damaged unless it is what was written."""
        try:
            content: dict[str, Any] = parsed(self.files.read(record_name(key)))
            digest = content.pop("digest")
        except (ValueError, KeyError, TypeError, AttributeError, FileNotFoundError) as error:
            raise Damaged(f"its record cannot be read: {error}") from error
        if not _is_record(content, key) or digest != _seal(content):
            raise Damaged("its record is not what was written")
        return content

    def load(self, key: str) -> Result:
        """A result, every byte checked; Damaged unless it is what was written."""
        table, arrays = self.contents(self.record(key))
        return Result(table.to_pylist(), arrays)

    def contents(self, record: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The Arrow table and the arrays that a record lists, every byte checked."""
        parts = {PurePosixPath(part["name"]).suffix: self._checked(part) for part in record["files"]}
        try:
            arrays = decode_arrays(parts[".safetensors"]) if ".safetensors" in parts else {}
            return decode_rows(parts[".parquet"]), arrays
        except Exception as error:  # the checksums fit: somebody else wrote a record for a file that is no such
            raise Damaged(f"its files cannot be read: {type(error).__name__}: {error}") from error

    def verified(self, key: str, listing: Mapping[str, Stamp]) -> Entry:
        """The index entry of a result whose every byte was checked; `listing` has the files' stamps."""
        record = self.record(key)
        for part in record["files"]:
            self._checked(part)
        names = [record_name(key), *(part["name"] for part in record["files"])]
        try:
            stamps = {name: listing[name] for name in names}
        except KeyError as error:
            raise Damaged(f"{error} is missing") from error
        return Entry(key, record["study"], record["seconds"], record["finished"], stamps)

    def _checked(self, part: Mapping[str, Any]) -> bytes:
        try:
            data = self.files.read(part["name"])
        except FileNotFoundError as error:
            raise Damaged(f"{part['name']} is missing") from error
        if checksum(data) != part["sha256"]:
            raise Damaged(f"{part['name']} is not what was written")
        return data

    def set_aside(self, key: str) -> str:
        """Move all files of a damaged result out of the way; the folder they are in now."""
        folder = f"{_ASIDE}/{key}-{time.time_ns()}"
        for name in self.files.listed(str(PurePosixPath(record_name(key)).parent)):
            if PurePosixPath(name).name.startswith(key):
                self.files.move(name, f"{folder}/{PurePosixPath(name).name}")
        return folder

    def results(self) -> dict[str, Stamp]:
        """All files of all results."""
        return self.files.listed(_RESULTS)

    def fail(self, key: str, study: str, config: Mapping[str, Any], error: str, traceback: str) -> None:
        """Keep why a job failed, for `status`; the next run tries it again."""
        content = {"key": key, "study": study, "config": dict(config), "error": error, "traceback": traceback}
        self.files.write(f"{_FAILURES}/{key}.json", json.dumps(content, indent=1).encode(), durable=False)

    def forgive(self, key: str) -> None:
        """Forget an earlier failure."""
        self.files.remove(f"{_FAILURES}/{key}.json")

    def failed(self) -> set[str]:
        """Keys of the jobs whose last attempt failed."""
        return {PurePosixPath(name).stem for name in self.files.listed(_FAILURES)}

    def failure(self, key: str) -> dict[str, Any]:
        """Config, error and traceback of a failed job."""
        try:
            content = dict(parsed(self.files.read(f"{_FAILURES}/{key}.json"), finite=False))
            texts = {name: str(content[name]) for name in ("error", "traceback")}
            return {**content, **texts, "config": dict(content["config"])}
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise InputError(f"there is no record of a failure of job {key} ({error})") from error

    def failures(self) -> Iterator[dict[str, Any]]:
        """Config, error and traceback of all failed jobs."""
        return (self.failure(key) for key in sorted(self.failed()))

    def scratch(self, key: str, until: float = math.inf, wanted: Collection[int] = (0,)) -> Scratch:
        return Scratch(self.files, key, until, wanted)


def record_name(key: str) -> str:
    """Where a result's record is."""
    return f"{_place(key)}.json"


def recorded_key(name: str) -> str | None:
    """The key of the result whose record `name` is; None for other files."""
    file = name.rpartition("/")[2]
    return file.removesuffix(".json") if file.endswith(".json") else None


def _place(key: str) -> str:
    return f"{_RESULTS}/{key[:2]}/{key}"


def _is_record(content: Any, key: str) -> bool:
    """Whether somebody's record of a result has what `save` writes, and names no files but the result's own."""
    if not isinstance(content, dict) or content.get("key") != key or not isinstance(content.get("study"), str):
        return False
    numbers = all(isinstance(content.get(name), (int, float)) for name in ("seconds", "finished"))
    mappings = all(isinstance(content.get(name), dict) for name in ("config", "provenance"))
    files = content.get("files")
    named = isinstance(files, list) and all(
        isinstance(part, dict)
        and isinstance(part.get("sha256"), str)
        and isinstance(part.get("name"), str)
        and part["name"].startswith(f"{_place(key)}.")
        and "/" not in part["name"].removeprefix(f"{_place(key)}.")
        for part in files
    )
    return numbers and mappings and named and any(part["name"].endswith(".parquet") for part in files or ())


def _seal(record: Mapping[str, Any]) -> str:
    return checksum(canonical(record).encode())
