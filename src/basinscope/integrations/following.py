"""Measurements on a schedule inside a trainer that is not ours."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..errors import BasinscopeError, InputError
from ..estimates import VERDICTS, Estimate
from ..landscape import Landscape
from ..training.history_figure import over_training
from ..training.hooks import Measure, Row, TrainingClock
from ..training.runs import frame
from ..training.trainer import evaluating
from .allowance import Allowance

if TYPE_CHECKING:
    import pandas as pd


def numbers(row: Row | Estimate) -> dict[str, float]:
    """What a logger of curves can take: finite numbers; a verdict is 0 for ok, 1 for doubtful, 2 for failed, and
    whether the weights are at a minimum 1 for yes, 0 for no.

    Examples:
        >>> numbers({"llc_basin": 9.0, "llc_at_minimum": "no"})
        {'llc_basin': 9.0, 'llc_at_minimum': 0.0}
        >>> numbers({"step": 3, "llc": float("nan"), "llc_verdict": "failed", "llc_warnings": "no minimum"})
        {'step': 3.0, 'llc_verdict': 2.0}
        >>> numbers(Estimate("llc", 2.5, 0.5))
        {'llc': 2.5, 'llc_stderr': 0.5, 'llc_verdict': 0.0}
    """
    if isinstance(row, Estimate):
        row = row.columns()
    curves: dict[str, float] = {}
    for name, value in row.items():
        if name.endswith("_verdict") and value in VERDICTS:
            curves[name] = float(VERDICTS.index(value))
        elif name.endswith("_at_minimum") and value in ("yes", "no"):
            curves[name] = float(value == "yes")
        elif isinstance(value, (int, float)) and math.isfinite(value):
            curves[name] = float(value)
    return curves


def numbers_at(row: Row | Estimate, step: int | None) -> tuple[dict[str, float], int]:
    """The numbers of a row or estimate, and the step they belong to: `step`, or the row's own.

    Examples:
        >>> numbers_at({"step": 3, "llc": 2.5}, None)
        ({'llc': 2.5}, 3)
    """
    curves = numbers(row)
    row_step = curves.pop("step", None)
    at = row_step if step is None else step
    if at is None:
        raise InputError("an estimate has no step of its own: pass step")
    return curves, int(at)


class Following:
    """Makes the measurements that are due between two moments, and keeps all rows.

    Args:
        measures: measurements, each at its own time.
        landscape: makes the landscape of the network as it is.
        share: most of the time spent on measuring, as a share of the time trained. What is due then waits until there
            is time for it, and what takes a budget gets no more than there is. Unless given, all is made when due.

    Examples:
        >>> import torch, basinscope as bs
        >>> from basinscope.training import Every
        >>> x = torch.ones(4, 1)
        >>> wanted = [Measure(bs.trace, Every(steps=2))]
        >>> follow = Following(wanted, lambda net: bs.Landscape(net, "mse", (x, x)))
        >>> follow.look(torch.nn.Linear(1, 1), TrainingClock(1, 1, 4), TrainingClock(2, 2, 4))["trace"]
        2.0
    """

    def __init__(
        self,
        measures: Sequence[Measure],
        landscape: Callable[[nn.Module], Landscape],
        share: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if not measures or not all(isinstance(measure, Measure) for measure in measures):
            raise InputError(f"measures must be a list of training.Measure, at least one, got {measures!r}")
        strangers = [measure.name for measure in measures if measure.on != "train"]
        if strangers:
            raise InputError(
                f"measurements {strangers} are on the validation data: expected on='train' here — pass data"
            )
        self._measures, self._landscape = tuple(measures), landscape
        self._allowance = Allowance(share, clock)
        self._waiting: list[Measure] = []
        self.rows: list[Row] = []

    @property
    def history(self) -> pd.DataFrame:
        """The rows as a table, the first recorded first."""
        return frame(self.rows)

    def plot(self) -> Any:
        """What was measured, with 90 % intervals, over the training (needs matplotlib)."""
        return over_training(self.rows)

    @property
    def cost(self) -> str:
        """What following has cost so far, in words."""
        count = len(self._waiting)
        waiting = f"; {count} measurement{'s wait' if count > 1 else ' waits'} for time" if count else ""
        return f"{self._allowance}{waiting}"

    def look(self, model: nn.Module, before: TrainingClock | None, now: TrainingClock) -> Row:
        """The row of what is due; empty when nothing is. `before` is None before the first step.

        Looking changes nothing: modes and generators are as they were. A network that no landscape can be made of is
        recorded as failed, with its reason, and the training goes on.
        """
        self._allowance.begin()
        due = [m for m in self._measures if (m.every.start if before is None else m.every.due(before, now))]
        asked = [m for m in self._measures if m in self._waiting or m in due]
        row: Row = {}
        self._waiting, spent = [], self._allowance.spent
        land = functools.cache(lambda: self._landscape(model))
        for measure in asked:
            afforded = self._allowance.afforded(measure)
            if afforded is None:
                self._waiting.append(measure)
            else:
                with self._allowance.measuring(measure.name), _undisturbed(model):
                    row.update(self._columns(afforded, land))
        if row:
            seconds = self._allowance.spent - spent
            row = {"step": now.step, "epoch": now.epoch, **row, "measuring_seconds": seconds}
            self.rows.append(row)
        return row

    def _columns(self, measure: Measure, land: Callable[[], Landscape]) -> Row:
        try:
            return measure.columns(land(), self.rows)
        except BasinscopeError as error:
            return measure.failed(error)


class Followed:
    """What a callback that follows a training shows of it."""

    _following: Following

    @property
    def rows(self) -> list[Row]:
        """What was measured so far."""
        return self._following.rows

    @property
    def history(self) -> pd.DataFrame:
        """The rows as a table, the first recorded first."""
        return self._following.history

    @property
    def cost(self) -> str:
        """What following has cost so far, in words."""
        return self._following.cost

    def plot(self) -> Any:
        """What was measured, with 90 % intervals, over the training (needs matplotlib)."""
        return self._following.plot()


@contextmanager
def _undisturbed(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, and generators that come back as they were."""
    devices = [p.device for p in model.parameters() if p.device.type == "cuda"][:1]
    with evaluating(model), torch.random.fork_rng(devices), torch.enable_grad():
        yield
