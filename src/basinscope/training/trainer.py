"""One training run: its steps, the rows of its history, and its checkpoints. `train` is the entry point."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import LBFGS, Optimizer

from ..errors import BasinscopeError, InputError
from ..landscape import Landscape
from ..losses import PerSample
from ..progress import Report
from ..samples import Samples
from .batches import Batches
from .checkpoint import rng_state, save_checkpoint, set_rng_state
from .hooks import Every, Measure, Row, StopRule, TrainingClock, check_columns
from .runs import Outcome, Run
from .tally import Tally

RESERVED = ("step", "epoch", "train_loss", "validation_loss", "batch_loss", "direction_norm", "update_norm", "lr")


class Trainer:
    """One network in training; see `train` for the arguments."""

    def __init__(
        self, model: nn.Module, data: Any, optimizer: Optimizer, *, loss: str | PerSample, sigma: float | None,
        batch_size: int, seed: int, validation: Any, record: Every, measures: Sequence[Measure],
        stop: Sequence[StopRule], file: Path | None, save: Every, keep: Every | None,
        log: Sequence[Callable[[Row], Any]],
    ) -> None:  # fmt: skip
        self.model, self.optimizer = model, optimizer
        self._loss_name, self._sigma = loss, sigma
        with evaluating(model):
            land = Landscape(model, loss, data, sigma=sigma)
            held_out = None if validation is None else Landscape(model, loss, validation, sigma=sigma)
        self._data = {"train": land.samples}
        self._loss = land.loss
        self._device = land.device
        if held_out is not None:
            self._data["validation"] = held_out.samples
        self._batches = Batches(land.n, batch_size, seed, land.samples.device)
        if isinstance(optimizer, LBFGS) and self._batches.size < land.n:
            raise InputError(
                f"L-BFGS compares gradients of one batch, but every batch is new: batch_size must be {land.n} (all "
                f"samples), got {batch_size}"
            )
        self._record, self._measures, self._stop = record, tuple(measures), tuple(stop)
        self._check_measures()
        self._log = tuple(log)
        self._file, self._save, self._keep = file, save, keep
        self._settings = {
            "samples": land.n,
            "batch_size": self._batches.size,
            "seed": seed,
            "loss": self._loss.name,
            "optimizer": type(optimizer).__name__,
            "parameters": {name: list(tensor.shape) for name, tensor in model.state_dict().items()},
        }
        self._observe = getattr(optimizer, "observe", None)
        self._clock = self._origin = TrainingClock(0, 0, self._batches.per_epoch)
        self._rows: list[Row] = []
        self._measured: set[str] = set()  # names of the measurements made so far
        self._tally = Tally(optimizer)
        self._end: tuple[Outcome, str] | None = None  # the outcome with its reason, once there is one

    # ------------------------------------------------------------------ running

    def run(self, epochs: float | None, steps: int | None, report: Report) -> Run:
        """Train until an end is reached."""
        batches = None if epochs is None else self._origin.batches + round(epochs * self._batches.per_epoch)
        last = None if steps is None else self._origin.step + steps
        if self._end is None and not self._rows:
            self._write_row(self._record.start, [measure for measure in self._measures if measure.every.start])
        while self._end is None and not self._reached(batches, last):
            self._step()
            report(self._fraction_done(batches, last), self._caption())
        if self._end is None:
            if not self._rows or self._rows[-1]["step"] != self._clock.step:
                self._write_row(True, [])
            self._save_to(self._file)
        outcome, reason = self._end or ("finished", f"all {self._clock.step - self._origin.step:,} steps done")
        return Run(
            self.model, self.optimizer, self._rows, outcome, reason, self._clock.step, self._clock.epoch,
            self._origin.step, self._file,
        )  # fmt: skip

    def _step(self) -> None:
        """One step of the optimizer, and what is due after it."""
        before = self._clock
        self._tally.before_step()
        self.optimizer.step(self._closure)  # type: ignore[arg-type]
        # The closure has moved on the count of batches.
        now = self._clock = TrainingClock(before.step + 1, self._clock.batches, before.per_epoch)
        self._tally.after_step()
        # Nothing may be written of a run that diverged, so what is due reads the pending losses from the device first.
        row = self._record.due(before, now)
        measures = [measure for measure in self._measures if measure.every.due(before, now)]
        save = self._file is not None and self._save.due(before, now)
        keep = self._file is not None and self._keep is not None and self._keep.due(before, now)
        broken = self._tally.broken_at(now.step, now=bool(row or measures or save or keep))
        if broken is not None:
            later = (now.step - broken) * (now.batches - before.batches)
            self._diverge(TrainingClock(broken, now.batches - later, now.per_epoch))
            return
        self._write_row(row, measures)
        if self._end is None and save:
            self._save_to(self._file)
        if self._end is None and keep:
            assert self._file is not None
            self._save_to(self._file.with_name(f"step-{now.step:08d}.safetensors"))

    def _closure(self) -> Tensor:
        """The loss of the next batch, its gradient in the parameters."""
        chosen = self._batches.indices(self._clock.batches)
        samples = self._data["train"]
        batch = (samples if chosen is None else samples.take(chosen)).to(self._device)
        self._clock = TrainingClock(self._clock.step, self._clock.batches + 1, self._clock.per_epoch)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._losses(batch).mean()
        loss.backward()
        if self._observe is not None:
            self._observe(batch)
        value = loss.detach()
        self._tally.add_loss(self._clock.step + 1, value)
        return value

    def _losses(self, batch: Samples) -> Tensor:
        """l_i of a batch at the present weights."""
        inputs = batch.inputs
        if isinstance(inputs, dict):
            output = self.model(**inputs)
        else:
            output = self.model(*inputs) if isinstance(inputs, tuple) else self.model(inputs)
        return self._loss.per_sample(output, batch.target)

    def _reached(self, batches: int | None, last: int | None) -> bool:
        """Whether that many batches were drawn, or the last step was taken."""
        return (batches is not None and self._clock.batches >= batches) or (
            last is not None and self._clock.step >= last
        )

    def _fraction_done(self, batches: int | None, last: int | None) -> float:
        """The fraction of the training that is behind."""
        parts = [0.0]
        if batches is not None:
            parts.append((self._clock.batches - self._origin.batches) / max(1, batches - self._origin.batches))
        if last is not None:
            parts.append((self._clock.step - self._origin.step) / max(1, last - self._origin.step))
        return max(parts)

    def _caption(self) -> str:
        loss = f", loss {self._rows[-1]['train_loss']:.4g}" if self._rows else ""
        return f"epoch {self._clock.epoch:.1f}{loss}"

    def _diverge(self, when: TrainingClock) -> None:
        """End the run as diverged."""
        self._clock = when
        self._end = (
            "diverged",
            f"the loss was no longer finite, or a million times what it was at first, at step {when.step} — lower the "
            f"learning rate",
        )
        self._save_to(self._file)

    # ------------------------------------------------------------------ rows

    def _write_row(self, due: bool, measures: list[Measure]) -> None:
        """Evaluate and measure; then ask the rules whether to go on."""
        if not (due or measures):
            return
        row: Row = {"step": self._clock.step, "epoch": self._clock.epoch}
        with self._undisturbed():
            for name in self._data:
                row[f"{name}_loss"] = self._mean_loss(self._data[name])
            if not self._tally.acceptable(row["train_loss"]):
                self._diverge(self._clock)
                return
            row.update(self._tally.means())
            row["lr"] = float(self.optimizer.param_groups[0]["lr"])
            for name, samples in self._data.items():
                row.update(self._measurements(samples, [measure for measure in measures if measure.on == name]))
        self._rows.append(row)
        for logger in self._log:
            logger(row)
        self._measured |= {measure.name for measure in measures}
        if len(self._measured) == len(self._measures):  # every column there will be has been written
            check_columns(self._stop, self._rows)
        for rule in self._stop:
            reason = rule(self._rows)
            if reason is not None:
                self._end = "stopped", reason
                self._save_to(self._file)
                return

    def _measurements(self, samples: Samples, measures: list[Measure]) -> Row:
        """The columns of measurements on some samples."""
        row: Row = {}
        if measures:
            try:
                land = Landscape(self.model, self._loss_name, samples, sigma=self._sigma)
            except BasinscopeError as error:
                return {key: value for measure in measures for key, value in measure.failed(error).items()}
            for measure in measures:
                columns = measure.columns(land, self._rows)
                clash = sorted((row.keys() | set(RESERVED)) & columns.keys())
                if clash:
                    raise InputError(f"two columns of the history would be called {clash[0]!r} — pass another name")
                row.update(columns)
        return row

    @contextmanager
    def _undisturbed(self) -> Iterator[None]:
        """Evaluation mode, and generators that come back as they were: measuring does not change the training."""
        with evaluating(self.model), torch.random.fork_rng([self._device] if self._device.type == "cuda" else []):
            yield

    def _mean_loss(self, samples: Samples, size: int = 4096) -> float:
        total = torch.zeros((), dtype=torch.float64, device=self._device)
        with torch.no_grad():
            for start in range(0, samples.n, size):
                piece = samples if size >= samples.n else samples.take(slice(start, start + size))
                total += self._losses(piece.to(self._device)).double().sum()
        return float(total) / samples.n

    def _check_measures(self) -> None:
        names = [measure.name for measure in self._measures]
        for measure in self._measures:
            if measure.name in RESERVED or names.count(measure.name) > 1:
                raise InputError(f"two columns of the history would be called {measure.name!r} — pass another name")
            if measure.on not in self._data:
                raise InputError(f"measurement {measure.name!r} is on the validation data: pass validation")

    # ------------------------------------------------------------------ checkpoints

    def _save_to(self, file: Path | None) -> None:
        if file is None:
            return
        save_checkpoint(
            file,
            {
                "settings": self._settings,
                "clock": [self._clock.step, self._clock.batches],
                "origin": [self._origin.step, self._origin.batches],
                "rows": self._rows,
                "over": None if self._end is None else list(self._end),
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "tally": self._tally.state(),
                "rng": rng_state(self._device),
            },
        )

    def resume(self, state: dict[str, Any], path: Path) -> None:
        """Go on where this same run was."""
        self._compare(state["settings"], path, ("samples", "batch_size", "seed", "loss", "optimizer", "parameters"))
        self._place(state)
        self._origin = self._moment(state["origin"])
        self._end = None if state["over"] is None else (state["over"][0], state["over"][1])
        if self._end is not None and self._end[0] == "stopped" and not any(rule(self._rows) for rule in self._stop):
            self._end = None  # the rules were changed
        self.optimizer.load_state_dict(state["optimizer"])
        self._tally.load(state["tally"])

    def branch(self, state: dict[str, Any], path: Path, carry: bool) -> None:
        """Go on where another run was, with an optimizer of one's own."""
        self._compare(state["settings"], path, ("samples", "batch_size", "loss", "parameters"))
        if state["over"] is not None and state["over"][0] == "diverged":
            raise InputError(
                f"{path} holds a run that diverged at step {state['clock'][0]}: branch from an earlier one"
            )
        self._place(state)
        self._origin = self._clock
        if carry:
            self._compare(state["settings"], path, ("optimizer",))
            options = [{k: v for k, v in group.items() if k != "params"} for group in self.optimizer.param_groups]
            self.optimizer.load_state_dict(state["optimizer"])
            for group, settings in zip(self.optimizer.param_groups, options, strict=True):
                group.update(settings)

    def _place(self, state: dict[str, Any]) -> None:
        """Take over weights, rows, position in the data and generators from a checkpoint."""
        self._clock = self._moment(state["clock"])
        self._rows = list(state["rows"])
        self.model.load_state_dict(state["model"])
        set_rng_state(state["rng"], self._device)

    def _moment(self, counts: list[int]) -> TrainingClock:
        """The clock at so many steps and batches."""
        return TrainingClock(counts[0], counts[1], self._batches.per_epoch)

    def _compare(self, settings: dict[str, Any], path: Path, keys: Sequence[str]) -> None:
        """Refuse a checkpoint whose settings differ from those of this run."""
        for key in keys:
            if settings[key] != self._settings[key]:
                ours, theirs = (_shortened(values[key]) for values in (self._settings, settings))
                raise InputError(
                    f"{path} belongs to another run: its {key} is {theirs}, here it is {ours} — take another folder, "
                    f"or the same settings"
                )


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode; then each module's own mode again."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
