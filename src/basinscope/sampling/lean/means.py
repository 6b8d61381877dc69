"""λ̂ from the means of chains at two step sizes: extrapolated to zero, with what the virials say is missing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..equilibrium import CHANCE_STDERRS, Mean, freedom_of
from ..extrapolation import DISCRETIZATION, LIFT_SPREAD, UNSEEN_BEND, line
from .walk import ChainRecord

Array = NDArray[np.float64]
_FEW_BLOCKS = 8  # into which a chain is cut for the standard error of its own


@dataclass(frozen=True)
class Chain:
    """A chain without its burn-in, and the noise of its gradients: Tr of their covariance, tensor by tensor."""

    record: ChainRecord
    noise: Array

    @property
    def mean(self) -> float:
        return float(self.record.excess.mean())

    @property
    def lifts(self) -> Array:
        """By how much gradient noise lifts nβ·excess through each tensor: ε_c P Tr C/8."""
        return self.record.step.reach * np.asarray(self.record.step.scales) * self.noise / 8


@dataclass(frozen=True)
class Virial:
    """E[δ·∇U] of all tensors over d, and what it says of λ̂.

    Attributes:
        ratio, stderr: over d, without the lift by gradient noise.
        missing: of nβ·excess, that slow modes have not reached: half of the most that it may be.
        charge: its standard error.
        worst: the tensor that lacks most of λ̂, by number, and its own ratio.
    """

    ratio: float
    stderr: float
    missing: float
    charge: float
    worst: tuple[int, float]


def virial_of(chains: Sequence[Chain], sizes: Sequence[int], moving: Sequence[bool]) -> Virial:
    """What the virials of all tensors say.

    E[δ_t·∂U/∂w_t] is the number of parameters d_t of each tensor t. On a quadratic half of its data part δ·nβ∇L is
    nβ·excess, and where slow, soft modes lack a part of the virial the excess lacks at most the same share of its data
    part. Distances within chance count as shrunken estimates do; half of the rest is added, and the standard deviation
    of a uniform distribution over it charged. One virial of all parameters would hide a stiff tensor among flat ones.
    """
    count = np.asarray(sizes, dtype=np.float64) * np.asarray(moving)
    data = np.array([chain.record.data.mean(0) for chain in chains])
    prior = np.array([chain.record.prior.mean(0) for chain in chains])
    lifts = np.array([2 * chain.lifts for chain in chains])
    away = data + prior - lifts - count  # (chains, tensors)
    mean, stderr = away.mean(0), away.std(0, ddof=1) / math.sqrt(len(chains))
    allowed = CHANCE_STDERRS * np.maximum(stderr, 1e-300)
    beyond = mean * (1 - (allowed / np.maximum(np.abs(mean), allowed)) ** 2)
    share = np.clip(data.mean(0) / np.maximum(data.mean(0) + prior.mean(0), 1e-300), 0.0, 1.0)
    lacking = -0.5 * beyond * share  # of nβ·excess, tensor by tensor
    dimension = max(1.0, count.sum())
    worst = int(np.abs(lacking).argmax())
    return Virial(
        ratio=1 + mean.sum() / dimension,
        stderr=float(away.sum(1).std(ddof=1)) / math.sqrt(len(chains)) / dimension,
        missing=0.5 * float(np.maximum(lacking, 0.0).sum()),
        charge=float(np.abs(lacking).sum()) / math.sqrt(12),
        worst=(worst, float(1 + mean[worst] / max(1.0, count[worst]))),
    )


@dataclass(frozen=True)
class Extrapolated:
    """nβ·excess at step size zero.

    Attributes:
        mean: with its standard error and degrees of freedom, what the virials lack included.
        slope: the smallest step's bias, over the value.
        systematic: the part of the standard error that more draws would not shorten.
    """

    mean: Mean
    slope: float
    systematic: float


def extrapolated(chains: Sequence[Chain], virial: Virial) -> Extrapolated:
    """The mean of chains at two step sizes at step size zero.

    The standard error is that of the chains' own means, with Student's t: one degree of freedom less than chains for
    each size. Chains of both sizes are as long in time, so that their means scatter alike. Gradient noise lifts the
    mean by what was measured of it, known within `LIFT_SPREAD`; discretization adds next to nothing.
    """
    groups = [[chain for chain in chains if chain.record.step.size == size] for size in _sizes(chains)]
    means = np.array([np.mean([chain.mean for chain in group]) for group in groups])
    lifts = np.array([np.mean([chain.lifts.sum() for chain in group]) for group in groups])
    squares = sum(float(np.var([chain.mean for chain in group]) * len(group)) for group in groups)
    freedom = len(chains) - len(groups)
    scatter = math.sqrt(squares / freedom) if freedom > 0 else math.inf
    scatter = max(scatter, 1e-6 * float(np.abs(means).max()), 1e-300)
    errors = np.array([scatter / math.sqrt(len(group)) for group in groups])
    steps = np.array(_sizes(chains))
    other = DISCRETIZATION * float(np.abs(means).max()) * steps / steps.max() + 1e-300
    fit = line(
        means, errors, np.stack([lifts, other], 1), np.array([1.0, 0.0]), np.array([LIFT_SPREAD, 1.0])
    )  # fmt: skip
    by_chance = math.sqrt(float((fit.weights**2 * errors**2).sum()))
    value = fit.value + virial.missing
    systematic = math.sqrt(fit.prior + (UNSEEN_BEND * fit.ahead) ** 2 + virial.charge**2)
    mean = Mean(value, by_chance, freedom_of([1.0], [freedom])).widened(systematic)
    return Extrapolated(mean, fit.ahead / value if value else 0.0, systematic)


def _sizes(chains: Sequence[Chain]) -> list[float]:
    """The step sizes, from the largest to the smallest."""
    return sorted({chain.record.step.size for chain in chains}, reverse=True)


def bottom_of(cold: ChainRecord, lift: float) -> Mean:
    """nβ(L(w*) − L(ŵ)) from a chain without heat, which comes to rest at ŵ but for what gradient noise makes it shake.

    The standard error holds the scatter of its last quarter, `LIFT_SPREAD` of the lift and the distance that it still
    went from one quarter to the next.
    """
    quarter = max(1, len(cold.excess) // 4)
    last, before = cold.excess[-quarter:], cold.excess[-2 * quarter : -quarter]
    blocks = np.array([block.mean() for block in np.array_split(last, min(_FEW_BLOCKS, quarter))])
    chance = float(blocks.std(ddof=1)) / math.sqrt(len(blocks)) if len(blocks) > 1 else math.inf
    moved = max(0.0, abs(float(last.mean() - before.mean())) - CHANCE_STDERRS * math.sqrt(2) * chance)
    return Mean(lift - float(last.mean()), math.sqrt(chance**2 + (LIFT_SPREAD * lift) ** 2 + moved**2))
