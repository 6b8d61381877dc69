"""Two trainings at one loss."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from basinscope.training import Run, matched

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]


def at_one_loss(first: pd.DataFrame, second: pd.DataFrame, on: str = "train_loss") -> tuple[Row, Row] | None:
    """The rows of two runs, interpolated in `on`, where the faster one had what the slower one ended with."""
    runs = {
        name: Run(None, None, known(rows), "finished", "", 0, 0.0)  # type: ignore[arg-type]
        for name, rows in (("first", first), ("second", second))
    }
    table = matched(runs, [max(rows[on].iloc[-1] for rows in (first, second))], on=on)
    by_name = {row["run"]: row for row in table.to_dict("records")}
    return (by_name["first"], by_name["second"]) if len(by_name) == 2 else None


def known(rows: pd.DataFrame) -> list[Row]:
    """The rows of a run, as far as they hold numbers."""
    numbers = rows.select_dtypes("number").to_dict("records")
    return [{name: value for name, value in row.items() if math.isfinite(value)} for row in numbers]
