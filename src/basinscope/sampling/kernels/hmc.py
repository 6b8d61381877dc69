"""Hamiltonian Monte Carlo (Duane et al. 1987) with unit mass and jittered step size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from ..target import Evaluate, Evaluation
from .base import Draw, Random, column
from .metropolis import Point, choose


@dataclass(frozen=True)
class HMC:
    """`leaps` leapfrog steps of size h, then accept with probability min(1, exp(−ΔU − ΔK)).

    Exact for every h on the full batch. Each chain's step is jittered by ±`jitter`, so that no mode's period is ever
    a multiple of the path length. `forces` gives the gradient alone, for the steps inside the path, where no energy
    is needed; it must be the gradient that `evaluate` returns.
    """

    step_size: Tensor | float
    leaps: int
    energy: Callable[[Evaluation], Tensor]
    forces: Callable[[Tensor], Tensor]
    jitter: float = 0.2

    def init(self, position: Tensor, evaluate: Evaluate, random: Random) -> Point:
        here = evaluate(position)
        return Point(position, *here, self.energy(here))

    def step(self, state: Point, evaluate: Evaluate, random: Random) -> tuple[Point, Draw]:
        momentum = random.normal(state.position)
        wobble = 1 + self.jitter * (2 * random.uniform(state.position[:, :1]) - 1)
        h = column(self.step_size, state.position) * wobble
        kinetic = momentum.double().square().sum(1)
        position = state.position
        momentum = momentum - 0.5 * h * state.gradient
        for _ in range(self.leaps - 1):
            position = position + h * momentum
            momentum = momentum - h * self.forces(position)
        position = position + h * momentum
        there = evaluate(position)
        momentum = momentum - 0.5 * h * there.gradient
        new = Point(position, *there, self.energy(there))
        log_ratio = state.energy - new.energy + 0.5 * (kinetic - momentum.double().square().sum(1))
        chosen, acceptance = choose(state, new, log_ratio, random.uniform(log_ratio))
        return chosen, Draw(chosen.position, chosen.evaluation, acceptance)
