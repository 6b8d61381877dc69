"""What a job is given to work with: a place for partial work, and how long it may take."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ..errors import InputError
from .codec import decode_arrays, encode_arrays
from .files import Files, cache_folder
from .identity import checksum

_DIGEST = 64


class Unfinished(Exception):
    """Raised by a job that stops because its time is up: the next run goes on from what it has saved."""


class Scratch:
    """What a job or population keeps of its unfinished work; removed when its results are stored.

    Args:
        files: where it is kept.
        key: of the unit of work.
        seconds: for which the job may run.
        wanted: places of the members whose results are wanted, where others are stored already.

    Examples:
        >>> scratch = Scratch(Files("memory://example-scratch"), "job")
        >>> scratch.load() is None
        True
        >>> scratch.save({"step": 3, "weights": [1.0, 2.0]})
        >>> int(scratch.load()["step"])
        3
    """

    def __init__(self, files: Files, key: str, seconds: float = math.inf, wanted: Collection[int] = (0,)) -> None:
        self._files = files
        self._place = f"scratch/{key}"
        self._until = time.monotonic() + seconds
        self.wanted = frozenset(wanted)

    @property
    def seconds_left(self) -> float:
        """For how long the job may still run; a job that would take longer saves its work and raises `Unfinished`."""
        return self._until - time.monotonic()

    @property
    def folder(self) -> Path:
        """A folder for whatever writes its own checkpoints, such as `training.train(..., folder=scratch.folder)`.

        In the store where that is a folder itself, else in this machine's cache: there, only this machine can go on.
        """
        home = self._home()
        home.mkdir(parents=True, exist_ok=True)
        return home

    def save(self, state: Mapping[str, Any]) -> None:
        """Keep arrays, tensors or numbers by name in place of the state before; atomic, and in any kind of store."""
        if not state:
            raise InputError("a state to save must hold at least one array, got none")
        data = encode_arrays(state)
        self._files.write(self._name, checksum(data).encode() + data)

    def load(self) -> dict[str, Any] | None:
        """What was saved last, as numpy arrays; None when there is nothing, or nothing sound."""
        try:
            content = self._files.read(self._name)
        except FileNotFoundError:
            return None
        data = content[_DIGEST:]
        return decode_arrays(data) if checksum(data).encode() == content[:_DIGEST] else None

    def clear(self) -> None:
        """Remove everything."""
        self._files.remove(self._name)
        shutil.rmtree(self._home(), ignore_errors=True)

    @property
    def _name(self) -> str:
        return f"{self._place}/state"

    def _home(self) -> Path:
        return (self._files.folder or cache_folder(self._files.url)) / self._place
