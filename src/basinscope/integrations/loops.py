"""Measurements during a training loop that is written by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from ..checks import whole
from ..errors import InputError
from ..landscape import Landscape
from ..losses import PerSample
from ..training.hooks import Measure, Row, TrainingClock
from .following import Following


class Measurements(Following):
    """Measures the landscape of the training data at the weights as they are, on a schedule.

    Call `step` after every step of the optimizer. What is due before the first step is measured at once.

    Args:
        model: the network in training.
        measures: measurements, each at its own time.
        data, loss: as for `Landscape`.
        steps_per_epoch: needed where a measurement is due every so many epochs.
        share: most of the time spent on measuring, as a share of the time trained, such as 0.1. What is due then waits
            until there is time for it. Unless given, everything is made when due.
        log: called with every row as it is written, such as `integrations.tensorboard.Log`.

    Examples:
        >>> import torch, basinscope as bs
        >>> from basinscope.training import Every
        >>> x = torch.ones(4, 1)
        >>> net = torch.nn.Linear(1, 1)
        >>> follow = Measurements(net, [Measure(bs.trace, Every(steps=2))], (x, x), "mse")
        >>> [follow.step().get("trace") for _ in range(4)]
        [None, 2.0, None, 2.0]
    """

    def __init__(
        self,
        model: nn.Module,
        measures: Sequence[Measure],
        data: Any,
        loss: str | PerSample = "cross_entropy",
        *,
        steps_per_epoch: int | None = None,
        share: float | None = None,
        log: Sequence[Callable[[Row], Any]] = (),
    ) -> None:
        super().__init__(measures, lambda net: Landscape(net, loss, data), share)
        if steps_per_epoch is None and any(measure.every.epochs is not None for measure in measures):
            raise InputError("a measurement is due every so many epochs: pass steps_per_epoch, or Every(steps=…)")
        self._model, self._log = model, tuple(log)
        self._per_epoch = whole("steps_per_epoch", 1 if steps_per_epoch is None else steps_per_epoch, least=1)
        self._at = TrainingClock(0, 0, self._per_epoch)
        self._write(None)

    def step(self) -> Row:
        """Say that a step was taken; the row of what was measured after it, empty when nothing was due."""
        before = self._at
        self._at = TrainingClock(before.step + 1, before.batches + 1, self._per_epoch)
        return self._write(before)

    def _write(self, before: TrainingClock | None) -> Row:
        row = self.look(self._model, before, self._at)
        if row:
            for logger in self._log:
                logger(row)
        return row
