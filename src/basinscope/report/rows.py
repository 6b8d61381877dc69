"""Rows of the live page as plain values: finite numbers and short texts, whatever files of others hold."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

_TEXT = 300  # characters of a value that a table shows
_LATEST = 4e9  # seconds since 1970 that are still a date
_LARGEST = 2**53  # of whole numbers that a browser keeps


def clean(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row that every page can show and JSON can hold.

    Examples:
        >>> clean({"name": ["x"], "updated": 1e300, "values": {"a": float("nan")}})
        {'name': '["x"]', 'values': {'a': 'nan'}}
    """
    plain = {name: shown(value) or "" for name, value in row.items() if name not in ("updated", "values")}
    updated = row.get("updated")
    if isinstance(updated, (int, float)) and 0 <= updated <= _LATEST:
        plain["updated"] = float(updated)
    values = row.get("values")
    return {**plain, "values": shown_values(values if isinstance(values, Mapping) else {})}


def latest(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The last known value of every column: a measurement is not made at every row."""
    values: dict[str, Any] = {}
    for row in rows:
        values |= {name: value for name, value in row.items() if value is not None}
    return values


def shown_values(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a table can show, as JSON has it."""
    return {_text(name): plain for name, value in row.items() if (plain := shown(value)) is not None}


def shown(value: Any) -> Any:
    """A finite number or a short text; None for None."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return value if abs(value) <= _LARGEST else f"{value:.6e}" if abs(value) < 10**300 else "beyond 1e300"
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return _text(value)


def _text(value: Any) -> str:
    try:
        text = value if isinstance(value, str) else json.dumps(value, default=str)
    except (ValueError, TypeError, RecursionError):
        text = f"a {type(value).__name__}"
    return text[:_TEXT].encode("utf-8", "replace").decode()
