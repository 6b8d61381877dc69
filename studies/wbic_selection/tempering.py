"""Posteriors of a candidate from the prior down a ladder of temperatures, by sequential Monte Carlo.

Particles are inner weights b; the outer weights are integrated in closed form at every temperature (see
studies/common/collapsed.py). From one rung to the next, particles are weighted, drawn again and moved; the means of the
weights multiply to the evidence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from studies.common.collapsed import Collapsed, Gaussians, gaussians

from .truths import Candidates

Array = NDArray[np.float64]

KEPT = 0.6  # share of the particles that weights leave effective from rung to rung
MOVES = 6  # at each rung
SNAPSHOTS = 5  # of the particles at the temperatures asked for, for mean losses
LAST = 2  # of them for predictions, which cost more and need fewer


@dataclass(frozen=True)
class Sums:
    """What the data say, summed by place.

    Attributes:
        x: (m, inputs), the places.
        counts: (m,), data at each.
        totals: (m, outputs), sums of their y.
        square: Σ |y|².
        gamma: precision of the prior.
    """

    x: Array
    counts: Array
    totals: Array
    square: float
    gamma: float

    def of(self, candidates: Candidates, nodes: Array) -> tuple[Array, Array]:
        """Σ φφᵀ and Σ φyᵀ of some nodes."""
        phi = candidates.features(nodes, self.x)
        turned = phi.transpose(0, 2, 1)
        return (turned * self.counts) @ phi, turned @ self.totals

    def given(self, sums: tuple[Array, Array], beta: float) -> Gaussians:
        """The posteriors of the outer weights at β, from these sums."""
        return gaussians(*sums, self.square, int(self.counts.sum()), beta, self.gamma, 1.0)

    def at(self, candidates: Candidates, nodes: Array, beta: float) -> Gaussians:
        """The posteriors of the outer weights at some nodes."""
        return self.given(self.of(candidates, nodes), beta)


@dataclass(frozen=True)
class Rung:
    """The posterior at one temperature, E[nL_n] over it, and log ∫ p(y|w)^β φ(w) dw."""

    posterior: Collapsed
    mean_loss: float
    log_evidence: float


def tempered(
    candidates: Candidates, size: int, data: Sums, stops: Sequence[float], particles: int, rng: np.random.Generator
) -> list[Rung]:
    """The posteriors at inverse temperatures `stops`, ascending."""
    if not candidates.inner:
        return [_exact(candidates, size, data, beta) for beta in stops]
    nodes = rng.normal(size=(particles, size, candidates.inner)) / math.sqrt(data.gamma)
    beta, total, rungs = 0.0, 0.0, []
    own = data.at(candidates, nodes, 0.0).log_evidence
    for stop in stops:
        while beta < stop:
            beta, gain = _next(candidates, data, nodes, own, beta, stop)
            total += float(logsumexp(gain)) - math.log(particles)
            nodes = nodes[_resampled(np.exp(gain - logsumexp(gain)), rng)]
            for _ in range(MOVES):
                nodes = _moved(candidates, data, nodes, beta, rng)
            own = data.at(candidates, nodes, beta).log_evidence
        taken = [nodes]
        for _ in range(SNAPSHOTS - 1):
            for _ in range(MOVES):
                nodes = _moved(candidates, data, nodes, beta, rng)
            taken.append(nodes)
        mean_loss = _even(candidates, data, np.concatenate(taken), beta).mean_loss()
        rungs.append(Rung(_even(candidates, data, np.concatenate(taken[-LAST:]), beta), mean_loss, total))
        own = data.at(candidates, nodes, beta).log_evidence
    return rungs


def _exact(candidates: Candidates, size: int, data: Sums, beta: float) -> Rung:
    posterior = _even(candidates, data, np.zeros((1, size, 0)), beta)
    return Rung(posterior, posterior.mean_loss(), float(posterior.gaussians.log_evidence[0]))


def _even(candidates: Candidates, data: Sums, nodes: Array, beta: float) -> Collapsed:
    weights = np.full(len(nodes), -math.log(len(nodes)))
    return Collapsed(candidates.features, nodes, weights, data.at(candidates, nodes, beta), 1.0)


def _next(
    candidates: Candidates, data: Sums, nodes: Array, own: Array, beta: float, stop: float
) -> tuple[float, Array]:
    """The furthest temperature that leaves enough particles effective, and log weights of the step there."""

    sums = data.of(candidates, nodes)

    def step(to: float) -> tuple[Array, float]:
        gain = data.given(sums, to).log_evidence - own
        return gain, math.exp(2 * float(logsumexp(gain)) - float(logsumexp(2 * gain))) / len(nodes)

    gain, share = step(stop)
    if share >= KEPT:
        return stop, gain
    low, high = beta, stop
    for _ in range(16):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if step(middle)[1] >= KEPT else (low, middle)
    return high, step(high)[0]


def _resampled(weights: Array, rng: np.random.Generator) -> NDArray[np.int64]:
    """Systematic resampling."""
    places = (rng.uniform() + np.arange(len(weights))) / len(weights)
    return np.minimum(np.searchsorted(np.cumsum(weights), places), len(weights) - 1)


def _moved(candidates: Candidates, data: Sums, nodes: Array, beta: float, rng: np.random.Generator) -> Array:
    """One sweep that leaves the posterior at β as it is."""
    if candidates.bilinear:
        return _gibbs(candidates, data, nodes, beta, rng)
    return _walked(candidates, data, nodes, beta, rng)


def _gibbs(candidates: Candidates, data: Sums, nodes: Array, beta: float, rng: np.random.Generator) -> Array:
    """Outer weights given inner ones, then inner ones given outer: both normal where features are linear in b."""
    given = data.at(candidates, nodes, beta)
    outer = given.mean + np.linalg.cholesky(given.covariance) @ rng.normal(size=given.mean.shape)
    left_sizes, left = np.linalg.eigh(beta * outer @ outer.transpose(0, 2, 1))
    right_sizes, right = np.linalg.eigh((data.x.T * data.counts) @ data.x)
    precision = left_sizes[:, :, None] * right_sizes + data.gamma
    pull = beta * left.transpose(0, 2, 1) @ outer @ (data.totals.T @ data.x) @ right
    turned = pull / precision + rng.normal(size=precision.shape) / np.sqrt(precision)
    return left @ turned @ right.T


def _walked(candidates: Candidates, data: Sums, nodes: Array, beta: float, rng: np.random.Generator) -> Array:
    """A step of random-walk Metropolis, of the particles' own spread times a random length.

    Features are odd in b and units may be exchanged: b is taken positive and in order, and spreads are those of one of
    the many equal modes.
    """
    count, size = nodes.shape[:2]
    folded = np.sort(np.abs(nodes[:, :, 0]), axis=1)
    root = np.linalg.cholesky(np.cov(folded.T).reshape(size, size) + 1e-8 * np.eye(size))
    length = 2.4 / math.sqrt(size) * np.exp(rng.uniform(-3, 0, size=(count, 1)))
    proposed = folded + length * (rng.normal(size=(count, size)) @ root.T)
    now, then = (
        data.at(candidates, each[:, :, None], beta).log_evidence - 0.5 * data.gamma * (each**2).sum(1)
        for each in (folded, proposed)
    )
    accepted = np.log(rng.uniform(size=count)) < then - now
    return np.where(accepted[:, None], proposed, folded)[:, :, None]
