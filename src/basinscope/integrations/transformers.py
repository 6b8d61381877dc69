"""Measurements during `Trainer.train` of Hugging Face transformers, logged wherever the trainer logs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import nn

from ..checks import whole
from ..errors import InputError
from ..landscape import Landscape
from ..losses import PerSample
from ..training.hooks import Measure, TrainingClock
from .following import Followed, Following, numbers

_SHARDING = ("FSDP", "DEEPSPEED", "MEGATRON_LM")  # of accelerate, where no process holds all weights
SAMPLES = 256

if TYPE_CHECKING:
    TrainerCallback = Any
else:
    try:
        from transformers import TrainerCallback
    except ImportError as error:
        raise InputError("the trainer callback needs transformers — install basinscope[transformers]") from error


class Measurements(Followed, TrainerCallback):
    """Measures the landscape of the training data at the weights as they are, on a schedule.

    Every number goes through `trainer.log`, so to the log history, TensorBoard, W&B or whatever `report_to` names;
    verdicts are 0 for ok, 1 for doubtful, 2 for failed. `rows` keeps all, with the reasons; `history` is their table,
    `plot()` their figure, and `cost` says what they took.

    Add it with `trainer.add_callback(Measurements(trainer, [Measure(bs.llc, Every(epochs=1))]))`.

    Args:
        trainer: the trainer that logs.
        measures: measurements, each at its own time.
        data, loss: as for `Landscape.from_pretrained`; `samples` of the trainer's training data, put together by its
            collator, unless given.
        samples: how many of the training data to measure on: evenly chosen of a data set with a length, the first
            ones of a stream. nβ = n/log n is then that of these.
        share: most of the time spent on measuring, as a share of the time trained, such as 0.1. What is due then waits
            until there is time for it. Unless given, everything is made when due.
    """

    def __init__(
        self,
        trainer: Any,
        measures: Sequence[Measure],
        data: Any = None,
        loss: str | PerSample | None = None,
        samples: int = SAMPLES,
        share: float | None = None,
    ) -> None:
        self._trainer, self._data, self._loss = trainer, data, loss
        self._samples = whole("samples", samples, 3)
        self._following = Following(measures, self._landscape, share)
        self._clock = TrainingClock(0, 0, 1)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure before the first step what is due then; refused where the weights are sharded over processes."""
        kind = getattr(self._trainer.accelerator.distributed_type, "name", "")
        if kind in _SHARDING:
            raise InputError(
                f"the trainer shards weights over processes ({kind}), so that none has all of them: measure saved "
                f"checkpoints afterwards, by bs.llc_along or basinscope measure, or train with DDP"
            )
        self._clock = self._now(state)
        if state.global_step == 0:
            self._look(state, None, kwargs["model"])

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure what is due after this step."""
        before, self._clock = self._clock, self._now(state)
        self._look(state, before, kwargs["model"])

    def _now(self, state: Any) -> TrainingClock:
        per_epoch = max(1, round(state.max_steps / max(1, state.num_train_epochs)))
        return TrainingClock(state.global_step, state.global_step, per_epoch)

    def _look(self, state: Any, before: TrainingClock | None, model: Any) -> None:
        if not state.is_world_process_zero:
            return
        network = self._trainer.accelerator.unwrap_model(model)
        curves = numbers(self._following.look(network, before, self._clock))
        curves.pop("step", None)
        curves.pop("epoch", None)  # the trainer adds both
        if curves:
            self._trainer.log(curves)

    def _landscape(self, model: nn.Module) -> Landscape:
        if self._data is None:
            self._data = dict(self._trainer.data_collator(_some(self._trainer.train_dataset, self._samples)))
        return Landscape.from_pretrained(model, self._data, loss=self._loss)


def _some(source: Any, count: int) -> list[Any]:
    """So many samples, evenly chosen where they have numbers, the first ones of a stream.

    Examples:
        >>> _some(list("abcdefgh"), 3), _some(iter("abcdefgh"), 3)
        (['a', 'c', 'f'], ['a', 'b', 'c'])
    """
    if not hasattr(source, "__getitem__") or not hasattr(source, "__len__"):
        return list(itertools.islice(iter(source), count))
    total = len(source)
    return [source[place * total // min(count, total)] for place in range(min(count, total))]
