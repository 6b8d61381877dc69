"""The result of training: the network, the rows of its history, and how it ended; several of them side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torch import nn
from torch.optim import Optimizer

from ..errors import BasinscopeError, InputError
from .history_figure import over_training
from .hooks import Row

if TYPE_CHECKING:
    import pandas as pd

Outcome = Literal["finished", "stopped", "diverged"]


@dataclass(frozen=True)
class Run:
    """A trained network and its history.

    Attributes:
        model: the network at the last step, a copy of what was given.
        optimizer: in its last state.
        rows: one dict for each moment something was recorded.
        outcome: `finished` (all steps done), `stopped` (by a rule) or `diverged`.
        reason: the outcome in words.
        step: optimizer steps done; of a diverged run, the step whose loss was no longer finite.
        epoch: passes through the data done.
        origin: the step at which it branched off another run, else 0. Earlier rows are those of that run.
        checkpoint: the file that holds the run, if there is one.
    """

    model: nn.Module
    optimizer: Optimizer
    rows: list[Row]
    outcome: Outcome
    reason: str
    step: int
    epoch: float
    origin: int = 0
    checkpoint: Path | None = None

    @property
    def history(self) -> pd.DataFrame:
        """The rows as a table, the first recorded first.

        `step`, `epoch`; `train_loss` and `validation_loss` over all data; `batch_loss`, `direction_norm` ‖v‖ and
        `update_norm` ‖lr·v‖ as means since the row before; then what was measured. A diverged run has no rows from the
        step it diverged at.
        """
        return frame(self.rows)

    def plot(self) -> Any:
        """Losses, and what was measured with 90 % intervals, over the training (needs matplotlib)."""
        return over_training(self.rows)

    def __repr__(self) -> str:
        return f"Run({self.outcome} at step {self.step:,}, epoch {self.epoch:g}: {self.reason})"


def histories(runs: Mapping[str, Run]) -> pd.DataFrame:
    """The histories of several runs under one another, with columns `run` and `outcome` in front.

    Examples:
        >>> net = nn.Linear(1, 1)
        >>> run = Run(net, None, [{"step": 0, "train_loss": 2.0}], "finished", "all 0 steps done", 0, 0.0)
        >>> histories({"a": run, "b": run})["run"].tolist()
        ['a', 'b']
    """
    return frame([{"run": name, "outcome": run.outcome, **row} for name, run in runs.items() for row in run.rows])


def frame(rows: list[Row]) -> pd.DataFrame:
    """Rows as a table."""
    try:
        import pandas as pd
    except ImportError:
        raise BasinscopeError(
            "tables come with pandas, which is not installed — pip install 'basinscope[tables]', or read run.rows"
        ) from None
    return pd.DataFrame(rows)


def matched(runs: Mapping[str, Run], levels: Sequence[float], *, on: str = "train_loss") -> pd.DataFrame:
    """The measurements of each run at the moment its training loss first fell to each level.

    Between the last row above a level and the first at or below it, every number is interpolated linearly in the
    loss, so that the runs are compared at exactly one value of it. Where one of the two rows lacks a number, that
    of the other row counts. A run that never reaches a level, or starts below it, has no row for it.

    Args:
        runs: by name.
        levels: values of the loss.
        on: the column to match.

    Returns:
        A table with a row for each level and run that reached it: `level`, `run`, and the interpolated columns.

    Examples:
        >>> rows = [{"step": 0, "train_loss": 2.0, "llc": 1.0}, {"step": 10, "train_loss": 1.0, "llc": 3.0}]
        >>> run = Run(None, None, rows, "finished", "", 10, 1.0)
        >>> matched({"sgd": run}, [1.5]).to_dict("records")
        [{'level': 1.5, 'run': 'sgd', 'step': 5.0, 'train_loss': 1.5, 'llc': 2.0}]
    """
    for name, run in runs.items():
        if not any(on in row for row in run.rows):
            raise InputError(f"run {name!r} has no column {on!r} to match on")
    rows = []
    for level in levels:
        for name, run in runs.items():
            row = _at(run.rows, float(level), on)
            if row is not None:
                rows.append({"level": float(level), "run": name, **row})
    return frame(rows)


def _at(rows: list[Row], level: float, on: str) -> Row | None:
    """The row interpolated where a column first falls to a level."""
    above: Row | None = None
    for row in rows:
        value = row.get(on, math.nan)
        if value > level:
            above = row
        elif value <= level:
            return None if above is None else _between(above, row, (above[on] - level) / (above[on] - value))
    return None


def _between(first: Row, second: Row, share: float) -> Row:
    """A row `share` of the way from one to the other."""
    mixed: Row = {}
    for name in {**first, **second}:
        one, two = _number(first.get(name)), _number(second.get(name))
        if one is not None and two is not None:
            mixed[name] = one + share * (two - one)
        elif one is not None or two is not None:
            mixed[name] = one if two is None else two
    return mixed


def _number(value: object) -> float | None:
    if isinstance(value, Real) and not isinstance(value, bool) and not math.isnan(value):
        return float(value)
    return None
