"""Sums between two rows of the history: losses, update norms, and the first sign of divergence."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

MAX_GROWTH = 1e6  # of the loss, in units of max(1, the first one): beyond, it will not come back
MAX_STEPS_UNREAD = 64  # a device works ahead of the program, and reading from it waits for it


class Tally:
    """Means since the last row. The tensors that a step leaves here stay on the device until they are read."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._losses: list[tuple[int, Tensor]] = []  # a step and the loss of one of its batches
        self._norms: list[tuple[list[float] | None, Tensor]] = []  # rates and norms by tensor, or (‖v‖, ‖lr·v‖)
        self._before: list[Tensor] = []
        self._sums = [0.0, 0.0, 0.0]  # losses, ‖v‖, ‖lr·v‖
        self._counts = [0, 0]  # losses, steps
        self._ceiling: float | None = None
        self._broken: int | None = None

    def before_step(self) -> None:
        """Remember the weights, unless the optimizer reports the norms of its steps."""
        if not hasattr(self._optimizer, "norms"):
            parameters = self._parameters()
            self._before = self._before or [torch.empty_like(parameter) for parameter in parameters]
            torch._foreach_copy_(self._before, parameters)

    def add_loss(self, step: int, loss: Tensor) -> None:
        """Take in the loss of a batch."""
        self._losses.append((step, loss))

    def after_step(self) -> None:
        """Take in the norms ‖v‖ and ‖lr·v‖ of the step: the optimizer's own, or those of v = (w − w')/lr."""
        norms = getattr(self._optimizer, "norms", None)
        if norms is not None:
            self._norms.append((None, torch.stack([norms["direction"], norms["update"]])))
            return
        rates = [float(group["lr"]) for group in self._optimizer.param_groups for _ in group["params"]]
        torch._foreach_sub_(self._before, self._parameters())
        self._norms.append((rates, torch.stack(torch._foreach_norm(self._before))))

    def _parameters(self) -> list[Tensor]:
        return [parameter.detach() for group in self._optimizer.param_groups for parameter in group["params"]]

    def broken_at(self, step: int, now: bool = False) -> int | None:
        """The first step whose loss was too large or not finite; read from time to time, or `now`."""
        if now or step % MAX_STEPS_UNREAD == 0:
            self._read()
        return self._broken

    def _read(self) -> None:
        """Bring all pending numbers over from the device at once."""
        pending = [loss.reshape(1) for _, loss in self._losses] + [norms for _, norms in self._norms]
        if not pending:
            return
        values = iter(torch.cat([part.double() for part in pending]).tolist())
        losses = [(step, next(values)) for step, _ in self._losses]
        moves = [_lengths(rates, [next(values) for _ in range(len(norms))]) for rates, norms in self._norms]
        if self._ceiling is None and losses:
            self._ceiling = MAX_GROWTH * max(1.0, losses[0][1])
        for step, value in losses:
            if self._broken is None and not self.acceptable(value):
                self._broken = step
        new = [value for _, value in losses], [move[0] for move in moves], [move[1] for move in moves]
        self._sums = [old + sum(more) for old, more in zip(self._sums, new, strict=True)]
        self._counts = [self._counts[0] + len(losses), self._counts[1] + len(moves)]
        self._losses, self._norms = [], []

    def acceptable(self, loss: float) -> bool:
        """Whether a loss is finite and below the ceiling."""
        return math.isfinite(loss) and (self._ceiling is None or loss <= self._ceiling)

    def means(self) -> dict[str, float]:
        """The means since the last time, from which counting starts again."""
        self._read()
        (losses, directions, updates), (batches, steps) = self._sums, self._counts
        self._sums, self._counts = [0.0, 0.0, 0.0], [0, 0]
        if not steps:
            return {}
        return {"batch_loss": losses / batches, "direction_norm": directions / steps, "update_norm": updates / steps}

    def state(self) -> dict[str, Any]:
        """The numbers that a resumed run needs."""
        self._read()
        return {"sums": self._sums, "counts": self._counts, "ceiling": self._ceiling}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self._sums, self._counts, self._ceiling = list(state["sums"]), list(state["counts"]), state["ceiling"]


def _lengths(rates: list[float] | None, norms: list[float]) -> tuple[float, float]:
    """‖v‖ and ‖lr·v‖ from the norms of lr·v by tensor."""
    if rates is None:
        return norms[0], norms[1]
    scaled = [norm / rate if rate else math.nan for norm, rate in zip(norms, rates, strict=True)]
    return math.hypot(*scaled), math.hypot(*norms)
