"""SGLD with a diagonal RMSProp preconditioner (Li et al. 2016) that is frozen after warm-up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..target import Evaluate
from .base import Draw, Random, always, column


class State(NamedTuple):
    position: Tensor
    second: Tensor  # running mean of squared gradients
    age: Tensor  # (C,) steps taken


@dataclass(frozen=True)
class RMSPropSGLD:
    """z' = z − (ε/2) G ∇U + √(ε G) ξ with G = 1/(√v + α), v the running mean of squared gradients.

    A gradient that starts at zero, as at an exact minimum, must not give an unbounded step: α = 1 is the scale of
    gradients under a unit localiser. A preconditioner that keeps adapting needs a drift term that is costly and
    usually left out; freezing it after `warmup` steps makes it a constant map, so that only SGLD's own bias is left.
    Draws before that do not count.
    """

    step_size: Tensor | float
    warmup: int = 200
    decay: float = 0.99
    floor: float = 1.0

    def init(self, position: Tensor, evaluate: Evaluate, random: Random) -> State:
        gradient = evaluate(position).gradient
        return State(position, gradient.square(), torch.zeros(len(position), device=position.device))

    def step(self, state: State, evaluate: Evaluate, random: Random) -> tuple[State, Draw]:
        here = evaluate(state.position)
        learning = (state.age < self.warmup)[:, None]
        updated = self.decay * state.second + (1 - self.decay) * here.gradient.square()
        second = torch.where(learning, updated, state.second)
        scale = column(self.step_size, state.position) / (second.sqrt() + self.floor)
        moved = state.position - 0.5 * scale * here.gradient + scale.sqrt() * random.normal(state.position)
        return State(moved, second, state.age + 1), Draw(state.position, here, always(moved))
