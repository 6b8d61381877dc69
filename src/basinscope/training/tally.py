"""What adds up between two rows: losses, update norms, and the first sign of divergence. All of it on the device."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

BEYOND = 1e6  # a loss this many times max(1, the first one) will not come back
PATIENCE = 64  # steps between two looks at a device that works ahead of the program


class Tally:
    """Sums since the last row. Adding to them never waits for the device, reading them does."""

    def __init__(self, optimizer: Optimizer, device: torch.device) -> None:
        self._optimizer = optimizer
        self._interval = PATIENCE if device.type == "cuda" else 1
        self._sums = torch.zeros(3, dtype=torch.float64, device=device)  # losses, directions, updates
        self._losses = self._steps = 0
        self._ceiling: Tensor | None = None
        self._broken = torch.zeros((), dtype=torch.bool, device=device)  # a loss of the present step was too large
        self._first_broken = torch.full((), -1, dtype=torch.int64, device=device)
        self._before: list[Tensor] = []

    def before_step(self) -> None:
        """Remember the weights, where the optimizer does not say itself how far it goes."""
        if not hasattr(self._optimizer, "norms"):
            self._before = [parameter.detach().clone() for parameter in self._parameters()]

    def add_loss(self, loss: Tensor) -> None:
        """Take in the loss of a batch."""
        value = loss.double()
        if self._ceiling is None:
            self._ceiling = BEYOND * value.clamp_min(1.0)
        self._sums[0] += value
        self._losses += 1
        self._broken |= ~(value <= self._ceiling)  # NaN is not below anything

    def after_step(self, step: int) -> None:
        """Take in how far the step went: ‖v‖ and ‖lr·v‖, v = (w − w')/lr unless the optimizer knows better."""
        norms = getattr(self._optimizer, "norms", None)
        if norms is None:
            norms = self._moved()
        self._sums[1] += norms["direction"]
        self._sums[2] += norms["update"]
        self._steps += 1
        new = self._broken & (self._first_broken < 0)
        self._first_broken = torch.where(new, step, self._first_broken)
        self._broken = torch.zeros_like(self._broken)

    def _moved(self) -> dict[str, Tensor]:
        squares = torch._foreach_norm(torch._foreach_sub(self._before, self._parameters()))
        rates = [float(group["lr"]) for group in self._optimizer.param_groups for _ in group["params"]]
        lengths = torch.stack(squares).double()
        update = torch.linalg.vector_norm(lengths)
        if len(set(rates)) == 1:
            return {"direction": update / rates[0] if rates[0] else torch.full_like(update, math.nan), "update": update}
        scaled = torch.stack([length / rate for length, rate in zip(lengths, rates, strict=True)])
        return {"direction": torch.linalg.vector_norm(scaled), "update": update}

    def _parameters(self) -> list[Tensor]:
        return [parameter.detach() for group in self._optimizer.param_groups for parameter in group["params"]]

    def broken_at(self, step: int, now: bool = False) -> int | None:
        """The first step whose loss was too large or not finite; looks only from time to time unless told."""
        if not now and step % self._interval:
            return None
        found = int(self._first_broken)
        return None if found < 0 else found

    def bearable(self, loss: float) -> bool:
        """Whether a loss over all data is finite and below the ceiling."""
        return math.isfinite(loss) and (self._ceiling is None or loss <= float(self._ceiling))

    def means(self) -> dict[str, float]:
        """The means since the last time, from which counting starts again."""
        if not self._steps:
            return {}
        losses, directions, updates = self._sums.tolist()
        found = {
            "batch_loss": losses / self._losses,
            "direction_norm": directions / self._steps,
            "update_norm": updates / self._steps,
        }
        self._sums = torch.zeros_like(self._sums)
        self._losses = self._steps = 0
        return found

    def state(self) -> dict[str, Any]:
        """What a resumed run needs."""
        return {"sums": self._sums, "counts": [self._losses, self._steps], "ceiling": self._ceiling}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        device = self._sums.device
        self._sums = state["sums"].to(device)
        self._losses, self._steps = state["counts"]
        self._ceiling = None if state["ceiling"] is None else state["ceiling"].to(device)
