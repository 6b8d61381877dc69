"""Langevin chains on minibatches at three step sizes at once, extrapolated to step size zero."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ..progress import Report
from .adjusted import ceiling
from .engine import Engine
from .extrapolation import UNSEEN_BEND, extrapolated, use_virials
from .kernels import LeimkuhlerMatthews
from .pace import SMALLEST, TOLERATED_BIAS, Pace, Pacing, seen_steps, slowest_mode
from .runs import Run, below_zero
from .target import Evaluate, Evaluation, Target
from .trace import Trace

FRACTIONS = (1.0, 0.5, 0.25)  # of the largest step size
BLOCK = 64  # steps between two looks at the chains
PILOT_STEP = 0.5
LAST = 0.5  # of the budget, that steps which were chosen last get at least
TELLING = 256  # steps from which on the chains' own means tell of the bias of their steps


def minibatches(target: Target, batch_size: int, generator: torch.Generator, mean: Tensor | None) -> Evaluate:
    """Evaluations on fresh samples for every chain and call; `mean` = g_n(w*) switches control variates on."""

    def evaluate(position: Tensor) -> Evaluation:
        indices = torch.randint(
            target.losses.land.n, (len(position), batch_size), generator=generator, device=position.device
        )
        if mean is None:
            return target.minibatch(position, indices)
        return target.controlled(position, indices, mean)

    return evaluate


def evaluations(target: Target, batch_size: int, generator: torch.Generator, mean: Tensor | None) -> Evaluate:
    """As `minibatches`; with as many samples as there are, on all of them."""
    if batch_size >= target.losses.land.n:
        return target.full
    return minibatches(target, batch_size, generator, mean)


def noise_trace(evaluate: Evaluate, position: Tensor, repeats: int = 4) -> float:
    """Tr of the covariance of the whitened minibatch gradient, from pairs of independent minibatches."""
    halves = [
        (evaluate(position).gradient - evaluate(position).gradient).double().square().sum(1).mean() / 2
        for _ in range(repeats)
    ]
    return float(torch.stack(halves).mean())


def pilot(target: Target, position: Tensor, *, batch_size: int, seed: int, steps: int) -> tuple[Tensor, float]:
    """Where chains from `position` are after at most `steps` steps, and their mean excess loss in the last quarter.

    The step size is divided by 4 while chains diverge. Chains must leave w* before anything is measured: gradient
    noise is smallest there, and curvature not typical.
    """
    generator = torch.Generator(position.device).manual_seed(seed)
    evaluate = evaluations(target, batch_size, generator, None)
    size = PILOT_STEP
    while True:
        engine = Engine(LeimkuhlerMatthews(size), evaluate, position, generator, ceiling(target))
        length = max(16, math.ceil(min(steps, 4 / (size * slowest_mode(target)))))
        record = engine.run(length)
        if bool(engine.alive.all()) or size <= SMALLEST:
            last = record[-length // 4 :, engine.alive.cpu().numpy(), 0]
            return engine.living(), float(last.mean()) if last.size else 0.0
        size /= 4


def sample(
    target: Target,
    position: Tensor,
    gradient: Tensor,
    *,
    batch_size: int,
    grows: bool,
    guess: float,
    seed: int,
    rtol: float,
    price: Callable[[int], float],
    budget: float,
    relaxations: float,
    report: Report,
) -> tuple[list[Run], Pace, bool]:
    """One run per step size of `FRACTIONS`, all chains in one batch; their pace, and whether control variates were
    used.

    Minibatch noise of whitened trace N lifts λ̂ by about εN/8, so the largest step is chosen to keep that below a
    fifth of the expected λ, and halved while the measured spread between step sizes is larger. Where steps are long by
    momentum they are chosen anew, and the batch with them, as chains spread: noise grows, and their own means begin to
    tell what it does. Control variates at w* double a step's cost; they are used where they more than halve N at the
    chains' own positions.

    Args:
        target: the posterior.
        position: starting points, whitened (C, d); C a multiple of 3.
        gradient: g_n(w*), (d,).
        batch_size: samples per chain and step, to begin with.
        grows: whether there may be more of them.
        guess: of the mean excess loss.
        seed: of all random numbers.
        rtol: wanted relative standard error of the extrapolation.
        price: of a step of all chains on so many samples each.
        budget: what may be spent.
        relaxations: length of the first round in units of 1/(εa), a the slowest mode's curvature, ε the smallest step.
        report: progress.
    """
    generator = torch.Generator(position.device).manual_seed(seed)
    plain, controlled = (evaluations(target, batch_size, generator, mean) for mean in (None, gradient))
    group = len(position) // len(FRACTIONS)
    fractions = torch.tensor(FRACTIONS, device=position.device).repeat_interleave(group)

    there = position
    use_control = 2 * noise_trace(controlled, there) < noise_trace(plain, there)
    mean, evaluate = (gradient, controlled) if use_control else (None, plain)

    def paid(samples: int) -> float:
        return (2 if use_control and samples < target.losses.land.n else 1) * price(samples)

    pacing = Pacing(target, paid, budget, batch_size, grows)
    pacing.noise(noise_trace(evaluate, there), target.nbeta * guess)
    spent, most = 0.0, budget  # there is more to spend only where chains were lost late
    now = pacing.best()
    while True:
        evaluate = evaluations(target, now.batch, generator, mean)
        engine = Engine(now.kernel(fractions), evaluate, there, generator, ceiling(target), target.soft_virial)
        trace = Trace(len(position))
        goal = math.ceil(relaxations / (now.size * FRACTIONS[-1] * slowest_mode(target)))
        look, better = BLOCK, None
        try:
            while better is None:
                goal = min(goal, trace.draws + max(BLOCK, int((most - spent) / now.price)))
                while trace.draws < goal and better is None:
                    block = engine.run(min(BLOCK, goal - trace.draws))
                    trace.append(block)
                    spent += now.price * len(block)
                    report(spent / most, f"{trace.draws} steps of size {now.size:.3g} on {now.batch} samples")
                    if not bool(engine.alive.all()):  # a round to its end would teach no more
                        pacing.lost(now, 2 if float(engine.alive.double().mean()) > 0.75 else 4)
                        better, most = pacing.best(), max(most, spent + LAST * budget)
                        if better.size <= SMALLEST:
                            return _split(target, trace, engine, now.size, exhausted=True), now, use_control
                    elif now.persistence and trace.draws >= look and spent < (1 - LAST) * budget:
                        # Noise grows as chains spread, and steps that are long by momentum have gone far by then.
                        look *= 2
                        finest = target.nbeta * float(block[:, -group:, 0].mean())
                        pacing.noise(noise_trace(evaluate, engine.position[-group:]), finest, now, FRACTIONS[-1])
                        if trace.draws >= TELLING:
                            pacing.seen(seen_steps(_split(target, trace, engine, now.size)), now)
                        better = pacing.better(now)
                if better is None:
                    runs = _split(target, trace, engine, now.size, exhausted=spent >= most)
                    if spent >= most or _settled(runs, rtol) or all(map(below_zero, runs)):
                        return runs, now, use_control
                    if _spread(runs) > 2 * TOLERATED_BIAS and spent < (1 - LAST / 2) * budget:
                        pacing.bent(now)
                        better = pacing.best()
                    goal = math.ceil(1.5 * goal)
        except KeyboardInterrupt:
            if trace.draws < BLOCK:
                raise
            return _split(target, trace, engine, now.size, interrupted=True, exhausted=True), now, use_control
        there, now = engine.living(), better


def _split(
    target: Target, trace: Trace, engine: Engine, size: float, *, interrupted: bool = False, exhausted: bool = False
) -> list[Run]:
    alive = engine.alive.cpu().numpy()
    group = len(alive) // len(FRACTIONS)
    there = engine.living()
    runs = []
    for number, fraction in enumerate(FRACTIONS):
        own = np.zeros_like(alive)
        own[number * group : (number + 1) * group] = True
        runs.append(Run(target, trace, alive & own, there, size * fraction, {}, interrupted, exhausted))
    return runs


def _settled(runs: list[Run], rtol: float) -> bool:
    if any(run.alive.sum() < 2 for run in runs):
        return False
    found, control = extrapolated(runs), use_virials(runs)
    value = found.value
    attainable = math.hypot(rtol, UNSEEN_BEND * found.slope)  # more draws do not shorten the extrapolation
    still = all(
        abs(run.drift(control)) <= max(rtol * abs(value), 3 * math.sqrt(2) * run.excess(control)[1]) for run in runs
    )
    return bool(value > 0 and found.stderr <= attainable * value and still)


def _spread(runs: list[Run]) -> float:
    """Relative distance between the largest step's mean and the extrapolation."""
    if any(run.alive.sum() < 2 for run in runs):
        return math.inf
    found = extrapolated(runs)
    away = abs(runs[0].excess(use_virials(runs))[0] - found.value)
    return (away - 2 * found.error) / max(abs(found.value), 1e-300)
