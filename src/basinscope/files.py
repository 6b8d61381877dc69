"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from .errors import InputError


@contextmanager
def whole_file(path: str | os.PathLike[str], *, part: str = "", flush: bool = True) -> Iterator[BinaryIO]:
    """A file to write, which takes its name when the block has ended: a reader sees the old content or the new.

    Folders on the way are made. What the system says, such as a full disk, is raised as it is, and leaves nothing.

    Args:
        path: the name. A link, a device or anything else that is no regular file is refused, rather than replaced.
        part: name of the unfinished file, in the same folder; the name with `.part` unless given. One name means that
            what a killed writer left is overwritten; writers of one file at the same time need names of their own.
        flush: whether content and name are on the disk when this returns, so that a power cut cannot lose them.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with whole_file(Path(folder) / "deeper" / "a.txt") as file:
        ...         _ = file.write(b"text")
        ...     (Path(folder) / "deeper" / "a.txt").read_bytes()
        b'text'
    """
    path = Path(path)
    _refuse_irregular(path)
    unfinished = path.with_name(part or f"{path.name}.part")
    try:
        with _opened(unfinished) as file:
            yield file
            if flush:
                file.flush()
                os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise
    if flush:
        _flush_folder(path.parent)


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file so that it is there whole or not at all; an error says where it could not be written, and why."""
    try:
        with whole_file(path) as file:
            file.write(data)
    except OSError as error:
        raise InputError(f"cannot write {os.fspath(path)}: {error.strerror or error} — choose another place") from error


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("wb")
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("wb")


def _refuse_irregular(path: Path) -> None:
    """Renaming a file onto /dev/null would replace the device, and onto a link the link."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return  # not there, or out of reach: opening it says more
    if not stat.S_ISREG(mode):
        kind = "link" if stat.S_ISLNK(mode) else "folder" if stat.S_ISDIR(mode) else "device or pipe"
        raise InputError(f"{path} is a {kind}: expected a regular file or a new name — choose another name")


def _flush_folder(folder: Path) -> None:
    """Make the new name itself last through a power cut, where the system can."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
