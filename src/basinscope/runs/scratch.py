"""Partial work of a long job, so that an interrupted one goes on where it was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import InputError
from .codec import decode_arrays, encode_arrays
from .files import Files
from .identity import checksum

_DIGEST = 64


class Scratch:
    """The last state that a job or population saved of itself; removed when its results are stored.

    Examples:
        >>> scratch = Scratch(Files("memory://example-scratch"), "job")
        >>> scratch.load() is None
        True
        >>> scratch.save({"step": 3, "weights": [1.0, 2.0]})
        >>> int(scratch.load()["step"])
        3
    """

    def __init__(self, files: Files, key: str) -> None:
        self._files = files
        self._name = f"scratch/{key}"

    def save(self, state: Mapping[str, Any]) -> None:
        """Keep arrays, tensors or numbers by name in place of the state before; atomic."""
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
        self._files.remove(self._name)
