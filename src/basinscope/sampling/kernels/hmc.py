"""Hamiltonian Monte Carlo (Duane et al. 1987) with unit mass and jittered step size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..target import Evaluate, Evaluation
from .base import Draw, Random, column, squared_norm
from .metropolis import Point, choose


@dataclass(frozen=True)
class HMC:
    """`leaps` leapfrog steps of size h, then accept with probability min(1, exp(−ΔU − ΔK)).

    Exact for every h on the full batch. Each chain's step is jittered by ±20 %, so that no mode's period is ever a
    multiple of the path length; one transition in four takes a step smaller by up to 10^1.5, which reaches into
    valleys narrower than the typical one, where the usual step would always be rejected.

    `forces` gives the gradient alone, for the steps inside the path, where no energy is needed; it must be the
    gradient that `evaluate` returns.

    A leapfrog step kicks, drifts and kicks, or drifts, kicks and drifts with `drift_first`. On a quadratic of curvature
    a the first gains a²h²(z'² − z²)/8 of energy, the second ah²(p'² − p²)/8. From a minimum z grows and p shrinks: the
    first is rejected in high dimension unless h ∝ d^(−1/2), the second accepted, so that chains leave it at once. In
    equilibrium both need h ∝ d^(−1/4), and the first one gradient fewer.
    """

    step_size: Tensor | float
    leaps: int
    energy: Callable[[Evaluation], Tensor]
    forces: Callable[[Tensor], Tensor]
    drift_first: bool = False

    def init(self, position: Tensor, evaluate: Evaluate, random: Random) -> Point:
        here = evaluate(position)
        return Point(position, *here, self.energy(here))

    def step(self, state: Point, evaluate: Evaluate, random: Random) -> tuple[Point, Draw]:
        momentum = random.normal(state.position)
        h = column(self.step_size, state.position) * _wobble(random, state.position[:, :1])
        kinetic = squared_norm(momentum)
        position, momentum, there = self.path(state.position, momentum, h, state.gradient, evaluate)
        new = Point(position, *there, self.energy(there))
        log_ratio = state.energy - new.energy + 0.5 * (kinetic - squared_norm(momentum))
        chosen, acceptance = choose(state, new, log_ratio, random.uniform(log_ratio))
        return chosen, Draw(chosen.position, chosen.evaluation, acceptance)

    def path(
        self, position: Tensor, momentum: Tensor, h: Tensor, gradient: Tensor, evaluate: Evaluate
    ) -> tuple[Tensor, Tensor, Evaluation]:
        """Position, momentum and evaluation after `leaps` steps of size h; `gradient` is that at the beginning."""
        if self.drift_first:
            position = torch.addcmul(position, momentum, 0.5 * h)
            momentum = torch.addcmul(momentum, self.forces(position), -h)
        else:
            momentum = torch.addcmul(momentum, gradient, -0.5 * h)
        for _ in range(self.leaps - 1):
            position = torch.addcmul(position, momentum, h)
            momentum = torch.addcmul(momentum, self.forces(position), -h)
        position = torch.addcmul(position, momentum, 0.5 * h if self.drift_first else h)
        there = evaluate(position)
        if not self.drift_first:
            momentum = torch.addcmul(momentum, there.gradient, -0.5 * h)
        return position, momentum, there


def _wobble(random: Random, like: Tensor) -> Tensor:
    """Factors on the step size, one per chain."""
    spread = random.uniform(like)
    return torch.where(random.uniform(like) < 0.25, 10 ** (-1.5 * spread), 0.8 + 0.4 * spread)
