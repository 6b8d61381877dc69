"""The result of training: the network, the rows of its history, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from torch import nn
from torch.optim import Optimizer

from ..errors import BasinscopeError
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
