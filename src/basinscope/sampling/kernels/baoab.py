"""Underdamped Langevin dynamics by the BAOAB splitting (Leimkuhler and Matthews 2013)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from ..target import Evaluate
from .base import Draw, Random, always, column


class State(NamedTuple):
    position: Tensor
    momentum: Tensor
    gradient: Tensor


@dataclass(frozen=True)
class BAOAB:
    """Half kick, half drift, friction and noise, half drift, half kick, with unit mass.

    Positions are exact on quadratics for every stable step h (ha^½ < 2); modes slower than the friction mix in a
    time ∝ a^(−½) instead of Langevin's a^(−1).
    """

    step_size: Tensor | float
    friction: float = 1.0

    def init(self, position: Tensor, evaluate: Evaluate, random: Random) -> State:
        return State(position, random.normal(position), evaluate(position).gradient)

    def step(self, state: State, evaluate: Evaluate, random: Random) -> tuple[State, Draw]:
        h = column(self.step_size, state.position)
        keep = (-self.friction * h).exp()
        momentum = state.momentum - 0.5 * h * state.gradient
        middle = state.position + 0.5 * h * momentum
        momentum = keep * momentum + (1 - keep.square()).sqrt() * random.normal(momentum)
        position = middle + 0.5 * h * momentum
        here = evaluate(position)
        momentum = momentum - 0.5 * h * here.gradient
        return State(position, momentum, here.gradient), Draw(position, here, always(position))
