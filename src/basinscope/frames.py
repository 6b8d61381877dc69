"""Rows as a pandas table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .errors import InputError


def dataframe(rows: Sequence[Mapping[str, Any]]) -> Any:
    """A pandas table with a row for each mapping; pandas comes with an extra.

    Examples:
        >>> dataframe([{"llc": 2.5}, {"llc": 3.0}])["llc"].tolist()
        [2.5, 3.0]
    """
    try:
        import pandas
    except ModuleNotFoundError:
        raise InputError("tables need pandas, which is not installed — pip install 'basinscope[tables]'") from None
    return pandas.DataFrame.from_records(list(rows))
