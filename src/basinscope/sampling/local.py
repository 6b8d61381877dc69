"""Sample the local posterior of a landscape without being told how."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from ..checks import fraction, positive, whole, whole_seed
from ..errors import InputError
from ..landscape import Landscape
from ..progress import Report
from . import adjusted, minibatches, plain, unadjusted
from .calibration import (
    CURVATURE_POINTS,
    CURVATURE_SHARE,
    Geometry,
    Resolution,
    affordable_effort,
    geometry,
    gradient_at,
)
from .chains import ChainLosses
from .clock import Schedule, checked_budget, clock_of
from .cost import Cost, measured_cost
from .descent import Bottom, bottom
from .diagnostics import Summary
from .equilibrium import Mean
from .extrapolation import extrapolated
from .goal import Goal
from .pace import Pace
from .plan import FEWEST_GRADIENTS, Plan, planned
from .quadratic import Quadratic
from .runs import Run
from .target import Target

SAMPLERS = ("auto", "hmc", "minibatch", "lean", *plain.KERNELS)
SEEDS = 16  # between the seeds of two runs of one sampler
LOST = Mean(math.nan, math.inf)  # of fewer than two living chains
_PILOT = 24  # transitions of the run that finds them
_DESCENT_SHARE, _MOST_GRADIENTS = 0.08, 400  # of the budget, for the descent to ŵ
_DESCENT_TOLERANCE = 0.1  # error of nβL(ŵ), of the tolerance of λ̂
_AFTERWARDS = 0.06  # of the budget, for products that are asked of the curvature once the chains are done


@dataclass(frozen=True)
class Settings:
    """How to sample; None means: choose."""

    sampler: str = "auto"
    chains: int | None = None
    draws: int | None = None
    step_size: float | None = None
    batch_size: int | None = None
    burn_in: float | None = None
    rtol: float = 0.02
    budget: float | Schedule = 60.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.sampler not in SAMPLERS:
            raise InputError(f"unknown sampler {self.sampler!r}: expected one of {', '.join(SAMPLERS)}")
        for name, least, most in (("chains", 2, 10**5), ("draws", 16, 10**7), ("batch_size", 1, 10**9)):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, whole(name, getattr(self, name), least, most))
        object.__setattr__(self, "seed", whole_seed(self.seed))
        checked_budget(self.budget)
        positive("rtol", self.rtol)
        if self.step_size is not None:
            positive("step_size", self.step_size)
        if self.burn_in is not None:
            fraction("burn_in", self.burn_in, none=True)
        if self.burn_in is not None and self.draws is not None and (1 - self.burn_in) * self.draws < 4:
            raise InputError(f"burn_in={self.burn_in} of {self.draws} draws leaves fewer than 4 — lower burn_in")


@dataclass(frozen=True)
class Outcome:
    """The local posterior's mean excess loss at one resolution, with all that speaks for or against it.

    `excess` is E[L_n(w) − L_n(w*)]; its standard error includes autocorrelation and, on minibatches, the
    extrapolation to step size zero.
    """

    at: Resolution
    sampler: str
    runs: list[Run]  # one, or one per step size
    excess: float
    stderr: float
    freedom: float  # degrees of freedom of the standard error
    slope: float  # relative bias at the smallest step size; 0 for adjusted samplers
    batch_size: int | None = None
    control_variates: bool = False
    pace: Pace | None = None  # of chains on minibatches
    plan: Plan | None = None
    seconds: float = math.nan  # that the sampler has taken so far, by its clock
    schedule: Schedule | None = None  # what the clock answered; as a budget, it repeats the run

    @property
    def main(self) -> Run:
        """The run of the smallest step size."""
        return self.runs[-1]

    @property
    def displacement(self) -> Tensor:
        """δ = w − w* of all chains at the end, (C, d)."""
        return self.main.target.whitening(self.main.position)

    @property
    def summary(self) -> Summary:
        return self.main.summary()

    @property
    def rhat(self) -> float:
        return max(run.summary().rhat if run.alive.sum() > 1 else math.inf for run in self.runs)

    @property
    def diverged(self) -> int:
        return int((~np.logical_or.reduce([run.alive for run in self.runs])).sum())

    @property
    def interrupted(self) -> bool:
        return any(run.interrupted for run in self.runs)

    @property
    def exhausted(self) -> bool:
        return any(run.exhausted for run in self.runs)


class Sampler:
    """The chains of a landscape: curvature measured once, then runs at one or several resolutions.

    Attributes:
        land: the landscape.
        settings: how to sample.
        clock: of the budget, which runs while something is measured here.
    """

    def __init__(self, land: Landscape, settings: Settings) -> None:
        if settings.sampler == "lean":
            raise InputError("the lean walk keeps no draws and gives λ̂ alone — call bs.llc(land)")
        self.land = land
        self.settings = settings
        self.clock = clock_of(settings.budget)
        self._budget = (1 - _AFTERWARDS) * self.clock.seconds
        self.clock.seconds = self._budget
        with self.clock.running():
            self.losses = ChainLosses(land)
            self._cost: Cost = measured_cost(self.losses, self.clock)
        self._typical: Geometry | None = None  # curvature where the chains are, known after the first run
        self._bottoms: dict[Resolution, Bottom] = {}  # from w*, at the resolutions that were asked for
        self._fresh = True  # nothing has been sampled yet

    @cached_property
    def geometry(self) -> Geometry:
        """Curvature at w*."""
        return self._geometry(torch.zeros_like(self.losses.origin)[None])

    @cached_property
    def quadratic(self) -> Quadratic:
        """What gradient and curvature at w* say of the basin."""
        with self.clock.running():
            return Quadratic.of(self.geometry)

    def bottom(self, at: Resolution) -> Bottom:
        """ŵ, the minimum of nβL + (γ/2)‖w − w*‖² that a descent from w* leads to.

        The gradient at a saddle may vanish: there it starts beside w*, where the known curvature is most downward.
        """
        if at not in self._bottoms:
            target = Target(self.losses, at.nbeta, at.gamma, self.geometry.whitening(at))
            starts = torch.zeros_like(self.losses.origin)[None]
            if self.quadratic.downward(at) > 1 and self.geometry.complete:
                way = self.geometry.vectors[:, -1] / math.sqrt(-at.nbeta * self.quadratic.least)
                starts = torch.stack([starts[0], way, -way])
            tolerance = _DESCENT_TOLERANCE * self.settings.rtol * max(self.quadratic.basin(at), 1e-3)
            lowest = self.descent(target, target.whitening.inverse()(starts), tolerance)
            if lowest.downward:  # no minimum: chains start at w*
                lowest = replace(lowest, displacement=starts[0], excess=0.0, localiser=0.0)
            self._bottoms[at] = lowest
        return self._bottoms[at]

    def descent(self, target: Target, starts: Tensor, tolerance: float, known: Bottom | None = None) -> Bottom:
        """A descent on all data for at most a share of the budget, or a few gradients."""
        price = self._cost.of(self.land.n, 1)
        evaluations = int(min(_MOST_GRADIENTS, max(FEWEST_GRADIENTS, _DESCENT_SHARE * self._budget / price)))
        with self.clock.running():
            lowest = bottom(target, starts, tolerance=tolerance, evaluations=evaluations, known=known)
            self.clock.spend(price * (len(starts) if lowest is known else lowest.evaluations))
        return lowest

    def plan(self) -> Plan:
        """How `run` would sample, what that costs, and why."""
        return planned(self.land, self.settings, self._cost, self._budget)

    def run(self, at: Resolution, report: Report, start: Outcome | None = None, number: int = 0) -> Outcome:
        """Sample at resolution `at`.

        The budget is that of a run. The first one's has paid for all that this sampler has measured before.

        Args:
            at: the resolution.
            report: progress.
            start: an outcome at a neighbouring resolution, whose chains go on from where they are with the steps that
                they were tuned to; from w* unless given.
            number: of the run among others of the same seed, which then have random numbers of their own.
        """
        plan = self.plan()
        if start is not None:
            plan = replace(plan, sampler=start.sampler)
        if not self._fresh:
            self.clock.renew(self._budget)
        self._fresh = False
        goal = Goal(
            self.settings.rtol, self.settings.seed + SEEDS * number, self.clock, report, self.settings.draws,
            0.5 if self.settings.burn_in is None else self.settings.burn_in,
        )  # fmt: skip
        if plan.warning is not None:
            report(0.0, plan.warning)
        strategy: Callable[[Resolution, Plan, Goal, Outcome | None], Outcome] = {
            "hmc": self._adjusted, "minibatch": self._unadjusted
        }.get(plan.sampler, self._plain)  # fmt: skip
        with self.clock.running():
            outcome = strategy(at, plan, goal, start)
        report(1.0, "done")
        return replace(outcome, seconds=self.clock.spent(), schedule=self.clock.schedule, plan=plan)

    def ladder(self, resolutions: Sequence[Resolution], report: Report) -> Iterator[Outcome]:
        """An outcome at each resolution in turn, whose chains go on from where those before ended.

        Curvature is measured and steps are tuned once; the standard error target and the budget are those of each.
        After chains without a mean the next start anew.
        """
        before: Outcome | None = None
        for number, at in enumerate(resolutions):
            name = f"{number + 1} of {len(resolutions)} resolutions"
            report(number / len(resolutions), name)
            outcome = self.run(at, partial(_part, report, number, len(resolutions), name), before, number)
            yield outcome
            before = outcome if math.isfinite(outcome.excess) else None

    def _geometry(self, displacements: Tensor) -> Geometry:
        effort = affordable_effort(self.land, len(displacements), self._cost, CURVATURE_SHARE * self._budget)
        with self.clock.running():
            return geometry(
                self.land, self.losses, displacements, effort, self.clock, self._cost, self.settings.seed
            )  # fmt: skip

    def _target(self, at: Resolution, curvature: Geometry) -> Target:
        lowest = self.bottom(at)
        centre = lowest.displacement if lowest.localiser > 0 else None
        return Target(self.losses, at.nbeta, at.gamma, curvature.whitening(at), max(0.0, lowest.drop), centre)

    def _at_bottom(self, target: Target, at: Resolution, chains: int) -> Tensor:
        """All chains at ŵ, whitened."""
        return target.whitening.inverse()(self.bottom(at).displacement[None]).expand(chains, -1).contiguous()

    def _whitened(self, delta: Tensor, at: Resolution) -> tuple[Target, Tensor]:
        """The target whitened by the curvature where the chains are, and their displacements δ in its coordinates."""
        if self._typical is None:
            self._typical = self._geometry(delta[:CURVATURE_POINTS])
        target = self._target(at, self._typical)
        return target, target.whitening.inverse()(delta)

    def _adjusted(self, at: Resolution, plan: Plan, goal: Goal, start: Outcome | None) -> Outcome:
        price = self._cost.of(self.land.n, plan.chains)
        warmup = adjusted.RETUNING_TRANSITIONS if start else adjusted.WARMUP_TRANSITIONS
        if start is None:
            target = self._target(at, self.geometry)
            displacement, size, price = adjusted.pilot(
                target, self._at_bottom(target, at, plan.chains), goal.seed, _PILOT, self.clock, price
            )  # fmt: skip
            target, position = self._whitened(target.whitening(displacement), at)
        else:
            target, position = self._whitened(start.displacement, at)
            size = start.main.step_size
        run = adjusted.sample(
            target, position, replace(goal, seed=goal.seed + 1), price,
            step_size=self.settings.step_size, first_size=size, warmup=warmup,
        )  # fmt: skip
        if run.alive.sum() < 2:
            return Outcome(at, "hmc", [run], *LOST, math.nan)
        return Outcome(at, "hmc", [run], *run.excess(), slope=0.0)

    def _unadjusted(self, at: Resolution, plan: Plan, goal: Goal, start: Outcome | None) -> Outcome:
        batch = plan.batch_size or min(self.land.n, unadjusted.USUAL_BATCH)
        price = minibatches.Price(self._cost.of, plan.chains, self.land.n)
        if start is None:
            target = self._target(at, self.geometry)
            displacement, guess = minibatches.pilot(
                target, self._at_bottom(target, at, plan.chains), batch_size=batch, seed=goal.seed, clock=self.clock,
                price=price(batch),
            )  # fmt: skip
            target, position = self._whitened(target.whitening(displacement), at)
        else:
            target, position = self._whitened(start.displacement, at)
            guess = start.main.above_bottom(start.excess) * start.at.nbeta / at.nbeta  # it changes slowly with nβ
        runs, pace, controlled = unadjusted.sample(
            target, position, self.geometry.gradient, replace(goal, seed=goal.seed + 1), price,
            batch_size=batch, grows=self.settings.batch_size is None, guess=guess,
        )  # fmt: skip
        if any(run.alive.sum() < 2 for run in runs):
            return Outcome(at, "minibatch", runs, *LOST, math.nan, pace.batch, controlled, pace)
        mean = extrapolated(runs)
        return Outcome(at, "minibatch", runs, *mean[:4], pace.batch, controlled, pace)

    def _plain(self, at: Resolution, plan: Plan, goal: Goal, start: Outcome | None) -> Outcome:
        gradient_at(self.losses)
        assert plan.batch_size is not None
        run = plain.sample(
            plan.sampler, self.losses, at, goal, self._cost.of(plan.batch_size, plan.chains), chains=plan.chains,
            step_size=self.settings.step_size or plain.stable_step(plan.sampler, self.geometry, at),
            batch_size=plan.batch_size,
        )  # fmt: skip
        if run.alive.sum() < 2:
            return Outcome(at, plan.sampler, [run], *LOST, math.nan, plan.batch_size)
        return Outcome(at, plan.sampler, [run], *run.charged(run.plain()), math.nan, plan.batch_size)  # not corrected


def _part(report: Report, number: int, parts: int, name: str, share: float, text: str) -> None:
    """Progress of one of several runs."""
    report((number + share) / parts, f"{name}, {text}")
