"""Sample the local posterior of a landscape without being told how."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ..checks import positive, whole
from ..errors import InputError
from ..landscape import Landscape
from ..progress import Report
from . import adjusted, plain, unadjusted
from .calibration import Geometry, Resolution, affordable_products, geometry, gradient_at
from .chains import ChainLosses
from .cost import Cost, cost
from .descent import Bottom, bottom
from .diagnostics import Summary
from .equilibrium import Mean
from .extrapolation import extrapolated
from .pace import Pace
from .quadratic import Quadratic
from .runs import Run
from .target import Target
from .warming import pilot

SAMPLERS = ("auto", "hmc", "minibatch", *plain.KERNELS)
_POINTS = 6  # chain positions over which curvature is averaged
_PILOT = 24  # transitions of the run that finds them
_RELAXATIONS = 8  # first round of minibatch chains in units of 1/(εa) of the slowest mode
_BATCH = 512  # samples of a batch to begin with
_GROUPS = len(unadjusted.FRACTIONS)
SEEDS = 16  # between the seeds of two runs of one sampler
_FEWEST = 512  # minibatch steps whatever they cost
_DESCENT_SHARE, _FEWEST_GRADIENTS, _MOST_GRADIENTS = 0.1, 24, 400  # of the budget, for the descent to ŵ
_DESCENT_TOLERANCE = 0.1  # error of nβL(ŵ), of the tolerance of λ̂
LOST = Mean(math.nan, math.inf)  # of fewer than two living chains


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
    budget: float = 60.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.sampler not in SAMPLERS:
            raise InputError(f"unknown sampler {self.sampler!r}: expected one of {', '.join(SAMPLERS)}")
        for name, least in (("chains", 2), ("draws", 16), ("batch_size", 1)):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), least)
        whole("seed", self.seed)
        for name in ("step_size", "rtol", "budget"):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))
        if self.burn_in is not None and not (isinstance(self.burn_in, (int, float)) and 0 <= self.burn_in < 1):
            raise InputError(f"burn_in is the fraction of draws to drop, in [0, 1): got {self.burn_in}")
        if self.burn_in is not None and self.draws is not None and (1 - self.burn_in) * self.draws < 3:
            raise InputError(f"burn_in={self.burn_in} of {self.draws} draws leaves fewer than 3 — lower burn_in")


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
    """The chains of a landscape: curvature measured once, then runs at one or several resolutions."""

    def __init__(self, land: Landscape, settings: Settings) -> None:
        self.land = land
        self.settings = settings
        self.losses = ChainLosses(land)
        self._typical: Geometry | None = None  # curvature where the chains are, known after the first run
        self._bottoms: dict[Resolution, Bottom] = {}  # from w*, at the resolutions that were asked for

    @cached_property
    def geometry(self) -> Geometry:
        """Curvature at w*."""
        return self._geometry(torch.zeros_like(self.losses.origin)[None])

    @cached_property
    def quadratic(self) -> Quadratic:
        """What gradient and curvature at w* say of the basin."""
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
            self._bottoms[at] = self.descent(target, target.whitening.inverse()(starts), tolerance)
        return self._bottoms[at]

    def descent(self, target: Target, starts: Tensor, tolerance: float, known: Bottom | None = None) -> Bottom:
        """A descent on all data for at most a tenth of the budget, or a few gradients."""
        affordable = _DESCENT_SHARE * self.settings.budget / self._cost.of(self.land.n, 1)
        evaluations = int(min(_MOST_GRADIENTS, max(_FEWEST_GRADIENTS, affordable)))
        return bottom(target, starts, tolerance=tolerance, evaluations=evaluations, known=known)

    @cached_property
    def _cost(self) -> Cost:
        return cost(self.land)

    def _geometry(self, displacements: Tensor) -> Geometry:
        products = affordable_products(self.land, len(displacements), self._cost, self.settings.budget)
        return geometry(self.land, self.losses, displacements, self.settings.seed, products)

    def run(self, at: Resolution, report: Report, start: Outcome | None = None, number: int = 0) -> Outcome:
        """Sample at resolution `at`.

        Args:
            at: the resolution.
            report: progress.
            start: an outcome at a neighbouring resolution, whose chains go on from where they are with the steps that
                they were tuned to; from w* unless given.
            number: of the run among others of the same seed, which then have random numbers of their own.
        """
        sampler = self._chosen(at) if start is None else start.sampler
        self._refuse_unused(sampler)
        seed = self.settings.seed + SEEDS * number
        if sampler == "hmc":
            return self._adjusted(at, report, start, seed)
        if sampler == "minibatch":
            return self._unadjusted(at, report, start, seed)
        return self._plain(sampler, at, report, seed)

    def ladder(self, resolutions: Sequence[Resolution], report: Report) -> Iterator[Outcome]:
        """An outcome at each resolution in turn, whose chains go on from where those before ended.

        Curvature is measured and steps are tuned once; the standard error target and the budget are those of each.
        """
        outcome: Outcome | None = None
        for number, at in enumerate(resolutions):
            report(number / len(resolutions), f"{number + 1} of {len(resolutions)} temperatures")
            outcome = self.run(at, _quietly, outcome, number)
            yield outcome

    def _chosen(self, at: Resolution) -> str:
        """Metropolis-adjusted on all data where the budget allows some 100 transitions, else minibatches.

        Draws, a step size or a burn-in can only be meant for the first, a batch size only for the second.
        """
        settings = self.settings
        if settings.sampler != "auto":
            return settings.sampler
        if settings.batch_size is not None:
            return "minibatch"
        if any(value is not None for value in (settings.draws, settings.step_size, settings.burn_in)):
            return "hmc"
        chains = self._chains_adjusted()
        gradients = adjusted.expected_gradients(self._target(at, self.geometry))
        needed = 100 * gradients * self._cost.of(self.land.n, chains)
        return "hmc" if needed <= self.settings.budget else "minibatch"

    def _refuse_unused(self, sampler: str) -> None:
        """A setting that would change nothing is a misunderstanding."""
        unused = {"hmc": ("batch_size",), "minibatch": ("draws", "step_size", "burn_in"), "mala": ("batch_size",)}
        for name in unused.get(sampler, ()):
            if getattr(self.settings, name) is not None:
                raise InputError(
                    f"{name}={getattr(self.settings, name)} has no meaning for sampler '{sampler}', which chooses it — "
                    f"leave it out, or name another sampler"
                )

    def _chains_adjusted(self) -> int:
        return self.settings.chains or self._cost.affordable_chains(self.land.n, 6, 48)

    def _adjusted(self, at: Resolution, report: Report, start: Outcome | None, seed: int) -> Outcome:
        settings = self.settings
        chains = self._chains_adjusted()
        target = self._target(at, self.geometry)
        evaluations = int(settings.budget / self._cost.of(self.land.n, chains))
        if start is None:
            there, size, evaluations = adjusted.pilot(
                target, self._at_bottom(target, at, chains), seed, _PILOT, evaluations
            )
            target, position = self._whitened(target.whitening(there), at)
        else:
            target, position = self._whitened(start.displacement, at)
            size = start.main.step_size
        run = adjusted.sample(
            target,
            position,
            seed=seed + 1,
            rtol=settings.rtol,
            evaluations=evaluations,
            report=report,
            draws=settings.draws,
            step_size=settings.step_size,
            first_size=size,
            warmup=adjusted.WARMUP if start is None else adjusted.FEWEST,
            discard=0.5 if settings.burn_in is None else settings.burn_in,
        )
        if run.alive.sum() < 2:
            return Outcome(at, "hmc", [run], *LOST, math.nan)
        return Outcome(at, "hmc", [run], *run.excess(), slope=0.0)

    def _target(self, at: Resolution, curvature: Geometry) -> Target:
        found = self.bottom(at)
        centre = found.displacement if found.localiser > 0 else None
        return Target(self.losses, at.nbeta, at.gamma, curvature.whitening(at), max(0.0, found.drop), centre)

    def _at_bottom(self, target: Target, at: Resolution, chains: int) -> Tensor:
        """All chains at ŵ, whitened."""
        return target.whitening.inverse()(self.bottom(at).displacement[None]).expand(chains, -1).contiguous()

    def _whitened(self, delta: Tensor, at: Resolution) -> tuple[Target, Tensor]:
        """The target whitened by the curvature where the chains are, and their displacements δ in its coordinates."""
        if self._typical is None:
            self._typical = self._geometry(delta[:_POINTS])
        target = self._target(at, self._typical)
        return target, target.whitening.inverse()(delta)

    def _unadjusted(self, at: Resolution, report: Report, start: Outcome | None, seed: int) -> Outcome:
        settings = self.settings
        batch = min(settings.batch_size or _BATCH, self.land.n)
        chains = settings.chains or self._cost.affordable_chains(batch, 12, 24) // _GROUPS * _GROUPS
        if chains % _GROUPS or chains < 2 * _GROUPS:
            raise InputError(
                f"chains on minibatches run at {_GROUPS} step sizes, at least two of them at each: chains must be a "
                f"multiple of {_GROUPS} from {2 * _GROUPS} on, got {chains}"
            )
        least = self._cost.of(batch, chains)
        budget = max(_FEWEST * least, settings.budget)
        if start is None:
            target, position, guess = self._scouted(at, chains, batch, int(budget / least) // 8, seed)
        else:
            target, position = self._whitened(start.displacement, at)
            guess = start.excess * start.at.nbeta / at.nbeta  # λ̂ changes slowly with nβ
        runs, pace, controlled = unadjusted.sample(
            target,
            position,
            self.geometry.gradient,
            batch_size=batch,
            grows=settings.batch_size is None,
            guess=guess,
            seed=seed + 1,
            rtol=settings.rtol,
            price=self._cost.of,
            budget=budget,
            relaxations=_RELAXATIONS,
            report=report,
        )
        if any(run.alive.sum() < 2 for run in runs):
            return Outcome(at, "minibatch", runs, *LOST, math.nan, pace.batch, controlled, pace)
        found = extrapolated(runs)
        return Outcome(at, "minibatch", runs, *found[:4], pace.batch, controlled, pace)

    def _scouted(self, at: Resolution, chains: int, batch: int, steps: int, seed: int) -> tuple[Target, Tensor, float]:
        """A whitened target with chains that a pilot on minibatches has moved, and their mean excess loss."""
        target = self._target(at, self.geometry)
        there, guess = pilot(target, self._at_bottom(target, at, chains), batch_size=batch, seed=seed, steps=steps)
        return *self._whitened(target.whitening(there), at), guess

    def _plain(self, sampler: str, at: Resolution, report: Report, seed: int) -> Outcome:
        settings = self.settings
        batch = min(settings.batch_size or _BATCH, self.land.n)
        gradient_at(self.losses)
        run = plain.sample(
            sampler,
            self.losses,
            at,
            step_size=settings.step_size or plain.stable_step(sampler, self.geometry, at),
            chains=settings.chains or 4,
            draws=settings.draws or 2000,
            batch_size=batch,
            burn_in=settings.burn_in,
            seed=seed,
            report=report,
        )
        if run.alive.sum() < 2:
            return Outcome(at, sampler, [run], *LOST, math.nan, batch)
        return Outcome(at, sampler, [run], *run.plain(), math.nan, batch)  # as the papers have it: no control variate


def _quietly(fraction: float, text: str) -> None:
    """No report of progress within one run of a ladder."""
