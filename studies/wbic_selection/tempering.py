"""Posteriors from the prior down a ladder of temperatures, by sequential Monte Carlo (Del Moral et al. 2006).

From one rung to the next, particles are weighted, drawn again and moved; the means of the weights multiply to the
evidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

Array = NDArray[np.float64]

KEPT = 0.6  # share of the particles that weights leave effective from rung to rung
MOVES = 6  # sweeps at each rung
SNAPSHOTS = 12  # of the particles at the temperatures asked for


class Tempered(Protocol):
    """A prior, and what the data make of it at every inverse temperature β."""

    def start(self, particles: int, rng: np.random.Generator) -> Array:
        """Draws from the prior."""
        ...

    def evidence(self, particles: Array) -> Callable[[float], Array]:
        """β ↦ log p(y|w)^β of every particle w, integrated over all that is no part of w."""
        ...

    def moved(self, particles: Array, beta: float, sweeps: int, rng: np.random.Generator) -> Array:
        """Sweeps that leave the posterior at β as it is."""
        ...


@dataclass(frozen=True)
class Sample:
    """Particles of the posterior at β, at several moments, and log ∫ p(y|w)^β φ(w) dw."""

    beta: float
    snapshots: Sequence[Array]
    log_evidence: float


def tempered(model: Tempered, stops: Sequence[float], particles: int, rng: np.random.Generator) -> list[Sample]:
    """The posteriors at inverse temperatures `stops`, ascending."""
    now = model.start(particles, rng)
    beta, total, samples = 0.0, 0.0, []
    for stop in stops:
        while beta < stop:
            beta, gain = _next(model.evidence(now), beta, stop)
            total += float(logsumexp(gain)) - math.log(particles)
            now = model.moved(now[_resampled(np.exp(gain - logsumexp(gain)), rng)], beta, MOVES, rng)
        snapshots = [now]
        while len(snapshots) < SNAPSHOTS:
            now = model.moved(now, beta, MOVES, rng)
            snapshots.append(now)
        samples.append(Sample(beta, snapshots, total))
    return samples


def _next(evidence: Callable[[float], Array], beta: float, stop: float) -> tuple[float, Array]:
    """The furthest temperature that leaves enough particles effective, and log weights of the step there."""
    current = evidence(beta)

    def step(to: float) -> tuple[Array, float]:
        gain = evidence(to) - current
        return gain, math.exp(2 * float(logsumexp(gain)) - float(logsumexp(2 * gain))) / len(gain)

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
