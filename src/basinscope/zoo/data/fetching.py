"""Download data sets: resumed where they broke off, checked by hash, never half a file in the place of a whole one."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...errors import BasinscopeError
from ...progress import Report, tracked
from .catalogue import File, Source, data_folder, md5, source_of

_CHUNK_BYTES = 2**18
_MAX_SILENT_SECONDS = 30.0


def fetch(name: str, folder: str | Path | None = None, *, progress: bool = True) -> list[Path]:
    """Bring the official files of a data set into `folder/name` (see `load` for the folder), and return their paths.

    Files that are there with the right hash stay. An interrupted download leaves `FILE.part` and goes on from there
    the next time; a file appears under its own name only once its hash is right. Needs `pip install basinscope[data]`.
    """
    source = source_of(name)
    place = data_folder(folder) / source.name
    missing = [file for file in source.files if not _complete(place / file.name, file)]
    if missing:
        pooch = _pooch()
        try:
            place.mkdir(parents=True, exist_ok=True)
            with tracked(f"fetching {source.name}", progress) as report:
                for file in missing:
                    _fetch(pooch, source, file, place, report)
        except (PermissionError, FileExistsError, NotADirectoryError) as error:
            raise BasinscopeError(
                f"{place} cannot be written to ({error.strerror}) — pass --folder, or point BASINSCOPE_DATA elsewhere"
            ) from error
    return [place / file.name for file in source.files]


def _complete(path: Path, file: File) -> bool:
    return path.is_file() and md5(path) == file.md5


def _pooch() -> Any:
    try:
        import pooch
    except ImportError:
        raise BasinscopeError(
            "downloading data needs pooch, which is not installed — pip install 'basinscope[data]'"
        ) from None
    return pooch


def _fetch(pooch: Any, source: Source, file: File, place: Path, report: Report) -> None:
    """Fetch one file, from the first of its addresses that serves the right bytes."""
    failures = []
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        for url in file.urls:
            part = place / f"{file.name}.part"
            resumed = part.is_file()
            # A part that was begun from other bytes spoils the whole: then once more from the start.
            for _ in range(2 if resumed else 1):
                try:
                    pooch.retrieve(
                        url=url,
                        known_hash=f"md5:{file.md5}",
                        fname=file.name,
                        path=place,
                        downloader=resuming(part, file, report),
                    )
                    return
                except ValueError as error:  # pooch's word for a wrong hash
                    failures.append(f"{url}: {error}")
                except OSError as error:
                    if isinstance(error, PermissionError):
                        raise
                    failures.append(f"{url}: {error}")
                    break
    finally:
        logger.setLevel(level)
    raise BasinscopeError(
        f"{source.name}: {file.name} could not be fetched — {'; '.join(failures)} — run the command again to go on "
        f"where it stopped, or put the file into {place} yourself"
    )


def resuming(part: Path, file: File, report: Report) -> Callable[[str, Any, Any], None]:
    """A downloader for pooch that keeps what it has in `part` and asks the server only for the rest."""

    def download(url: str, output: Any, manager: Any) -> None:
        import requests

        done = part.stat().st_size if part.is_file() else 0
        headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={done}-"} if done else {})}
        with requests.get(url, headers=headers, stream=True, timeout=_MAX_SILENT_SECONDS) as answer:
            if answer.status_code == 416:  # there is nothing after what we have
                os.replace(part, output)
                return
            answer.raise_for_status()
            if answer.status_code != 206:
                done = 0  # the server sends the whole
            length = answer.headers.get("Content-Length")
            expected = None if length is None else done + int(length)
            with part.open("r+b" if done else "wb") as stream:
                stream.seek(done)
                stream.truncate()
                try:
                    for chunk in answer.raw.stream(_CHUNK_BYTES, decode_content=False):
                        stream.write(chunk)
                        done += len(chunk)
                        report(done / (expected or file.megabytes * 1e6), f"{file.name} {done / 1e6:.0f} MB")
                except Exception as error:  # urllib3 has exceptions of its own for every way a connection ends
                    raise ConnectionError(f"the connection broke after {done:,} bytes ({error})") from error
        if expected is not None and done != expected:
            raise ConnectionError(f"the connection broke after {done:,} of {expected:,} bytes")
        os.replace(part, output)

    return download
