"""Langevin chains on minibatches, half of them at half the step size, extrapolated to step size zero."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .adjusted import ceiling
from .convergence import below_zero, max_drift, mixed
from .engine import Engine
from .extrapolation import Extrapolation, extrapolated
from .goal import Goal
from .minibatches import CONTROL_PRICE, Price, evaluations, gradient_noise, later, noise_trace, unstable
from .pace import MAX_STABLE_STEP, MIN_STEP, Noise, Pace, batches, fastest, slowest_mode
from .runs import Run
from .target import Evaluate, Target
from .trace import Trace, statistic

USUAL_BATCH = 512  # samples to begin with
FRACTIONS = (1.0, 0.5)  # of the largest step size, that the two halves of the chains take
MAX_SEARCH_SHARE = 0.5  # of the time, for finding the posterior
RELAXATIONS = 8  # of the slowest known mode, before chains count as having found it, and in the first round after
MIN_VIRIAL = 0.98  # of its exact mean, that chains have which found it
MAX_SPEED_UP = 2.0  # how much faster another pace must be to change to it
BURN_IN = 0.5  # of the steps
RESTART_SHARE = 0.4  # of the time for measuring, that must be left to start again where chains were lost
_BLOCK = 64  # steps between two looks at the chains, at most
_MIN_BLOCK = 4
_MIN_DRAWS = 16  # whatever the budget


class Minibatches(NamedTuple):
    """One run per step size, their pace, and whether they had control variates."""

    runs: list[Run]
    pace: Pace
    controlled: bool


def sample(
    target: Target, position: Tensor, gradient: Tensor, goal: Goal, price: Price, *, batch_size: int, grows: bool,
    guess: float,
) -> Minibatches:  # fmt: skip
    """One run per step size of `FRACTIONS`, all chains in one batch.

    First all chains find the posterior by the largest step; then half of them go on by half of it, which on their own
    would be slower to find it. Steps are as large as the measured noise of gradients allows at the end of the search.
    Control variates at w* double a step's price; they are used where they more than halve the noise.

    Args:
        target: the posterior.
        position: starting points, whitened (C, d).
        gradient: g_n(w*), (d,).
        goal: what to reach, in what time.
        price: of a step.
        batch_size: samples per chain and step, to begin with.
        grows: whether there may be more of them.
        guess: of the mean excess loss.
    """
    generator = torch.Generator(position.device).manual_seed(goal.seed)
    plain, controlled = (evaluations(target, batch_size, generator, mean) for mean in (None, gradient))
    noises = [noise_trace(evaluate, position) for evaluate in (plain, controlled)]
    goal.clock.spend(4 * (1 + CONTROL_PRICE) * price(batch_size))
    control = CONTROL_PRICE * noises[1] < noises[0]
    chains = _Langevin(
        target, goal, replace(price, controlled=control), generator, gradient if control else None,
        batches(batch_size, target.losses.land.n, grows),
        Noise(
            noises[control] * batch_size if batch_size < target.losses.land.n else 0.0,
            target.nbeta * guess + target.drop,
        ),
    )  # fmt: skip
    try:
        chains.find(position)
        chains.measure()
    except KeyboardInterrupt:
        if not chains.interrupted_runs():
            raise
        return Minibatches(chains.interrupted_runs(), chains.pace, control)
    return Minibatches(chains.runs(), chains.pace, control)


class _Langevin:
    """Chains on their way, at the pace that they have now."""

    def __init__(
        self, target: Target, goal: Goal, price: Price, generator: torch.Generator, mean: Tensor | None,
        sizes: list[int], noise: Noise,
    ) -> None:  # fmt: skip
        self._target, self._goal, self._price = target, goal, price
        self._generator, self._mean, self._sizes, self._noise = generator, mean, sizes, noise
        self._stable = MAX_STABLE_STEP
        self._largest = math.inf  # step, where larger ones lost chains
        self._exhausted = False
        self._searched = list[Run]()  # what the search has drawn, once there is more
        self.trace = Trace(0)
        self.pace: Pace

    def find(self, position: Tensor) -> None:
        """All chains go by the largest step until they have found the posterior, or their share of time is over.

        They have found it when the slowest known mode has relaxed `RELAXATIONS` times and the virial E[δ·∇U] is no
        longer below d: other modes may be slower.
        """
        clock, d = self._goal.clock, self._target.losses.dimension
        left = total = clock.left()
        end = (1 - MAX_SEARCH_SHARE) * total
        self._set_out(position, self._fastest(left), (1.0,))
        virials: list[float] = []
        look, relaxed = _BLOCK, 0.0
        while left > end and not (relaxed >= RELAXATIONS and _level(virials, MIN_VIRIAL * d)):
            block = self._advance(_BLOCK)
            left = clock.left()
            self._tell(left, f"looking for the posterior, {self.trace.draws} steps")
            if not bool(self._engine.alive.all()):
                self._shorten()
                self._set_out(self._engine.living(), self._fastest(left - end), (1.0,))
                virials = []
                continue
            if unstable(block, d):
                self._shorten()
                self._set_out(position, self._fastest(left - end), (1.0,))
                virials = []
                continue
            relaxed += len(block) / self.pace.relaxation(1.0, slowest_mode(self._target))
            virials.append(float(statistic(block, "virial").mean()))
            if self.trace.draws >= look:
                look *= 2
                better = self._better(block, left)
                if better is not None:
                    self._set_out(self._engine.living(), better, (1.0,))
                    virials, look = [], _BLOCK

    def measure(self) -> None:
        """Half of the chains take half the step, until the goal is reached twice in turn or no time is left."""
        left = total = self._goal.clock.left()
        self._searched = self.runs() if self.trace.draws >= _BLOCK else []
        self._set_out(self._engine.living(), self._measuring_pace(left), FRACTIONS)
        wanted, reached = self._first_round(), False
        while True:
            self._advance(min(_BLOCK, max(1, wanted - self.trace.draws)))
            left = self._goal.clock.left()
            self._tell(left, f"{self.trace.draws} steps")
            lost = not bool(self._engine.alive.all())
            if lost and left > RESTART_SHARE * total and self.pace.size > MIN_STEP:
                self._shorten()
                self._set_out(self._engine.living(), self._fastest(left), FRACTIONS)
                wanted, reached = self._first_round(), False
            elif left <= 0 and self.trace.draws >= _MIN_DRAWS:
                self._exhausted = not reached
                return
            elif self.trace.draws >= wanted:
                runs = self.runs()
                before, reached = reached, _settled(runs, self._goal.rtol)
                if (before and reached) or all(map(below_zero, runs)):
                    return
                wanted = math.ceil(1.5 * wanted)

    def runs(self) -> list[Run]:
        """What the draws so far tell, for each step size."""
        alive = self._engine.alive.cpu().numpy()
        group = len(alive) // len(self._fractions)
        position = self._engine.living()
        noises = later(self._noises).mean(0).cpu().numpy() if self._noises else np.zeros(len(alive))
        runs = []
        for number, fraction in enumerate(self._fractions):
            own = np.zeros_like(alive)
            own[number * group : (number + 1) * group] = True
            own &= alive
            noise = float(noises[own].mean()) if own.any() else 0.0
            relaxations = BURN_IN * self.trace.draws / self.pace.relaxation(fraction, slowest_mode(self._target))
            run = Run(
                self._target, self.trace, own, position, self.pace.size * fraction, {},
                exhausted=self._exhausted, discard=BURN_IN, noise=noise, relaxations=relaxations,
            )  # fmt: skip
            runs.append(run)
        return runs

    def interrupted_runs(self) -> list[Run]:
        """What there is when somebody stops the chains: their draws, or those of the search, or nothing."""
        runs = self.runs() if self.trace.draws >= _BLOCK else self._searched
        return [replace(run, interrupted=True) for run in runs]

    def _set_out(self, position: Tensor, pace: Pace, fractions: tuple[float, ...]) -> None:
        """Go on from there at that pace, with nothing drawn yet."""
        self.pace, self._fractions = pace, fractions
        self._evaluate: Evaluate = evaluations(self._target, pace.batch, self._generator, self._mean)
        each = torch.tensor(fractions, device=position.device).repeat_interleave(len(position) // len(fractions))
        self._engine = Engine(
            pace.kernel(each),
            self._evaluate,
            position,
            self._generator,
            ceiling(self._target),
            self._target.controls,
        )
        self.trace, self._noises = Trace(len(position)), list[Tensor]()
        self._looked = 0

    def _advance(self, most: int) -> NDArray[np.float64]:
        """A block of steps, and after at least so many of them a look at the noise of gradients."""
        clock = self._goal.clock
        block = self._engine.run(max(min(_MIN_BLOCK, most), self._goal.block(self.pace.price, most)))
        self.trace.append(block)
        clock.spend(len(block) * self.pace.price)
        if self.pace.noisy and (self.trace.draws >= self._looked + _BLOCK or not self._noises):
            self._looked = self.trace.draws
            self._noises.append(gradient_noise(self._evaluate, self._engine.position))
            clock.spend(2 * self.pace.price)
        return block

    def _better(self, block: NDArray[np.float64], left: float) -> Pace | None:
        """Another pace, if noise as it is now makes this one much too large, or that one much faster."""
        if self._noises:
            trace = float(later(self._noises).mean())
            energy = self._above_bottom(float(statistic(block, "excess").mean()))
            self._noise = Noise(trace * self.pace.batch, energy - trace * self.pace.size / 8)
        best = self._fastest(left)
        too_large = self.pace.noisy and MAX_SPEED_UP * self._noise.tolerable(self.pace.batch) < self.pace.size
        return best if too_large or best.speed > MAX_SPEED_UP * self.pace.speed else None

    def _measuring_pace(self, left: float) -> Pace:
        """The pace of the search, with a step as large as its noise allows at last."""
        if self._noises:
            block = self.trace.values("excess", discard=0.5, chains=self._engine.alive.cpu().numpy())
            trace = float(later(self._noises).mean())
            energy = self._above_bottom(float(block.mean())) - trace * self.pace.size / 8
            self._noise = Noise(trace * self.pace.batch, energy)
        return self._fastest(left)

    def _above_bottom(self, excess: float) -> float:
        """nβ(L − L(ŵ)) of a mean excess loss over L(w*)."""
        return self._target.nbeta * excess + self._target.drop

    def _fastest(self, seconds: float) -> Pace:
        pace = fastest(self._target, self._noise, self._sizes, self._stable, seconds, self._price)
        return pace._replace(size=min(pace.size, self._largest))

    def _shorten(self) -> None:
        """Take note that the present step loses chains."""
        times = 2 if float(self._engine.alive.double().mean()) > 0.75 else 4
        self._stable = min(self.pace.size, self._stable) / times
        if not self.pace.persistence:
            self._largest = self.pace.size / times

    def _first_round(self) -> int:
        return max(
            _BLOCK, math.ceil(RELAXATIONS * self.pace.relaxation(self._fractions[-1], slowest_mode(self._target)))
        )

    def _tell(self, left: float, phase: str) -> None:
        """Report the phase and the mean so far of the smallest step."""
        run = self.runs()[-1]
        mean = run.plain() if self.trace.draws >= _BLOCK and run.alive.sum() > 1 else None
        self._goal.tell(left, phase, self._target.nbeta, mean)


def _level(values: list[float], least: float) -> bool:
    """Whether the mean of the later half is no longer below that."""
    last = values[len(values) // 2 :]
    return bool(last) and sum(last) >= least * len(last)


def _settled(runs: list[Run], rtol: float) -> bool:
    """Whether the extrapolation is as good as was wanted, by chains that agree and no longer move."""
    if any(run.alive.sum() < 2 for run in runs):
        return False
    mean = extrapolated(runs)
    value = runs[0].above_bottom(mean.value)
    attainable = math.hypot(rtol * value, mean.systematic)  # more draws do not shorten that
    precise = value > 0 and mean.stderr <= attainable
    return precise and mixed(runs, mean.stderr, value, rtol) and all(_still(run, rtol, mean) for run in runs)


def _still(run: Run, rtol: float, mean: Extrapolation) -> bool:
    """Whether a run's mean no longer moves."""
    stderr = run.corrected(mean.correction).stderr
    return abs(run.drift(mean.correction)) <= max_drift(stderr, run.above_bottom(mean.value), rtol)
