"""Langevin chains on minibatches at three step sizes at once, extrapolated to step size zero."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ..progress import Report
from .adjusted import ceiling
from .convergence import below_zero, max_drift, mixed
from .engine import Engine
from .extrapolation import UNSEEN_BEND, Extrapolation, extrapolated
from .minibatches import evaluations, gradient_noise, later, noise_trace
from .pace import SMALLEST, TOLERATED_BIAS, Pace, Pacing, seen_steps, slowest_mode
from .runs import Run
from .target import Target
from .trace import Trace
from .warming import BLOCK, gentler, warmed

FRACTIONS = (1.0, 0.5, 0.25)  # of the largest step size
WARM = 0.6  # of the budget, at most, for finding the posterior
BURN_IN = 0.5  # of the steps
LAST = 0.5  # of the rest, that steps which were chosen last get at least
TELLING = 256  # steps from which on the chains' own means tell of the bias of their steps


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
    price: Callable[[int, int], float],
    budget: float,
    relaxations: float,
    report: Report,
) -> tuple[list[Run], Pace, bool]:
    """One run per step size of `FRACTIONS`, all chains in one batch; their pace, and whether control variates were
    used.

    First a third of the chains find the posterior by the largest step. Then others join them there, for the smaller
    steps: on their own they would be slower to find it, and their means too low beside those of the largest.

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
        price: of a step on so many samples each of so many chains.
        budget: what may be spent.
        relaxations: of the slowest mode at least, before chains count as having found the posterior, and of the
            smallest step in the first round.
        report: progress.
    """
    generator = torch.Generator(position.device).manual_seed(seed)
    plain, controlled = (evaluations(target, batch_size, generator, mean) for mean in (None, gradient))
    group = len(position) // len(FRACTIONS)
    fractions = torch.tensor(FRACTIONS, device=position.device).repeat_interleave(group)

    there = position[:group]
    use_control = 2 * noise_trace(controlled, there) < noise_trace(plain, there)
    mean, evaluate = (gradient, controlled) if use_control else (None, plain)

    def paid(samples: int, chains: int) -> float:
        return (2 if use_control and samples < target.losses.land.n else 1) * price(samples, chains)

    pacing = Pacing(target, paid, batch_size, grows, group, WARM * budget)
    pacing.noise(noise_trace(evaluate, there), target.nbeta * guess)
    there, spent = warmed(
        target, there, pacing, generator=generator, mean=mean, budget=WARM * budget, relaxations=relaxations,
        report=lambda share, text: report(WARM * share, text),
    )  # fmt: skip
    there = there.repeat(len(FRACTIONS), 1)
    budget, spent = budget - spent, 0.0
    pacing.go_on(len(there), budget)
    most = budget  # there is more to spend only where chains were lost late
    now = pacing.best()
    while True:
        evaluate = evaluations(target, now.batch, generator, mean)
        engine = Engine(now.kernel(fractions), evaluate, there, generator, ceiling(target), target.controls)
        trace, noises = Trace(len(there)), list[Tensor]()
        goal = math.ceil(relaxations * now.relaxation(FRACTIONS[-1], slowest_mode(target)))
        look, better = BLOCK, None
        try:
            while better is None:
                goal = min(goal, trace.draws + max(BLOCK, int((most - spent) / now.price)))
                while trace.draws < goal and better is None:
                    block = engine.run(min(BLOCK, goal - trace.draws))
                    trace.append(block)
                    spent += now.price * len(block)
                    share = WARM + (1 - WARM) * spent / most
                    report(share, f"{trace.draws} steps of size {now.size:.3g} on {now.batch} samples")
                    if now.noisy:
                        noises.append(gradient_noise(evaluate, engine.position))
                        spent += 2 * now.price
                    if not bool(engine.alive.all()):  # a round to its end would teach no more
                        better, most = gentler(pacing, now, engine), max(most, spent + LAST * budget)
                        if better.size <= SMALLEST:
                            return _split(target, trace, engine, now, noises, exhausted=True), now, use_control
                    elif now.persistence and trace.draws >= look and spent < (1 - LAST) * budget:
                        look *= 2
                        if noises:
                            seen = float(later(noises)[:, -group:].mean())
                            finest = target.nbeta * float(block[:, -group:, 0].mean())
                            pacing.noise(seen, finest, now, FRACTIONS[-1])
                        if trace.draws >= TELLING:
                            pacing.seen(seen_steps(_split(target, trace, engine, now, noises)), now)
                        better = pacing.better(now)
                if better is None:
                    runs = _split(target, trace, engine, now, noises, exhausted=spent >= most)
                    if spent >= most or _settled(runs, rtol) or all(map(below_zero, runs)):
                        return runs, now, use_control
                    if _spread(runs) > 2 * TOLERATED_BIAS and spent < (1 - LAST / 2) * budget:
                        pacing.bent(now)
                        better = pacing.best()
                    goal = math.ceil(1.5 * goal)
        except KeyboardInterrupt:
            if trace.draws < BLOCK:
                raise
            runs = _split(target, trace, engine, now, noises, interrupted=True, exhausted=True)
            return runs, now, use_control
        there, now = engine.living(), better


def _split(
    target: Target,
    trace: Trace,
    engine: Engine,
    now: Pace,
    noises: list[Tensor],
    *,
    interrupted: bool = False,
    exhausted: bool = False,
) -> list[Run]:
    alive = engine.alive.cpu().numpy()
    group = len(alive) // len(FRACTIONS)
    there = engine.living()
    kept = later(noises).mean(0).cpu().numpy() if noises else np.zeros(len(alive))
    runs = []
    for number, fraction in enumerate(FRACTIONS):
        own = np.zeros_like(alive)
        own[number * group : (number + 1) * group] = True
        own &= alive
        noise = float(kept[own].mean()) if own.any() else 0.0
        relaxations = BURN_IN * trace.draws / now.relaxation(fraction, slowest_mode(target))
        runs.append(
            Run(target, trace, own, there, now.size * fraction, {}, interrupted, exhausted, BURN_IN, noise, relaxations)
        )
    return runs


def _settled(runs: list[Run], rtol: float) -> bool:
    if any(run.alive.sum() < 2 for run in runs):
        return False
    found = extrapolated(runs)
    attainable = math.hypot(rtol, UNSEEN_BEND * found.slope)  # more draws do not shorten the extrapolation
    precise = found.value > 0 and found.stderr <= attainable * found.value
    return precise and mixed(runs, found.stderr, found.value, rtol) and all(_still(run, rtol, found) for run in runs)


def _still(run: Run, rtol: float, found: Extrapolation) -> bool:
    """Whether a run's mean no longer moves."""
    stderr = run.corrected(found.correction).stderr
    return abs(run.drift(found.correction)) <= max_drift(stderr, found.value, rtol)


def _spread(runs: list[Run]) -> float:
    """Relative distance between the largest step's mean and the extrapolation."""
    return math.inf if any(run.alive.sum() < 2 for run in runs) else extrapolated(runs).spread
