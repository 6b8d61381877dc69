"""Results of single jobs out of a report's table, so that a published study can be continued from its report alone."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from basinscope.errors import InputError

Restored = tuple[Any, list[dict[str, Any]], float, dict[str, Any]]


def restored(jobs: Mapping[str, Any], report: Path) -> Iterator[Restored]:
    """Each of the jobs, given by their keys, that a report has a result of, with its rows, seconds and provenance.

    A row of the report's table belongs to the job whose settings it has.
    """
    import pyarrow.parquet as pq

    origins, table = _origins(report / "provenance.json"), report / "table.parquet"
    if not table.is_file():
        raise InputError(f"{table} is not there — copy the whole folder that `basinscope study report` wrote")
    by_part: dict[str, list[dict[str, Any]]] = {}
    for row in pq.read_table(table).to_pylist():
        by_part.setdefault(row["part"], []).append(row)
    for key, job in jobs.items():
        if key in origins:
            config, rows = job.config(), by_part[job.part]
            found = [name for name in rows[0] if name not in config and any(row[name] is not None for row in rows)]
            own = [row for row in rows if all(_same(row.get(name), value) for name, value in config.items())]
            yield job, [{name: row[name] for name in found} for row in own], *origins[key]


def _origins(path: Path) -> dict[str, tuple[float, dict[str, Any]]]:
    """Seconds and provenance by the job's key."""
    try:
        told: Iterable[dict[str, Any]] = json.loads(path.read_text())["origins"]
    except (FileNotFoundError, KeyError):
        raise InputError(
            f"{path} names no origins of results — expected what `basinscope study report` writes; one of an earlier "
            f"version has to be made anew from its store"
        ) from None
    return {key: (seconds, origin) for origin in told for key, seconds in origin.pop("jobs").items()}


def _same(cell: Any, value: Any) -> bool:
    """Whether a cell of the table holds a setting; whole numbers may have become floats on the way."""
    if isinstance(value, list):
        return isinstance(cell, list) and len(cell) == len(value) and all(map(_same, cell, value))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return isinstance(cell, (int, float)) and math.isclose(cell, value, rel_tol=1e-15)
    return bool(cell == value)
