"""Langevin chains on minibatches at three step sizes at once, extrapolated to step size zero."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..progress import Report
from .adjusted import ceiling
from .engine import Engine
from .kernels import LeimkuhlerMatthews
from .runs import Run, below_zero
from .target import Evaluate, Evaluation, Target
from .trace import Trace

FRACTIONS = (1.0, 0.5, 0.25)  # of the largest step size
LARGEST_STEP = 0.5  # whitened curvature is at most 1 at w*, so Langevin steps are stable up to 4 there
TOLERATED_BIAS = 0.2  # of the largest step size, as predicted from its noise; beyond twice that the line is not trusted
UNSEEN_BEND = 0.2  # part of the extrapolated distance that counts as error
BENT = 3.0  # standard errors of its distance from the line beyond which the largest step is left out
LEFT = 2 / 3  # what a parabola leaves of that distance to the line through the other two


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
    evaluate = minibatches(target, batch_size, generator, None)
    slowest = min(1.0, target.gamma * target.whitening.rest**2)
    size = LARGEST_STEP
    while True:
        engine = Engine(LeimkuhlerMatthews(size), evaluate, position, generator, ceiling(target))
        length = max(16, math.ceil(min(steps, 4 / (size * slowest))))
        record = engine.run(length)
        if bool(engine.alive.all()) or size < 1e-6:
            last = record[-length // 4 :, engine.alive.cpu().numpy(), 0]
            return engine.living(), float(last.mean()) if last.size else 0.0
        size /= 4


def sample(
    target: Target,
    position: Tensor,
    gradient: Tensor,
    *,
    batch_size: int,
    guess: float,
    seed: int,
    rtol: float,
    evaluations: int,
    relaxations: float,
    report: Report,
) -> tuple[list[Run], bool]:
    """One run per step size of `FRACTIONS`, all chains in one batch, and whether control variates were used.

    Minibatch noise of whitened trace N lifts λ̂ by about εN/8, so the largest step is chosen to keep that below a
    fifth of the expected λ, and halved while the measured spread between step sizes is larger. Control variates at
    w* double a step's cost; they are used where they more than halve N at the chains' own positions.

    Args:
        target: the posterior.
        position: starting points, whitened (C, d); C a multiple of 3.
        gradient: g_n(w*), (d,).
        batch_size: samples per chain and step.
        guess: of the mean excess loss.
        seed: of all random numbers.
        rtol: wanted relative standard error of the extrapolation.
        evaluations: most minibatch gradients to take per chain.
        relaxations: length of the first round in units of 1/(εa), a the slowest mode's curvature, ε the smallest step.
        report: progress.
    """
    generator = torch.Generator(position.device).manual_seed(seed)
    plain = minibatches(target, batch_size, generator, None)
    controlled = minibatches(target, batch_size, generator, gradient)
    slowest = min(1.0, target.gamma * target.whitening.rest**2)
    group = len(position) // len(FRACTIONS)
    fractions = torch.tensor(FRACTIONS, device=position.device).repeat_interleave(group)

    there = position
    use_control = 2 * noise_trace(controlled, there) < noise_trace(plain, there)
    evaluate = controlled if use_control else plain
    bias = noise_trace(evaluate, there) / 8
    size = min(LARGEST_STEP, TOLERATED_BIAS * max(target.nbeta * guess, 0.25) / max(bias, 1e-12))
    each = 2 if use_control else 1
    spent = 0
    while True:
        kernel = LeimkuhlerMatthews(size * fractions)
        engine = Engine(kernel, evaluate, there, generator, ceiling(target), target.soft_virial)
        trace = Trace(len(position))
        goal = math.ceil(relaxations / (size * FRACTIONS[-1] * slowest))
        try:
            while True:
                goal = min(goal, trace.draws + max(64, (evaluations - spent) // each))
                while trace.draws < goal:
                    block = min(64, goal - trace.draws)
                    trace.append(engine.run(block))
                    spent += each * block
                    report(spent / evaluations, f"{trace.draws} steps of size {size:.3g}")
                    if not bool(engine.alive.all()):
                        break  # a round to its end would teach no more
                runs = _split(target, trace, engine, size, False, spent >= evaluations)
                if spent >= evaluations or _settled(runs, rtol) or all(map(below_zero, runs)):
                    return runs, use_control
                if _spread(runs) > 2 * TOLERATED_BIAS or not bool(engine.alive.all()):
                    break
                goal = math.ceil(1.5 * goal)
        except KeyboardInterrupt:
            if trace.draws < 64:
                raise
            return _split(target, trace, engine, size, True, True), use_control
        # The largest step is too coarse for a straight line: start again from here with half of it, or less where many
        # chains were lost.
        there = engine.living()
        size /= 2 if float(engine.alive.double().mean()) > 0.75 else 4


def _split(target: Target, trace: Trace, engine: Engine, size: float, interrupted: bool, exhausted: bool) -> list[Run]:
    alive = engine.alive.cpu().numpy()
    group = len(alive) // len(FRACTIONS)
    there = engine.living()
    runs = []
    for number, fraction in enumerate(FRACTIONS):
        own = np.zeros_like(alive)
        own[number * group : (number + 1) * group] = True
        runs.append(Run(target, trace, alive & own, there, size * fraction, {}, interrupted, exhausted))
    return runs


class Extrapolation(NamedTuple):
    """Mean excess loss at step size zero."""

    value: float
    error: float  # of the extrapolation
    unseen: float  # relative error from parts of the posterior that no chain has seen
    slope: float  # the smallest step's bias over the value

    @property
    def stderr(self) -> float:
        return math.hypot(self.error, self.unseen * self.value)


def extrapolated(runs: list[Run]) -> Extrapolation:
    """Mean excess loss at step size zero, and its standard error.

    A weighted straight line through the runs' means against ε, or through those of the two smallest steps where the
    largest lies off it by more than chance: far from w* it may be close to unstable. The error holds the Monte Carlo
    error of the intercept, what the bend that was seen would make of it, and a fifth of the way from the smallest step
    to zero, for bends too small to be seen. What no chain has seen is missing at all step sizes alike.
    """
    control = _controlled(runs)
    sizes = np.array([run.step_size for run in runs])
    found = zip(*(run.excess_and_unseen(control) for run in runs), strict=True)
    values, errors, unseen = (np.array(column) for column in found)
    errors = np.maximum(errors, 1e-6 * np.abs(values).max() + 1e-300)  # of one size, for the fit's sake
    intercept, variance = _line(sizes, values, errors)
    near = _line(sizes[1:], values[1:], errors[1:])
    expected = _bend_variance(sizes, errors)
    bend = max(0.0, (near[0] - intercept) ** 2 - expected)
    if bend > (BENT**2 - 1) * expected:
        intercept, variance = near
        bend *= LEFT**2
    ahead = values[-1] - intercept
    error = math.sqrt(max(0.0, variance) + bend + (UNSEEN_BEND * ahead) ** 2)
    return Extrapolation(intercept, error, float(unseen.max()), float(ahead / intercept))


def _controlled(runs: list[Run]) -> bool:
    """Whether to use control variates, at all step sizes or at none: step-size bias may lift the virials, only parts
    of the posterior that were never seen lower them."""
    return runs[-1].profits(most=math.inf)


def _line(x: NDArray[np.float64], y: NDArray[np.float64], error: NDArray[np.float64]) -> tuple[float, float]:
    """Intercept of the weighted least-squares line and its variance."""
    design = np.stack([np.ones_like(x), x], 1) / error[:, None]
    covariance = np.linalg.inv(design.T @ design)
    return float((covariance @ design.T @ (y / error))[0]), float(covariance[0, 0])


def _bend_variance(sizes: NDArray[np.float64], errors: NDArray[np.float64]) -> float:
    """Variance of the difference between the two intercepts from Monte Carlo error alone."""
    difference = np.zeros(len(sizes))
    for i in range(len(sizes)):
        unit = np.eye(len(sizes))[i]
        difference[i] = _line(sizes[1:], unit[1:], errors[1:])[0] - _line(sizes, unit, errors)[0]
    return float((difference**2 * errors**2).sum())


def _settled(runs: list[Run], rtol: float) -> bool:
    if any(run.alive.sum() < 2 for run in runs):
        return False
    found, control = extrapolated(runs), _controlled(runs)
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
    away = abs(runs[0].excess(_controlled(runs))[0] - found.value)
    return (away - 2 * found.error) / max(abs(found.value), 1e-300)
