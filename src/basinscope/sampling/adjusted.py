"""Hamiltonian Monte Carlo on the full batch, tuned by itself and run until the answer stands still."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..streams import Captured
from .adaptation import DualAveraging
from .clock import Clock
from .convergence import below_zero, converged
from .engine import Engine
from .goal import Goal
from .kernels import HMC
from .kernels.hmc import LEAPFROG, THREE_STAGES, Integrator
from .runs import Run
from .target import Evaluation, Target
from .trace import Trace, statistic

WARMUP_TRANSITIONS = 50  # that tune the step of chains which start anew
RETUNING_TRANSITIONS = 12  # of chains whose step is known from a neighbouring resolution
FIRST_ROUND = 40
MIN_DRAWS = 12  # whatever the budget
MIN_TUNING = 8  # transitions
MAX_PATH = 1024  # gradients of a transition
USUAL_PATH = 48  # more only where the budget allows `TRANSITIONS` of them
SHORTEST_PATH = 6  # where the budget allows no more than few transitions
TRANSITIONS = 64
TUNING_PATH = 12  # energy errors are all there after a few steps, so that longer paths would tune no better
TUNING_SHARE = 0.25  # of what is left, at most
PILOT_SHARE = 0.1  # of what is left, for a pilot's short transitions
FLIGHTS = 2  # transitions of a pilot that are as long as the slowest mode asks for
FLIGHT_SHARE = 6  # of the budget, for each of them
MIN_THREE_STAGE_DIMENSION = 1000  # from which three stages go further than leapfrog steps with as many gradients
MAX_ROUNDED_ERROR = 0.4  # of the energy after a transition, as estimated for rounded forces, that changes little
MIN_ACCEPTANCE = 0.6  # of a few transitions, below which a step is made smaller at once
_BLOCK = 4  # transitions between two looks at the chains, at most
_MIN_INTERRUPTED = 16  # draws of an interrupted run that are worth something
_CREDIBLE = 100.0  # a chain whose nβ·excess passes this many times the dimension has diverged


def path_length(target: Target) -> float:
    """A quarter period (π/2)/√a of the slowest whitened mode, whose curvature is a = γ r² ≤ 1."""
    return 0.5 * math.pi / min(1.0, math.sqrt(target.gamma) * target.whitening.rest)


def ceiling(target: Target) -> float:
    """The largest excess loss a chain may have before it counts as diverged."""
    return (_CREDIBLE * (target.losses.dimension + 100) + target.drop) / target.nbeta


def integrator(dimension: int) -> Integrator:
    """The one that goes furthest with as many gradients."""
    return THREE_STAGES if dimension >= MIN_THREE_STAGE_DIMENSION else LEAPFROG


def first_step(dimension: int) -> float:
    """Where tuning starts: somewhat below what most networks take, whitened as they are.

    Leapfrog steps follow the d^(−1/4) law. Those of three stages, with short paths accepted at 0.8, were 0.8 to 1.9 for
    networks of 800 to 180,000 parameters.
    """
    if integrator(dimension) is LEAPFROG:
        return dimension**-0.25
    return 0.5 * min(1.0, (dimension / 1e6) ** -0.25)


def expected_gradients(dimension: int, complete: bool) -> int:
    """Gradients that a transition takes at least, with all of the curvature known or a part of it."""
    each = integrator(dimension).gradients
    path = 0.5 * math.pi if complete else math.inf
    return each * max(1, min(USUAL_PATH // each, math.ceil(min(path, USUAL_PATH) / (1.3 * first_step(dimension)))))


def rounds_harmlessly(target: Target, position: Tensor) -> bool:
    """Whether forces rounded to TF32, which a GPU has sooner, are as good as precise ones.

    Rounded ones are those of no energy. Momenta being standard normal, and errors e independent from one gradient to
    the next, the energy is off by |e|√(th) after a path of length t with a gradient at every h. With steps of 0.4 it
    was half of that, and no less with smaller ones, whose errors are alike; steps are taken to be 1 long here. Chains
    of 136,192 parameters, rounded, had to take steps a tenth as long as they can be.
    """
    if not target.losses.can_round:
        return False
    errors = target.force(position, rounded=True) - target.force(position)
    size = float(torch.linalg.vector_norm(errors, dim=1).square().mean().sqrt())
    return size * math.sqrt(path_length(target) / integrator(target.losses.dimension).gradients) < MAX_ROUNDED_ERROR


def hamiltonian(
    target: Target, drift_first: bool = False, rounded: bool = False
) -> tuple[Captured[Evaluation], Callable[[float, int], HMC]]:
    """The target on all data, and a kernel for every step size and number of steps.

    On a GPU the target and its force are a CUDA graph each. Whole transitions would have to be captured anew for every
    step size and number of steps. Steps stay reversible with `rounded` forces, which are functions of the position too.
    """
    full = Captured(target.full)
    force, moves = Captured(partial(target.force, rounded=rounded), beside=full), integrator(target.losses.dimension)
    return full, lambda size, count: HMC(size, count, target.energy, force, drift_first, moves)


def leaps(target: Target, size: float, most: int) -> int:
    """Steps to a quarter period of the slowest mode, as far as `most` gradients go."""
    return max(1, min(most // integrator(target.losses.dimension).gradients, round(path_length(target) / size)))


def sample(
    target: Target,
    position: Tensor,
    goal: Goal,
    price: float,
    *,
    step_size: float | None = None,
    first_size: float | None = None,
    warmup: int = WARMUP_TRANSITIONS,
) -> Run:
    """HMC from `position` (C, d) until the mean excess loss is known to the goal's tolerance for good, or no time is
    left.

    Warm-up tunes the step to the acceptance that the integrator asks for; the number of steps then makes a quarter
    period of the slowest mode, as far as the budget allows. Rounds grow by half, and the first half of everything is
    always burn-in. It ends at once when fewer than two chains are left.

    Args:
        target: the posterior.
        position: starting points, whitened.
        goal: what to reach, in what time.
        price: seconds of one gradient of all chains.
        step_size: of the integrator, instead of the tuned one.
        first_size: where tuning starts.
        warmup: transitions that tune the step.
    """
    chains = _Hamiltonian(target, position, goal, price, step_size or first_size or first_step(target.losses.dimension))
    try:
        if step_size is None:
            chains.tune(warmup)
        return chains.run(tuned=step_size is None)
    except KeyboardInterrupt:
        if chains.trace.draws < _MIN_INTERRUPTED:
            raise
        return chains.result(exhausted=True, interrupted=True)


class _Hamiltonian:
    """Chains on their way, with the settings that they have now."""

    def __init__(self, target: Target, position: Tensor, goal: Goal, price: float, size: float) -> None:
        self.trace = Trace(len(position))
        self._target, self._goal, self._price, self._size = target, goal, price, size
        self._longest = _longest(goal.clock.left(), price)
        self._rounded = rounds_harmlessly(target, position)
        full, self._made = hamiltonian(target, rounded=self._rounded)
        generator = torch.Generator(position.device).manual_seed(goal.seed)
        self._engine = Engine(
            self._kernel(size, self._longest), full, position, generator, ceiling(target), target.controls
        )

    def tune(self, transitions: int) -> None:
        """Find the step size."""
        tuning = partial(self._kernel, most=min(TUNING_PATH, self._longest))
        size, self._price = _tuned(
            self._engine, tuning, self._size, transitions, self._goal.clock, self._price, TUNING_SHARE
        )
        self._longest = _longest(self._goal.clock.left(), self._price)
        self._use(size)

    def run(self, tuned: bool) -> Run:
        """Rounds until the goal is reached twice in turn; a `tuned` step may still change while draws are burn-in.

        Chains that stop as soon as their error looks small stop where it happens to: the round after that one decides.
        """
        goal = self._goal
        wanted, reached = goal.draws or FIRST_ROUND, False
        while True:
            timely = self._round(wanted, tuned)
            run = self.result()
            if int(self._engine.alive.sum()) < 2:  # the dead stay dead, and one chain alone tells of no error
                return run
            before, reached = reached, converged(run, goal.rtol)
            if goal.draws is not None or (before and reached) or below_zero(run):
                return run
            if not timely:
                return self.result(exhausted=not reached)
            accepted = run.summary("acceptance").mean
            if tuned and not MIN_ACCEPTANCE < accepted < 0.95:
                # The typical set is stiffer or softer than the neighbourhood of w*: the first half is dropped anyway.
                self._use(self._size * (0.7 if accepted < MIN_ACCEPTANCE else 1.3))
            wanted = math.ceil(1.5 * wanted)

    def _round(self, wanted: int, tuned: bool) -> bool:
        """Draw until there are so many, or no time is left; whether there was enough of it."""
        goal, trace = self._goal, self.trace
        while trace.draws < wanted:
            price = self._engine.kernel.gradients * self._price  # type: ignore[attr-defined]
            block = self._engine.run(min(goal.block(price, _BLOCK), wanted - trace.draws))
            trace.append(block)
            goal.clock.spend(len(block) * price)
            if int(self._engine.alive.sum()) < 2:
                return True
            left = goal.clock.left()
            mean = self.result().plain() if trace.draws >= _MIN_INTERRUPTED else None
            goal.tell(left, f"{trace.draws} draws", self._target.nbeta, mean)
            if tuned and trace.draws <= goal.discard * wanted and _accepted(block) < MIN_ACCEPTANCE:
                self._use(0.8 * self._size)
            if goal.draws is None and left <= 0 and trace.draws >= MIN_DRAWS:
                return False
        return True

    def result(self, exhausted: bool = False, interrupted: bool = False) -> Run:
        """What the draws so far tell."""
        target, engine, discard = self._target, self._engine, self._goal.discard
        steps: int = engine.kernel.leaps  # type: ignore[attr-defined]
        settings = {"leaps": steps, "path_length": path_length(target), "rounded": self._rounded}
        alive = engine.alive.cpu().numpy()
        relaxations = discard * self.trace.draws * min(1.0, steps * self._size / path_length(target)) ** 2
        return Run(
            target, self.trace, alive, engine.living(), self._size, settings, interrupted, exhausted, discard,
            relaxations=relaxations,
        )  # fmt: skip

    def _kernel(self, size: float, most: int) -> HMC:
        return self._made(size, leaps(self._target, size, most))

    def _use(self, size: float) -> None:
        self._size = size
        self._engine.use(self._kernel(size, self._longest))


def _longest(seconds: float, price: float) -> int:
    """Gradients of a transition: as many as usual, more where there is time for many such transitions, fewer where
    there would hardly be any."""
    affordable = int(seconds / price)
    usual = max(SHORTEST_PATH, min(USUAL_PATH, affordable // (2 * MIN_DRAWS)))
    return min(MAX_PATH, max(usual, affordable // TRANSITIONS))


def pilot(
    target: Target, position: Tensor, seed: int, steps: int, clock: Clock, price: float
) -> tuple[Tensor, float, float]:
    """Where chains from the minimum `position` are after `steps` short transitions and a few long ones, the step
    size tuned on the way, and what a gradient has taken.

    From rest, a mode is in equilibrium after a quarter of its period; by short transitions it gets there as a random
    walk does. The long ones take a quarter period of the slowest mode, or a share of the time.

    Args:
        target: the posterior.
        position: where they start, whitened.
        seed: of all random numbers.
        steps: short transitions, at most.
        clock: says how much time is left.
        price: seconds of one gradient of all chains.
    """
    generator = torch.Generator(position.device).manual_seed(seed)
    full, made = hamiltonian(target, drift_first=True)
    short = min(TUNING_PATH, _longest(clock.left(), price))

    def kernel(size: float, most: int = short) -> HMC:
        return made(size, leaps(target, size, most))

    size = first_step(target.losses.dimension)
    engine = Engine(kernel(size), full, position, generator, ceiling(target))
    size, price = _tuned(engine, kernel, size, steps, clock, price, PILOT_SHARE)
    longest = max(SHORTEST_PATH, min(MAX_PATH, int(clock.left() / price) // FLIGHT_SHARE))
    flown = 0
    for flight in range(1, FLIGHTS + 2):
        long = kernel(size, longest)
        engine.use(long)
        accepted = _accepted(engine.run(1))
        clock.spend(long.gradients * price)
        if accepted < MIN_ACCEPTANCE:  # it leads to where the landscape is stiffer
            size *= 0.5
        else:
            flown += 1
        if flown and flight >= FLIGHTS:  # one more only if none was accepted
            break
    return engine.living(), size, price


def _tuned(
    engine: Engine,
    kernel: Callable[[float], HMC],
    size: float,
    steps: int,
    clock: Clock,
    price: float,
    share: float,
) -> tuple[float, float]:
    """The step size after `steps` transitions, or fewer once that share of the time that is left is spent; and what a
    gradient has taken."""
    tuner = DualAveraging(size, kernel(size).integrator.acceptance)
    start = left = clock.left()
    enough, gradients = (1 - share) * left, 0
    for step in range(steps):
        now = kernel(tuner.step_size)
        engine.use(now)
        tuner.update(_accepted(engine.run(1)))
        clock.spend(now.gradients * price)
        gradients += now.gradients
        if step % _BLOCK == _BLOCK - 1:
            left = clock.left()
        if (left <= enough and step >= MIN_TUNING) or not bool(engine.alive.any()):
            break
    return tuner.final, max(price, (start - clock.left()) / gradients)


def _accepted(block: NDArray[np.float64]) -> float:
    """Mean acceptance of the chains that live, 0 if none does."""
    values = statistic(block, "acceptance")
    return float(np.nanmean(values)) if np.isfinite(values).any() else 0.0
