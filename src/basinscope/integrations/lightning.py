"""Measurements during `Trainer.fit` of Lightning, logged wherever the trainer logs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..adapters import lightning as adapter
from ..errors import InputError
from ..landscape import Landscape
from ..losses import PerSample
from ..samples import Samples
from ..training.hooks import Measure, TrainingClock
from .following import Followed, Following, numbers

if TYPE_CHECKING:
    Callback = Any
else:
    try:  # the package goes by two names, whose classes differ
        if "lightning.pytorch" in sys.modules:
            from lightning.pytorch import Callback
        else:
            from pytorch_lightning import Callback
    except ImportError as error:
        raise InputError("the Lightning callback needs pytorch-lightning — install basinscope[lightning]") from error


class Measurements(Followed, Callback):
    """Measures the landscape of the training data at the weights as they are, on a schedule.

    Every number goes to the trainer's loggers at its step, and to `trainer.callback_metrics`, where early stopping
    and checkpointing look; verdicts are 0 for ok, 1 for doubtful, 2 for failed. `rows` keeps all, with the reasons;
    `history` is their table, `plot()` their figure, and `cost` says what they took.

    Args:
        measures: measurements, each at its own time.
        data, loss: as for `Landscape.from_lightning`; the module's own unless given.
        share: most of the time spent on measuring, as a share of the time trained, such as 0.1. What is due then waits
            until there is time for it. Unless given, everything is made when due.

    Examples:
        >>> import basinscope as bs
        >>> from basinscope.training import Every, Measure
        >>> callback = Measurements([Measure(bs.llc, Every(epochs=5), options={"budget": 5})])
        >>> callback.rows
        []
    """

    def __init__(
        self,
        measures: Sequence[Measure],
        data: Any = None,
        loss: str | PerSample | None = None,
        share: float | None = None,
    ) -> None:
        self._data, self._loss = data, loss
        self._samples: tuple[str | PerSample, Samples] | None = None
        self._following = Following(measures, self._landscape, share)
        self._clock = TrainingClock(0, 0, 1)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Measure before the first step what is due then."""
        self._clock = _clock(trainer)
        if self._clock.step == 0:
            self._look(trainer, pl_module, None)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any, **kwargs: Any) -> None:
        """Measure what is due after this batch."""
        before, self._clock = self._clock, _clock(trainer)
        self._look(trainer, pl_module, before)

    def _look(self, trainer: Any, module: Any, before: TrainingClock | None) -> None:
        if not trainer.is_global_zero:
            return
        curves = numbers(self._following.look(module, before, self._clock))
        step = curves.pop("step", None)
        if step is None:
            return
        for logger in trainer.loggers:
            logger.log_metrics(curves, step=int(step))
        curves.pop("epoch")
        trainer.callback_metrics.update({name: torch.tensor(value) for name, value in curves.items()})

    def _landscape(self, module: nn.Module) -> Landscape:
        if self._samples is None:
            self._samples = adapter.parts(module, self._data, self._loss)
        return Landscape(module, *self._samples)


def _clock(trainer: Any) -> TrainingClock:
    per_epoch = trainer.num_training_batches
    batches = trainer.fit_loop.epoch_loop.total_batch_idx + 1
    return TrainingClock(trainer.global_step, batches, per_epoch)
