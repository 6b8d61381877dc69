"""One driver at a time on a store, and what it tells the others while it runs."""

from __future__ import annotations

import json
import os
import platform
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from filelock import FileLock, Timeout

from ..errors import StoreError
from ..foreign import parsed
from .files import Files

_NAME = "driver.json"
_EVERY = {True: 0.5, False: 10.0}  # seconds between heartbeats, local or remote
_UNKNOWN = {"study": "", "host": "", "process": 0, "running": 0, "on": "", "left": None}  # of a heartbeat that lacks it
STALE = 60.0  # seconds of silence after which a driver counts as dead


class Lease:
    """The right to drive a store, and a heartbeat that carries the driver's progress."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._progress: dict[str, Any] = {"host": platform.node(), "process": os.getpid(), "started": time.time()}
        self._ended = threading.Event()
        self._lock = threading.Lock()

    def tell(self, progress: Mapping[str, Any]) -> None:
        """What `status` will show with the next heartbeat."""
        self._progress = {**self._progress, **progress}

    def beat(self) -> None:
        with self._lock, suppress(StoreError, OSError):  # a full disk is the results' business
            if not self._ended.is_set():
                heartbeat = {**self._progress, "renewed": time.time()}
                self._files.write(_NAME, json.dumps(heartbeat).encode(), durable=False)

    def _keep_beating(self) -> None:
        while not self._ended.wait(_EVERY[self._files.folder is not None]):
            self.beat()

    def _end(self) -> None:
        with self._lock:
            self._ended.set()
            with suppress(StoreError, OSError):
                self._files.remove(_NAME)


@contextmanager
def driving(files: Files) -> Iterator[Lease]:
    """Hold the store as its only driver; StoreError when another one lives.

    On a local or shared disk a file lock decides, which the system releases whatever the driver dies of. Elsewhere
    the heartbeat does: a driver silent for a minute is taken for dead. Should two ever run at once, both write the
    same results under the same names: work is wasted, nothing is lost.
    """
    with _locked(files):
        lease = Lease(files)
        lease.beat()
        beating = threading.Thread(target=lease._keep_beating, daemon=True)
        beating.start()
        try:
            yield lease
        finally:
            lease._end()


@contextmanager
def _locked(files: Files) -> Iterator[None]:
    if files.folder is None:
        if (other := driver(files)) is not None and other["alive"]:
            raise _busy(files, other)
        yield
        return
    try:
        files.folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(files.folder / "driver.lock", timeout=0)
        lock.acquire()
    except Timeout:
        raise _busy(files, driver(files)) from None
    except PermissionError as error:
        raise StoreError(
            f"cannot write to store {files.url!r}: no permission — change it, or choose another folder with --store"
        ) from error
    except OSError as error:
        raise StoreError(f"cannot lock store {files.url!r}: {error} — is the path a folder, and writable?") from error
    try:
        yield
    finally:
        lock.release()


def driver(files: Files) -> dict[str, Any] | None:
    """What the store's driver last told, with `alive`; None when none has run or the last one ended well."""
    try:
        heartbeat = {**_UNKNOWN, **dict(parsed(files.read(_NAME)))}
        if not all(isinstance(heartbeat[name], type(value)) for name, value in _UNKNOWN.items() if value is not None):
            return None
        return {**heartbeat, "alive": time.time() - float(heartbeat["renewed"]) < STALE and not _dead(heartbeat)}
    except (FileNotFoundError, StoreError, ValueError, KeyError, TypeError, OverflowError):
        return None


def _dead(heartbeat: Mapping[str, Any]) -> bool:
    """Whether the driver was a process of this machine that is no more."""
    if heartbeat["host"] != platform.node() or os.name != "posix" or heartbeat["process"] <= 0:
        return False
    try:
        os.kill(heartbeat["process"], 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def _busy(files: Files, other: Mapping[str, Any] | None) -> StoreError:
    who = "another driver" if other is None else f"process {other['process']} on {other['host']}"
    return StoreError(
        f"store {files.url!r} is being written by {who} — follow it with `basinscope study status --watch`, wait for "
        f"it, or choose another --store"
    )
