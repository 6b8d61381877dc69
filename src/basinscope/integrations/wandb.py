"""Rows and estimates as curves of Weights & Biases."""

from __future__ import annotations

from typing import Any

from ..errors import InputError
from ..estimates import Estimate
from ..training.hooks import Row
from .following import numbers_at


class Log:
    """Sends the numbers of rows and estimates to a run of W&B; give it to `training.train(log=[...])`.

    Verdicts are 0 for ok, 1 for doubtful, 2 for failed; what is not a finite number is left out. The curves have an
    axis of their own, `basinscope/step`, so that they go with whatever else the run logs. Reasons of verdicts that are
    not ok come into the run's summary.

    Args:
        run: what `wandb.init` returned; in offline mode it works the same.
        prefix: of every curve's name.

    Examples:
        >>> class Run:
        ...     summary = {}
        ...     def define_metric(self, name, **options): pass
        ...     def log(self, values): print(values)
        >>> Log(Run())(Estimate("llc", 2.5, 0.5), step=3)
        {'basinscope/llc': 2.5, 'basinscope/llc_stderr': 0.5, 'basinscope/llc_verdict': 0.0, 'basinscope/step': 3}
    """

    def __init__(self, run: Any, prefix: str = "basinscope/") -> None:
        if not (hasattr(run, "log") and hasattr(run, "define_metric")):
            raise InputError(f"run must be what wandb.init returned, got {type(run).__name__}")
        self._run, self._prefix = run, prefix
        run.define_metric(f"{prefix}step", hidden=True)
        run.define_metric(f"{prefix}*", step_metric=f"{prefix}step")

    def __call__(self, row: Row | Estimate, step: int | None = None) -> None:
        """Send one row or estimate, at `step` or at the row's own."""
        curves, at = numbers_at(row, step)
        self._run.log({**{self._prefix + name: value for name, value in curves.items()}, f"{self._prefix}step": at})
        if isinstance(row, Estimate):
            row = row.columns()
        for name, value in row.items():
            if name.endswith("_warnings") and value:
                self._run.summary[self._prefix + name] = value
