"""Download data sets: resumed where they broke off, checked by hash, never half a file in the place of a whole one."""

from __future__ import annotations

import os
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
        requests = _requests()
        try:
            place.mkdir(parents=True, exist_ok=True)
            with tracked(f"fetching {source.name}", progress) as report:
                for file in missing:
                    _fetch(requests, source, file, place, report)
        except (PermissionError, FileExistsError, NotADirectoryError) as error:
            raise BasinscopeError(
                f"{place} cannot be written to ({error.strerror}) — pass --folder, or point BASINSCOPE_DATA elsewhere"
            ) from error
    return [place / file.name for file in source.files]


def _complete(path: Path, file: File) -> bool:
    return path.is_file() and md5(path) == file.md5


def _requests() -> Any:
    try:
        import requests
    except ImportError:
        raise BasinscopeError(
            "downloading data needs requests, which is not installed — pip install 'basinscope[data]'"
        ) from None
    return requests


def _fetch(requests: Any, source: Source, file: File, place: Path, report: Report) -> None:
    """Fetch one file, from the first of its addresses that serves the right bytes."""
    failures = []
    part = place / f"{file.name}.part"
    for url in file.urls:
        # A part that was begun from other bytes spoils the whole: then once more from the start.
        for _ in range(2 if part.is_file() else 1):
            try:
                _download(requests, url, part, file, report)
            except PermissionError:
                raise
            except OSError as error:
                failures.append(f"{url}: {error}")
                break
            digest = md5(part)
            if digest == file.md5:
                os.replace(part, place / file.name)
                return
            part.unlink()
            failures.append(f"{url}: its md5 is {digest}, expected {file.md5}")
    raise BasinscopeError(
        f"{source.name}: {file.name} could not be fetched — {'; '.join(failures)} — run the command again to go on "
        f"where it stopped, or put the file into {place} yourself"
    )


def _download(requests: Any, url: str, part: Path, file: File, report: Report) -> None:
    """Bring the rest of a file into `part`, asking the server only for what is not there yet."""
    done = part.stat().st_size if part.is_file() else 0
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={done}-"} if done else {})}
    with requests.get(url, headers=headers, stream=True, timeout=_MAX_SILENT_SECONDS) as answer:
        if answer.status_code == 416:  # there is nothing after what we have
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
