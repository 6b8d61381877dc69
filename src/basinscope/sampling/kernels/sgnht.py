"""Stochastic gradient Nosé–Hoover thermostat (Ding et al. 2014)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..target import Evaluate
from .base import Draw, Random, always, column


class State(NamedTuple):
    position: Tensor
    momentum: Tensor
    thermostat: Tensor  # (C, 1)


@dataclass(frozen=True)
class SGNHT:
    """p' = p − h∇U − hξp + √(2Ah) N(0, I);  z' = z + hp';  ξ' = ξ + h(p'·p'/d − 1).

    The thermostat ξ absorbs minibatch noise that is isotropic; noise that differs by direction it cannot absorb.
    """

    step_size: Tensor | float
    diffusion: float = 1.0

    def init(self, position: Tensor, evaluate: Evaluate, random: Random) -> State:
        friction = torch.full((len(position), 1), self.diffusion, dtype=position.dtype, device=position.device)
        return State(position, random.normal(position), friction)

    def step(self, state: State, evaluate: Evaluate, random: Random) -> tuple[State, Draw]:
        here = evaluate(state.position)
        h = column(self.step_size, state.position)
        kick = -h * here.gradient - h * state.thermostat * state.momentum
        momentum = state.momentum + kick + (2 * self.diffusion * h).sqrt() * random.normal(state.position)
        thermostat = state.thermostat + h * (momentum.square().mean(1, keepdim=True) - 1)
        moved = State(state.position + h * momentum, momentum, thermostat)
        return moved, Draw(state.position, here, always(momentum))
