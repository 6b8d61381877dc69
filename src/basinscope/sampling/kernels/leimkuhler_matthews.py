"""Langevin dynamics with the averaged noise of Leimkuhler and Matthews (2013), with or without momentum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..target import Evaluate
from .base import Draw, Random, always, column


class State(NamedTuple):
    position: Tensor
    momentum: Tensor


@dataclass(frozen=True)
class LeimkuhlerMatthews:
    """z' = z − (ε/2) ∇U + √ε (ξ_k + ξ_{k+1})/2.

    Costs what SGLD costs; its variance on a quadratic is exactly 1/a for every stable ε, and its error elsewhere is
    of order ε². Minibatch noise biases it as it does SGLD.

    A `persistence` c in [0, 1) is the part of the momentum that a step keeps, with h = √ε:

        p ← p − h∇U,    p' = c p + √(1 − c²) ξ,    z' = z + (h/2)(p + p')

    These are the BAOAB steps h of underdamped dynamics with friction −log(c)/h. Where nothing pushes, positions spread
    as those of ε_c = ε(1 + c)/(1 − c) without persistence do, and gradient noise biases them as it would with ε_c; but
    they are stable, and exact on a quadratic, wherever those of ε are.
    """

    step_size: Tensor | float
    persistence: Tensor | float = 0.0

    def init(self, position: Tensor, evaluate: Evaluate, random: Random) -> State:
        return State(position, random.normal(position))

    def step(self, state: State, evaluate: Evaluate, random: Random) -> tuple[State, Draw]:
        here = evaluate(state.position)
        h = column(self.step_size, state.position).sqrt()
        pushed = torch.addcmul(state.momentum, here.gradient, -h)
        momentum = random.normal(state.position)
        if isinstance(self.persistence, Tensor):
            persistence = column(self.persistence, state.position)
            momentum.mul_((1 - persistence.square()).sqrt()).addcmul_(pushed, persistence)
        elif self.persistence:
            momentum.mul_(math.sqrt(1 - self.persistence**2)).add_(pushed, alpha=self.persistence)
        moved = torch.addcmul(state.position, pushed.add_(momentum), 0.5 * h)
        return State(moved, momentum), Draw(state.position, here, always(moved))
