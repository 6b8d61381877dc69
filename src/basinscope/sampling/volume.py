"""How likely a random displacement stays below a loss, down to probabilities no direct sample would ever meet."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..progress import Report

Array = NDArray[np.float64]
Excess = Callable[[Tensor], Tensor]

_MOVES = 8  # rounds of moves between two levels, at least
_ACCEPTED = 0.3  # wanted share of moves that stay below the level
_PILOT_SHARE = 0.3  # of the progress
_STEPS = (1e-4, 1.0)  # sizes of a move, 1 being a fresh draw


@dataclass(frozen=True)
class Volumes:
    """Probabilities V(ε) = P(K(δ) < ε) at a ladder of levels ε, from independent groups of particles.

    Attributes:
        levels: ε, falling.
        log_ratios: log of the fraction of particles that pass on from each level to the next, (groups, levels);
            their running sums are log V. −∞ from where a group has died out.
        evaluations: of K.
    """

    levels: Array
    log_ratios: Array
    evaluations: int

    @property
    def log_volume(self) -> Array:
        """log V(ε), averaged over groups as probabilities are: the log of the mean of unbiased estimates."""
        each = np.cumsum(self.log_ratios, axis=1)
        top = each.max(0)
        return top + np.log(np.exp(each - top).mean(0))

    @property
    def step_stderr(self) -> Array:
        """Standard error of the mean log-ratio of each step."""
        return self.log_ratios.std(0, ddof=1) / math.sqrt(len(self.log_ratios))

    @property
    def stderr(self) -> Array:
        """Standard error of log V, from the spread between groups."""
        each = np.exp(np.cumsum(self.log_ratios, axis=1) - self.log_volume)
        return each.std(0, ddof=1) / math.sqrt(len(each))


def multilevel_splitting(
    excess: Excess,
    dimension: int,
    gamma: float,
    *,
    smallest: float,
    particles: int = 512,
    groups: int = 16,
    moves: int = _MOVES,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
    report: Report = lambda fraction, text: None,
) -> Volumes:
    """V(ε) for δ ~ N(0, I/γ) by multilevel splitting, with levels fixed by a pilot run.

    Particles below a level are resampled to the full number and moved, turn by turn by δ → √(1 − s²) δ + s ξ/√γ, which
    leaves the Gaussian as it is, and by a random walk with the particles' own covariance, each accepted only where K
    stays below the level; step sizes vary from particle to particle, for valleys that narrow. A level is the median
    of K among the particles before it, as a pilot finds it; with levels fixed, the product of the fractions is an
    unbiased estimate of V.

    Args:
        excess: K of every row of (particles, d).
        dimension: d.
        gamma: precision of the Gaussian.
        smallest: ε at which to stop.
        particles: in each group.
        groups: independent repetitions, which run together; their spread is the error.
        moves: rounds between levels; step sizes adapt to accept 30 %.
        seed: of all random numbers.
        dtype, device: of the particles.
        report: progress.

    Examples:
        >>> found = multilevel_splitting(lambda w: w.square().sum(1) / 2, 2, gamma=1.0, smallest=1e-3)
        >>> bool(abs(found.log_volume[-1] - np.log(1 - np.exp(-found.levels[-1]))) < 10 * found.stderr[-1])
        True
    """
    generator = torch.Generator(device).manual_seed(seed)
    sampler = _Particles(excess, dimension, gamma, moves, generator, dtype, device)
    levels = _levels(sampler, particles, smallest, report)
    crowd = sampler.start(particles * groups)
    ratios = np.full((groups, len(levels)), -math.inf)
    for number, level in enumerate(levels):
        inside = (sampler.values(crowd) < level).view(groups, particles)
        shares = inside.double().mean(1).cpu().numpy()
        if not shares.all():
            levels = levels[:number]  # a group has died out: what follows would lean on the others alone
            break
        ratios[:, number] = np.log(shares)
        crowd = sampler.below(crowd, level, groups)
        report(_PILOT_SHARE + (1 - _PILOT_SHARE) * number / len(levels), f"ε = {level:.2g}")
    return Volumes(np.array(levels), ratios[:, : len(levels)], sampler.evaluations)


def _levels(sampler: _Particles, particles: int, smallest: float, report: Report) -> list[float]:
    """The ladder of levels that a pilot finds: each is the median of K among particles below the one before."""
    pilot = sampler.start(particles)
    levels: list[float] = []
    first = None
    while not levels or levels[-1] > smallest:
        median = float(sampler.values(pilot).median())
        first = median if first is None else first
        if not median > 0 or (levels and median > 0.999 * levels[-1]):
            break  # an atom at zero, or particles that no longer move
        levels.append(max(median, smallest))
        done = math.log(first / levels[-1] + 1) / math.log(first / smallest + 1)
        report(_PILOT_SHARE * done, f"pilot, ε = {levels[-1]:.2g}")
        pilot = sampler.below(pilot, levels[-1], 1)
    return levels


class _Particles:
    """Displacements that are resampled below a level and moved there."""

    def __init__(
        self,
        excess: Excess,
        dimension: int,
        gamma: float,
        moves: int,
        generator: torch.Generator,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> None:
        self._excess = excess
        self._shape = dimension
        self._width = gamma**-0.5
        self._moves = moves
        self._generator = generator
        self._like = torch.empty(0, dtype=dtype, device=device)
        self._sizes = [0.5, 0.5]  # of the two kinds of moves
        self._known: tuple[Tensor, Tensor] | None = None
        self.evaluations = 0

    def start(self, count: int) -> Tensor:
        self._sizes = [0.5, 0.5]
        return self._width * self._normal(count)

    def values(self, rows: Tensor) -> Tensor:
        """K of every row; not computed again for rows that `below` has just returned."""
        if self._known is None or self._known[0] is not rows:
            self.evaluations += len(rows)
            self._known = (rows, self._excess(rows).double())
        return self._known[1]

    def below(self, rows: Tensor, level: float, groups: int) -> Tensor:
        """As many rows again, all with K < level, resampled within each group and moved."""
        values = self.values(rows).view(groups, -1)
        picked = torch.multinomial((values < level).double(), values.shape[1], True, generator=self._generator)
        index = (picked + torch.arange(groups, device=picked.device)[:, None] * values.shape[1]).flatten()
        position, value = rows[index], self.values(rows)[index]
        root = torch.linalg.cholesky(torch.cov(position.T).reshape(self._shape, self._shape) + self._floor(position))
        done = 0.0
        while done < 2 * self._moves:
            for kind in range(2):
                step = self._sizes[kind] * 10 ** -self._uniform(len(rows))[:, None]
                proposal, log_ratio = self._turned(position, step) if kind == 0 else self._walked(position, step, root)
                self.evaluations += len(rows)
                new = self._excess(proposal).double()
                accepted = (new < level) & (self._uniform(len(rows)).log() < log_ratio)
                position = torch.where(accepted[:, None], proposal, position)
                value = torch.where(accepted, new, value)
                share = float(accepted.double().mean())
                self._sizes[kind] = min(_STEPS[1], max(_STEPS[0], self._sizes[kind] * math.exp(share - _ACCEPTED)))
                done += min(1.0, share / _ACCEPTED)  # a move that is hardly ever accepted counts as less than one
        self._known = (position, value)
        return position

    def _turned(self, position: Tensor, step: Tensor) -> tuple[Tensor, float]:
        return (1 - step.square()).sqrt() * position + step * self._width * self._normal(len(position)), 0.0

    def _walked(self, position: Tensor, step: Tensor, root: Tensor) -> tuple[Tensor, Tensor]:
        proposal = position + 2 * step * self._normal(len(position)) @ root.T
        difference = proposal.double().square().sum(1) - position.double().square().sum(1)
        return proposal, -0.5 * difference / self._width**2

    def _floor(self, position: Tensor) -> Tensor:
        """A ridge that keeps the covariance invertible."""
        return 1e-12 * self._width**2 * torch.eye(self._shape, dtype=position.dtype, device=position.device)

    def _normal(self, count: int) -> Tensor:
        sample = torch.empty(count, self._shape, dtype=self._like.dtype, device=self._like.device)
        return sample.normal_(generator=self._generator)

    def _uniform(self, count: int) -> Tensor:
        return torch.rand(count, generator=self._generator, dtype=self._like.dtype, device=self._like.device)
