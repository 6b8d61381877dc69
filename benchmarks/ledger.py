"""Rows of a benchmark in a CSV file, each added as soon as it is known: a run that is cut short loses none of them."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any, TypeVar

Row = TypeVar("Row")
_FROM_TEXT: dict[str, Any] = {"int": int, "float": float, "bool": "True".__eq__, "str": str}


def read(path: Path, kind: type[Row]) -> list[Row]:
    """The rows of a file, as dataclasses of that kind; none where there is no file.

    The last line may have been cut short by whatever ended the run: it is left out.
    """
    if not path.exists():
        return []
    names = {field.name: _FROM_TEXT[str(field.type)] for field in fields(kind)}  # type: ignore[arg-type]
    with path.open(newline="", encoding="utf-8") as file:
        whole = [columns for columns in csv.DictReader(file) if all(columns.get(name) is not None for name in names)]
    return [kind(**{name: convert(columns[name]) for name, convert in names.items()}) for columns in whole]


def add(path: Path, row: Any) -> None:
    """One row more, with a heading if it is the first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    if not new:
        _end_line(path)
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        if new:
            writer.writerow([field.name for field in fields(row)])
        writer.writerow(astuple(row))


def keep(path: Path, rows: Iterable[Any]) -> None:
    """All rows anew."""
    path.unlink(missing_ok=True)
    for row in rows:
        add(path, row)


def _end_line(path: Path) -> None:
    """Cut off what a run that was killed left of a line."""
    text = path.read_bytes()
    if text and not text.endswith(b"\n"):
        path.write_bytes(text[: text.rfind(b"\n") + 1])
