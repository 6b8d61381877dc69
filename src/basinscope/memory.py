"""Too little memory, in words: how much was asked for, how much is free, and how much is missing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import InputError

_UNITS = {"byte": 1, "bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE = rf"([\d.]+) ({'|'.join(sorted(_UNITS, key=len, reverse=True))})"
_ASKED = re.compile(rf"(?:tried to allocate|unable to allocate) {_SIZE}", re.IGNORECASE)
_FREE = re.compile(rf"of which {_SIZE} is free")


@contextmanager
def memory_explained() -> Iterator[None]:
    """Turns what an allocator raises into a sentence that says what is missing.

    Examples:
        >>> with memory_explained():
        ...     raise MemoryError("Unable to allocate 3.00 TiB for an array")
        Traceback (most recent call last):
        ...
        basinscope.errors.InputError: memory does not suffice: 3,300 GB were asked for...
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        raise InputError(
            f"memory does not suffice{shortage(error)} — lower chains, batch_size or memory where the call takes them, "
            f"or measure part of the weights by land.restrict(…) or of the data by land.subset(…)"
        ) from error


def out_of_memory(error: BaseException) -> bool:
    """Whether an error is that of an allocator: Python's, NumPy's, or torch's on any device."""
    return isinstance(error, MemoryError) or _of_a_device(error) or "DefaultCPUAllocator" in str(error)


def _of_a_device(error: BaseException) -> bool:
    """Whether it is torch's own error, of a GPU: torch need not be loaded to know."""
    return type(error).__name__ == "OutOfMemoryError"


def shortage(error: BaseException) -> str:
    """What an allocator's error says of sizes, to be put behind a sentence; empty where it says nothing.

    Examples:
        >>> import torch
        >>> shortage(torch.OutOfMemoryError("Tried to allocate 2.00 GiB. GPU 0 has 8 GiB of which 512.00 MiB is free."))
        ': 2.1 GB were asked for and 0.54 GB are free, so that 1.6 GB are missing'
        >>> shortage(MemoryError())
        ''
    """
    asked, free = _bytes(_ASKED, str(error)), _bytes(_FREE, str(error))
    if asked is None:
        return ""
    if free is None and not _of_a_device(error):
        free = _free()
    told = f": {_gigabytes(asked)} were asked for"
    if free is None:
        return told
    if asked <= free:
        return f"{told} at once, and {_gigabytes(free)} are free but not to be had, in pieces or beyond a limit"
    return f"{told} and {_gigabytes(free)} are free, so that {_gigabytes(asked - free)} are missing"


def _bytes(pattern: re.Pattern[str], text: str) -> float | None:
    found = pattern.search(text)
    return None if found is None else float(found[1]) * _UNITS[found[2]]


def _free() -> float | None:
    """Bytes that this machine could give, where it says so."""
    try:
        told = re.search(r"^MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        return None
    return None if told is None else 1024.0 * float(told[1])


def _gigabytes(size: float) -> str:
    return f"{float(f'{size / 1e9:.2g}'):,.12g} GB"
