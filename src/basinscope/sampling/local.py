"""Sample the local posterior of a landscape without being told how."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError
from ..landscape import Landscape
from ..progress import Report
from . import adjusted, plain, unadjusted
from .calibration import Geometry, Resolution, geometry
from .chains import ChainLosses
from .cost import affordable_chains, evaluation_cost
from .diagnostics import Summary
from .runs import Run
from .target import Target

SAMPLERS = ("auto", "hmc", "minibatch", *plain.KERNELS)
_POINTS = 8  # chain positions over which curvature is averaged
_PILOT = 24  # transitions of the run that finds them
_SIDE_RTOL = 0.05  # tolerance of the values at γ/3 and 3γ


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
            value = getattr(self, name)
            if value is not None and (int(value) != value or value < least):
                raise InputError(f"{name} must be a whole number of at least {least}, got {value}")
        for name in ("step_size", "rtol", "budget"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InputError(f"{name} must be a positive finite number, got {value}")
        if self.burn_in is not None and not 0 <= self.burn_in < 1:
            raise InputError(f"burn_in is the fraction of draws to drop, in [0, 1): got {self.burn_in}")


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
    slope: float  # relative bias at the smallest step size; 0 for adjusted samplers
    batch_size: int | None = None
    control_variates: bool = False

    @property
    def main(self) -> Run:
        """The run of the smallest step size."""
        return self.runs[-1]

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
        self.geometry = geometry(land, self.losses, torch.zeros_like(self.losses.origin)[None], settings.seed)

    def run(self, at: Resolution, report: Report, start: Outcome | None = None) -> Outcome:
        """Sample at resolution `at`; `start` is an outcome at a neighbouring one, whose chains go on from where they
        are, for a shorter run."""
        sampler = self._chosen(at)
        if sampler == "hmc":
            return self._adjusted(at, report, start)
        if sampler == "minibatch":
            return self._unadjusted(at, report, start)
        return self._plain(sampler, at, report)

    def _chosen(self, at: Resolution) -> str:
        """Metropolis-adjusted on all data where the budget allows some 150 transitions, else minibatches."""
        if self.settings.sampler != "auto":
            return self.settings.sampler
        chains = self._chains_adjusted()
        target = Target(self.losses, at.nbeta, at.gamma, self.geometry.whitening(at))
        leaps = adjusted.expected_leaps(target)
        cost = 150 * leaps * evaluation_cost(self.losses, self.land.n, chains)
        return "hmc" if cost <= self.settings.budget else "minibatch"

    def _chains_adjusted(self) -> int:
        return self.settings.chains or affordable_chains(self.losses, self.land.n, 6, 48)

    def _adjusted(self, at: Resolution, report: Report, start: Outcome | None) -> Outcome:
        settings = self.settings
        chains = self._chains_adjusted()
        target = Target(self.losses, at.nbeta, at.gamma, self.geometry.whitening(at))
        each = evaluation_cost(self.losses, self.land.n, chains) * adjusted.expected_leaps(target)
        transitions = int(settings.budget / each)
        side = start is not None
        if start is None:
            target, position = self._piloted(target, at, chains)
        else:
            target, position = self._moved(start, at)
            transitions //= 4
        run = adjusted.sample(
            target,
            position,
            seed=settings.seed + 1,
            rtol=_SIDE_RTOL if side else settings.rtol,
            transitions=max(64, transitions),
            report=report,
            draws=None if side else settings.draws,
            step_size=settings.step_size,
        )
        summary = run.summary()
        return Outcome(at, "hmc", [run], summary.mean, summary.stderr, 0.0)

    def _piloted(self, target: Target, at: Resolution, chains: int) -> tuple[Target, Tensor]:
        """Let the chains leave w*, then whiten by the curvature where they are."""
        position = torch.zeros(chains, self.losses.dimension, dtype=self.land.dtype, device=self.land.device)
        delta = target.whitening(adjusted.pilot(target, position, self.settings.seed, _PILOT))
        typical = geometry(self.land, self.losses, delta[:_POINTS], self.settings.seed)
        whitening = typical.whitening(at)
        return replace(target, whitening=whitening), whitening.inverse()(delta)

    def _moved(self, start: Outcome, at: Resolution) -> tuple[Target, Tensor]:
        """The target at another resolution, and the chains of `start` in its coordinates."""
        old = start.main.target
        delta = old.whitening(start.main.position)
        typical = geometry(self.land, self.losses, delta[:_POINTS], self.settings.seed)
        whitening = typical.whitening(at)
        return Target(self.losses, at.nbeta, at.gamma, whitening), whitening.inverse()(delta)

    def _unadjusted(self, at: Resolution, report: Report, start: Outcome | None) -> Outcome:
        settings = self.settings
        batch = min(settings.batch_size or 512, self.land.n)
        groups = len(unadjusted.FRACTIONS)
        per_group = math.ceil((settings.chains or affordable_chains(self.losses, batch, 12, 36)) / groups)
        chains = groups * max(2, per_group)
        steps = int(settings.budget / evaluation_cost(self.losses, batch, chains))
        target = Target(self.losses, at.nbeta, at.gamma, self.geometry.whitening(at))
        if start is None:
            zero = torch.zeros(chains, self.losses.dimension, dtype=self.land.dtype, device=self.land.device)
            there, guess = unadjusted.pilot(target, zero, batch_size=batch, seed=settings.seed, steps=steps // 8)
            delta = target.whitening(there)
            whitening = geometry(self.land, self.losses, delta[:_POINTS], settings.seed).whitening(at)
            target, position = replace(target, whitening=whitening), whitening.inverse()(delta)
        else:
            target, position = self._moved(start, at)
            guess = start.excess
            steps //= 4
        runs, controlled = unadjusted.sample(
            target,
            position,
            self.geometry.gradient,
            batch_size=batch,
            guess=guess,
            seed=settings.seed + 1,
            rtol=settings.rtol if start is None else _SIDE_RTOL,
            steps=max(512, steps),
            report=report,
        )
        value, stderr, slope = unadjusted.extrapolated(runs, unadjusted.excess_of)
        return Outcome(at, "minibatch", runs, value, stderr, slope, batch, controlled)

    def _plain(self, sampler: str, at: Resolution, report: Report) -> Outcome:
        settings = self.settings
        batch = min(settings.batch_size or 512, self.land.n)
        run = plain.sample(
            sampler,
            self.losses,
            at,
            stiffest=at.nbeta * max(0.0, float(self.geometry.values[0])) + at.gamma,
            chains=settings.chains or 4,
            draws=settings.draws or 2000,
            batch_size=batch,
            step_size=settings.step_size,
            burn_in=settings.burn_in,
            seed=settings.seed,
            report=report,
        )
        if run.alive.sum() < 2:
            return Outcome(at, sampler, [run], math.nan, math.inf, math.nan, batch)
        summary = run.summary()
        return Outcome(at, sampler, [run], summary.mean, summary.stderr, math.nan, batch)


__all__ = ["SAMPLERS", "Geometry", "Outcome", "Sampler", "Settings"]
