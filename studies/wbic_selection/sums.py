"""What data say of a regression that is linear in its outer weights: sums by place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from studies.common.collapsed import Collapsed, Gaussians, gaussians

from .truths import Candidates, Truth

Array = NDArray[np.float64]


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


def sums(truth: Truth, at: NDArray[np.int64], y: Array, gamma: float) -> Sums:
    """The data by place."""
    counts = np.bincount(at, minlength=len(truth.places)).astype(float)
    totals = np.zeros_like(truth.values)
    np.add.at(totals, at, y)
    return Sums(truth.places, counts, totals, float((y**2).sum()), gamma)
