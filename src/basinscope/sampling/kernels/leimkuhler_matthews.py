"""Langevin dynamics with the averaged noise of Leimkuhler and Matthews (2013)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..target import Evaluate
from .base import Draw, Random, always, column


class State(NamedTuple):
    position: Tensor
    noise: Tensor


@dataclass(frozen=True)
class LeimkuhlerMatthews:
    """z' = z − (ε/2) ∇U + √ε (ξ_k + ξ_{k+1})/2.

    Costs what SGLD costs; its variance on a quadratic is exactly 1/a for every stable ε, and its error elsewhere is
    of order ε². Minibatch noise biases it as it does SGLD.
    """

    step_size: Tensor | float

    def init(self, position: Tensor, evaluate: Evaluate, random: Random) -> State:
        return State(position, random.normal(position))

    def step(self, state: State, evaluate: Evaluate, random: Random) -> tuple[State, Draw]:
        here = evaluate(state.position)
        eps = column(self.step_size, state.position)
        noise = random.normal(state.position)
        moved = torch.addcmul(state.position, here.gradient, -0.5 * eps)
        moved = moved.addcmul_(state.noise + noise, 0.5 * eps.sqrt())
        return State(moved, noise), Draw(state.position, here, always(moved))
