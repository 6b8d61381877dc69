"""Posteriors of products of two matrices, y = AᵀBx: Gibbs moves of B, with A integrated in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from studies.common.collapsed import Collapsed

from .sums import Rung, Sums
from .tempering import Sample, tempered
from .truths import Candidates

Array = NDArray[np.float64]

LAST = 2  # snapshots for predictions, which cost more than mean losses and need fewer


@dataclass(frozen=True)
class Ranks:
    """The inner weights B of candidates of one size as particles."""

    candidates: Candidates
    size: int
    data: Sums

    def start(self, particles: int, rng: np.random.Generator) -> Array:
        """Draws from the prior."""
        return rng.normal(size=(particles, self.size, self.candidates.inner)) / math.sqrt(self.data.gamma)

    def evidence(self, particles: Array) -> Callable[[float], Array]:
        """β ↦ log ∫ p(y|A, B)^β φ(A) dA."""
        pairs = self.data.of(self.candidates, particles)
        return lambda beta: self.data.given(pairs, beta).log_evidence

    def moved(self, particles: Array, beta: float, sweeps: int, rng: np.random.Generator) -> Array:
        """Outer weights given inner ones, then inner ones given outer: both are normal."""
        for _ in range(sweeps):
            particles = self._swept(particles, beta, rng)
        return particles

    def _swept(self, particles: Array, beta: float, rng: np.random.Generator) -> Array:
        data = self.data
        given = data.at(self.candidates, particles, beta)
        outer = given.mean + np.linalg.cholesky(given.covariance) @ rng.normal(size=given.mean.shape)
        left_sizes, left = np.linalg.eigh(beta * outer @ outer.transpose(0, 2, 1))
        right_sizes, right = np.linalg.eigh((data.x.T * data.counts) @ data.x)
        precision = left_sizes[:, :, None] * right_sizes + data.gamma
        pull = beta * left.transpose(0, 2, 1) @ outer @ (data.totals.T @ data.x) @ right
        turned = pull / precision + rng.normal(size=precision.shape) / np.sqrt(precision)
        return left @ turned @ right.T

    def rung(self, sample: Sample) -> Rung:
        """What is asked of a posterior; its mean loss is over all snapshots."""
        loss = self._even(np.concatenate(sample.snapshots), sample.beta).mean_loss()
        return Rung(self._even(np.concatenate(sample.snapshots[-LAST:]), sample.beta), loss, sample.log_evidence)

    def _even(self, particles: Array, beta: float) -> Collapsed:
        weights = np.full(len(particles), -math.log(len(particles)))
        return Collapsed(
            self.candidates.features, particles, weights, self.data.at(self.candidates, particles, beta), 1.0
        )


def sampled(
    candidates: Candidates, size: int, data: Sums, stops: Sequence[float], particles: int, rng: np.random.Generator
) -> list[Rung]:
    """The posteriors at inverse temperatures `stops`."""
    model = Ranks(candidates, size, data)
    return [model.rung(sample) for sample in tempered(model, stops, particles, rng)]
