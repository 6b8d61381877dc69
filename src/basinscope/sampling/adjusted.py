"""Hamiltonian Monte Carlo on the full batch, tuned by itself and run until the answer stands still."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..progress import Report
from ..streams import Captured
from .adaptation import DualAveraging
from .convergence import below_zero, converged
from .engine import Engine
from .kernels import HMC
from .kernels.hmc import LEAPFROG, THREE_STAGES, Integrator
from .runs import Run
from .target import Evaluation, Target
from .trace import STATISTICS, Trace

WARMUP = 50
FIRST_ROUND = 40
FEWEST = 12  # transitions, whatever the budget
LONGEST = 1024  # gradients of a transition
USUAL = 48  # more only where the budget allows `TRANSITIONS` of them
TRANSITIONS = 64
TUNING = 12  # energy errors are all there after a few steps, so that longer paths would tune no better
FLIGHTS = 2  # transitions of a pilot that are as long as the slowest mode asks for
FLIGHT_SHARE = 6  # of the budget, for each of them
MANY = 1000  # parameters from which three stages go further than leapfrog steps with as many gradients
HARMLESS = 0.4  # error of the energy after a transition, as estimated for rounded forces, that changes little
STUCK = 0.6  # acceptance of a few transitions below which a step is made smaller at once
_CREDIBLE = 100.0  # a chain whose nβ·excess passes this many times the dimension has diverged


def path_length(target: Target) -> float:
    """A quarter period (π/2)/√a of the slowest whitened mode, whose curvature is a = γ r² ≤ 1."""
    return 0.5 * math.pi / min(1.0, math.sqrt(target.gamma) * target.whitening.rest)


def ceiling(target: Target) -> float:
    """The largest excess loss a chain may have before it counts as diverged."""
    return _CREDIBLE * (target.losses.dimension + 100) / target.nbeta


def integrator(target: Target) -> Integrator:
    """The one that goes furthest with as many gradients."""
    return THREE_STAGES if target.losses.dimension >= MANY else LEAPFROG


def first_step(target: Target) -> float:
    """Where tuning starts: somewhat below what most networks take, whitened as they are.

    Leapfrog steps follow the d^(−1/4) law. Those of three stages, with short paths accepted at 0.8, were 0.8 to 1.9 for
    networks of 800 to 180,000 parameters.
    """
    d = target.losses.dimension
    return d**-0.25 if integrator(target) is LEAPFROG else 0.5 * min(1.0, (d / 1e6) ** -0.25)


def expected_gradients(target: Target) -> int:
    """Gradients that a transition takes at least."""
    each = integrator(target).gradients
    return each * max(1, min(USUAL // each, math.ceil(path_length(target) / (1.3 * first_step(target)))))


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
    return size * math.sqrt(path_length(target) / integrator(target).gradients) < HARMLESS


def hamiltonian(
    target: Target, drift_first: bool = False, rounded: bool = False
) -> tuple[Captured[Evaluation], Callable[[float, int], HMC]]:
    """The target on all data, and a kernel for every step size and number of steps.

    On a GPU the target and its force are a CUDA graph each. Whole transitions would have to be captured anew for every
    step size and number of steps. Steps stay reversible with `rounded` forces, which are functions of the position too.
    """
    full = Captured(target.full)
    force, moves = Captured(partial(target.force, rounded=rounded), beside=full), integrator(target)
    return full, lambda size, count: HMC(size, count, target.energy, force, drift_first, moves)


def leaps(target: Target, size: float, most: int) -> int:
    """Steps to a quarter period of the slowest mode, as far as `most` gradients go."""
    return max(1, min(most // integrator(target).gradients, round(path_length(target) / size)))


def sample(
    target: Target,
    position: Tensor,
    *,
    seed: int,
    rtol: float,
    evaluations: int,
    report: Report,
    draws: int | None = None,
    step_size: float | None = None,
    first_size: float | None = None,
    warmup: int = WARMUP,
    discard: float = 0.5,
) -> Run:
    """HMC from `position` (C, d) until the mean excess loss is known to `rtol` or `evaluations` are spent.

    Warm-up tunes the step to the acceptance that the integrator asks for; the number of steps then makes a quarter
    period of the slowest mode, as far as the budget allows. Rounds grow by half, and the first half of everything is
    always burn-in. It ends at once when fewer than two chains are left.

    Args:
        target: the posterior.
        position: starting points, whitened.
        seed: of all random numbers.
        rtol: wanted relative standard error.
        evaluations: most gradients to take per chain, warm-up included; some transitions are made whatever they cost.
        report: progress.
        draws: exactly this many draws per chain instead of a tolerance.
        step_size: of the integrator, instead of the tuned one.
        first_size: where tuning starts.
        warmup: transitions that tune the step.
        discard: fraction of the draws that is burn-in.
    """
    generator = torch.Generator(position.device).manual_seed(seed)
    longest = min(LONGEST, max(USUAL, evaluations // TRANSITIONS))
    rounded = rounds_harmlessly(target, position)
    full, made = hamiltonian(target, rounded=rounded)

    def kernel(size: float, most: int = longest) -> HMC:
        return made(size, leaps(target, size, most))

    size = step_size or first_size or first_step(target)
    engine = Engine(kernel(size), full, position, generator, ceiling(target), target.controls)
    trace = Trace(len(position))
    interrupted = False

    def result(exhausted: bool) -> Run:
        steps: int = engine.kernel.leaps  # type: ignore[attr-defined]
        settings = {"leaps": steps, "path_length": path_length(target), "rounded": rounded}
        alive = engine.alive.cpu().numpy()
        relaxations = discard * trace.draws * min(1.0, steps * size / path_length(target)) ** 2
        return Run(
            target, trace, alive, engine.living(), size, settings, interrupted, exhausted, discard,
            relaxations=relaxations,
        )  # fmt: skip

    left = evaluations * 3 // 4  # a quarter is for tuning

    def affordable() -> int:
        """Draws that there can be in all at the present step size."""
        return draws or max(FEWEST, trace.draws + left // kernel(size).gradients)

    try:
        if step_size is None:
            size = _tuned(engine, partial(kernel, most=TUNING), size, warmup, evaluations // 4, report)
            engine.use(kernel(size))
        goal, limit = draws or FIRST_ROUND, affordable()
        while True:
            goal = min(goal, limit)
            while trace.draws < goal:
                block = engine.run(min(4, goal - trace.draws))
                trace.append(block)
                left -= len(block) * kernel(size).gradients
                if int(engine.alive.sum()) < 2:  # the dead stay dead, and one chain alone tells of no error
                    return result(exhausted=False)
                report(trace.draws / limit, f"{trace.draws} draws")
                if step_size is None and trace.draws <= discard * goal and _accepted(block) < STUCK:
                    size *= 0.8
                    engine.use(kernel(size))
                    limit = affordable()
                    goal = min(goal, limit)
            run = result(exhausted=False)
            done = draws is not None or converged(run, rtol) or below_zero(run)
            if done or goal >= limit:
                return result(exhausted=not done)
            accepted = run.summary("acceptance").mean
            if step_size is None and not 0.6 < accepted < 0.95:
                # The typical set is stiffer or softer than the neighbourhood of w*: the first half is dropped anyway.
                size = size * (0.7 if accepted < 0.6 else 1.3)
                engine.use(kernel(size))
                limit = affordable()
            goal = math.ceil(1.5 * goal)
    except KeyboardInterrupt:
        interrupted = True
        if trace.draws < 16:
            raise
        return result(exhausted=True)


def pilot(target: Target, position: Tensor, seed: int, steps: int, evaluations: int) -> tuple[Tensor, float, int]:
    """Where chains from the minimum `position` are after `steps` short transitions and a few long ones, the step size
    tuned on the way, and what the long ones left of the `evaluations`.

    From rest, a mode is in equilibrium after a quarter of its period; by short transitions it gets there as a random
    walk does. The long ones take a quarter period of the slowest mode, or a share of the `evaluations`.
    """
    generator = torch.Generator(position.device).manual_seed(seed)
    full, made = hamiltonian(target, drift_first=True)

    def kernel(size: float, most: int = TUNING) -> HMC:
        return made(size, leaps(target, size, most))

    size = first_step(target)
    engine = Engine(kernel(size), full, position, generator, ceiling(target))
    size = _tuned(engine, kernel, size, steps, steps * TUNING, lambda fraction, text: None)
    longest = max(TUNING, min(LONGEST, evaluations // FLIGHT_SHARE))
    flown = 0
    for flight in range(1, FLIGHTS + 2):
        long = kernel(size, longest)
        engine.use(long)
        accepted = _accepted(engine.run(1))
        evaluations -= long.gradients
        if accepted < STUCK:  # it leads to where the landscape is stiffer
            size *= 0.5
        else:
            flown += 1
        if flown and flight >= FLIGHTS:  # one more only if none was accepted
            break
    return engine.living(), size, evaluations


def _tuned(
    engine: Engine, kernel: Callable[[float], HMC], size: float, steps: int, evaluations: int, report: Report
) -> float:
    """The step size after `steps` transitions, or fewer once `evaluations` are spent."""
    tuner = DualAveraging(size, kernel(size).integrator.acceptance)
    for step in range(steps):
        now = kernel(tuner.step_size)
        engine.use(now)
        tuner.update(_accepted(engine.run(1)))
        report(0.0, f"tuning {step + 1}/{steps}")
        evaluations -= now.gradients
        if (evaluations <= 0 and step >= FEWEST) or not bool(engine.alive.any()):
            break
    return tuner.final


def _accepted(block: NDArray[np.float64]) -> float:
    """Mean acceptance of the chains that live, 0 if none does."""
    values = block[..., STATISTICS.index("acceptance")]
    return float(np.nanmean(values)) if np.isfinite(values).any() else 0.0
