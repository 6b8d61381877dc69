"""Files of a store: a local folder, or any path that fsspec knows (`s3://…`, `gs://…`, `memory://…`)."""

from __future__ import annotations

import errno
import os
import queue
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import fsspec
from fsspec.implementations.local import LocalFileSystem

from ..errors import InputError, StoreError
from ..files import whole_file
from ..foreign import opened
from .identity import checksum

_TEMPORARY = ".part-"
_STALE = 3600.0  # seconds after which an unfinished file has no writer any more
_FLUSH = 1.0  # seconds for which files gather before they are flushed to disk
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


class Stamp(NamedTuple):
    """A file's size and what else its file system tells cheaply of its content: a time or an entity tag."""

    size: int
    tag: str = ""

    def matches(self, other: Stamp) -> bool:
        """Whether both can belong to the same content; an unknown tag matches any.

        Examples:
            >>> Stamp(3, "a").matches(Stamp(3)), Stamp(3, "a").matches(Stamp(3, "b"))
            (True, False)
        """
        return self.size == other.size and (not self.tag or not other.tag or self.tag == other.tag)


class Files:
    """Whole files under one root, by names with forward slashes.

    `write` is atomic: a reader sees the old content or the new, whatever dies in between. On a local disk the content
    is flushed soon after. Object stores replace whole objects anyway.

    Examples:
        >>> files = Files("memory://example-files")
        >>> _ = files.write("a/b.txt", b"text")
        >>> files.read("a/b.txt"), sorted(files.listed("a"))
        (b'text', ['a/b.txt'])
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        self.url = os.fspath(url)
        try:
            self._system, self._root = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            raise InputError(f"store {self.url!r} cannot be opened: {error}") from error
        self.folder = Path(self._root) if type(self._system) is LocalFileSystem else None
        if self.folder is not None:
            self.url = str(self.folder)  # absolute: a worker may start elsewhere

    @property
    def private(self) -> bool:
        """Whether other processes cannot see these files."""
        return "memory" in _protocols(self._system)

    def write(self, name: str, data: bytes, *, durable: bool = True) -> Stamp:
        """Put `data` in place of whatever `name` held; `durable=False` spares the flush to disk."""
        with self._explained("write", name):
            if self.folder is None:
                self._system.pipe_file(self._path(name), data)
                return Stamp(len(data))
            return _write_local(self._inside(name), data, durable)

    def read(self, name: str) -> bytes:
        """The content; FileNotFoundError when there is none."""
        with self._explained("read", name):
            if self.folder is not None:
                with opened(self._inside(name)) as file:
                    return file.read()
            content: bytes = self._system.cat_file(self._path(name))
            return content

    def exists(self, name: str) -> bool:
        with self._explained("read", name):
            if self.folder is not None:
                return self._inside(name).exists()
            return bool(self._system.exists(self._path(name)))

    def listed(self, folder: str) -> dict[str, Stamp]:
        """All files below `folder`, with their stamps."""
        with self._explained("list", folder):
            if self.folder is not None:
                return dict(_walk(self._inside(folder), folder))
            self._system.invalidate_cache()
            try:
                listing = self._system.find(self._path(folder), detail=True)
            except FileNotFoundError:
                return {}
            start = len(self._path("").rstrip("/")) + 1
            return {path[start:]: _stamp(info) for path, info in listing.items()}

    def move(self, name: str, target: str) -> None:
        with self._explained("move", name):
            if self.folder is None:
                self._system.mv(self._path(name), self._path(target))
                return
            aside = self._inside(target)
            aside.parent.mkdir(parents=True, exist_ok=True)
            os.replace(self._inside(name), aside)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with self._explained("remove", name), suppress(FileNotFoundError):
            if self.folder is not None:
                self._inside(name).unlink()
            else:
                self._system.rm_file(self._path(name))

    def sweep(self) -> None:
        """Remove what writers that died long ago left unfinished."""
        if self.folder is None:
            return
        for path in self.folder.rglob(f"{_TEMPORARY}*"):
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > _STALE:
                    path.unlink()

    def _inside(self, name: str) -> Path:
        """Where a file of a local store is; refused where a name or a link leads out of the store."""
        assert self.folder is not None
        path = self.folder / name
        if "\0" in name or ".." in path.parts or not _real(path).is_relative_to(_real(self.folder)):
            raise StoreError(f"{name!r} leads out of store {self.url!r} — choose another name, or remove the link")
        return path

    def _path(self, name: str) -> str:
        if ".." in name.split("/"):
            raise StoreError(f"{name!r} leads out of store {self.url!r} — choose another name")
        return f"{self._root}/{name}".replace("//", "/") if name else str(self._root)

    @contextmanager
    def _explained(self, action: str, name: str) -> Iterator[None]:
        """Turns what the system says into an error that says what to do."""
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            what = f"cannot {action} {name!r} in store {self.url!r}"
            if error.errno in _FULL:
                raise StoreError(f"{what}: no space left — free some and run the same command again") from error
            if error.errno in _FORBIDDEN or isinstance(error, PermissionError):
                raise StoreError(f"{what}: no permission — change it, or choose another folder with --store") from error
            raise StoreError(f"{what}: {error} — is the path a folder, and reachable?") from error


def cache_folder(url: str) -> Path:
    """Where this machine keeps what belongs to a store elsewhere."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "basinscope" / checksum(url.encode())[:16]


def _write_local(path: Path, data: bytes, durable: bool) -> Stamp:
    with whole_file(path, part=f"{_TEMPORARY}{uuid.uuid4().hex}", flush=False) as file:
        file.write(data)
        file.flush()
        status = os.fstat(file.fileno())
    if durable:
        _flusher().put(path)
    return Stamp(status.st_size, str(status.st_mtime_ns))


@cache
def _flusher() -> queue.SimpleQueue[Path]:
    """Takes paths of files to be flushed to disk: in the background and together, since each flush stalls all writers.

    What a power cut comes in time to lose has a checksum that does not fit, and is computed again.
    """
    waiting: queue.SimpleQueue[Path] = queue.SimpleQueue()

    def flush() -> None:
        while True:
            if waiting.empty():
                time.sleep(_FLUSH)
            with suppress(OSError):  # gone already, or a full disk that the next write meets
                file = os.open(waiting.get(), os.O_RDONLY)
                try:
                    os.fsync(file)
                finally:
                    os.close(file)

    threading.Thread(target=flush, daemon=True).start()
    return waiting


def _walk(folder: Path, name: str) -> Iterator[tuple[str, Stamp]]:
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path), f"{name}/{entry.name}")
        elif entry.is_file(follow_symlinks=False) and not entry.name.startswith(_TEMPORARY):
            with suppress(FileNotFoundError):
                status = entry.stat()
                yield f"{name}/{entry.name}", Stamp(status.st_size, str(status.st_mtime_ns))


def _stamp(info: dict[str, Any]) -> Stamp:
    tag = info.get("ETag") or info.get("etag") or info.get("LastModified") or info.get("mtime") or info.get("created")
    return Stamp(int(info["size"]), "" if tag is None else str(tag))


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _protocols(system: Any) -> tuple[str, ...]:
    named = system.protocol
    return (named,) if isinstance(named, str) else tuple(named)
