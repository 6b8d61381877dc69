"""Stochastic gradient Langevin dynamics (Welling and Teh 2011), the sampler of Lau et al. 2023."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..target import Evaluate
from .base import Draw, Random, always, column


class State(NamedTuple):
    position: Tensor


@dataclass(frozen=True)
class SGLD:
    """z' = z − (ε/2) ∇U + √ε ξ.

    Biased at every ε > 0: on a quadratic mode of curvature a the variance is 1/(a(1 − εa/4)), and minibatch noise of
    covariance N adds a factor 1 + εN/4. Stable for εa < 4.
    """

    step_size: Tensor | float

    def init(self, position: Tensor, evaluate: Evaluate, random: Random) -> State:
        return State(position)

    def step(self, state: State, evaluate: Evaluate, random: Random) -> tuple[State, Draw]:
        here = evaluate(state.position)
        eps = column(self.step_size, state.position)
        noise = random.normal(state.position)
        moved = torch.addcmul(state.position, noise, eps.sqrt(), out=noise).addcmul_(here.gradient, -0.5 * eps)
        return State(moved), Draw(state.position, here, always(moved))
