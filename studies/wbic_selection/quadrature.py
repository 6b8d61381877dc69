"""Posteriors of a candidate with few inner weights, by sums over a lattice of them.

The outer weights are integrated in closed form (see studies/common/collapsed.py). What is left is a function of the
inner weights b of the units, smooth, even in each and the same for every order of the units: a trapezoidal sum over
b₁ ≥ … ≥ b_h ≥ 0 converges exponentially. Sums of the data over pairs of units are taken once for all lattice points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from studies.common.collapsed import collapsed

from .lattices import unordered
from .sums import Rung, Sums
from .truths import Candidates

Array = NDArray[np.float64]

STEPS = {1: 0.01, 2: 0.05, 3: 0.125, 4: 0.2}  # between lattice points, in standard deviations of the prior
REACH = 5.0  # standard deviations of the prior that the lattice covers


def lattice(size: int, shift: float) -> tuple[Array, NDArray[np.int64], Array]:
    """Points on one axis, and the sets and weights of ∫ Π N(b_j; 0, 1) db for an integrand even in every b_j."""
    step = STEPS[size]
    points = np.asarray((np.arange(math.floor(REACH / step)) + shift) * step, dtype=np.float64)
    weights = np.where(points > 0, 2.0, 1.0) * step * np.exp(-0.5 * points**2) / math.sqrt(2 * math.pi)
    return points, *unordered(weights, size)


def integrated(candidates: Candidates, size: int, data: Sums, stops: Sequence[float], shift: float) -> list[Rung]:
    """The posteriors at inverse temperatures `stops`."""
    if not candidates.inner:
        nodes, log_prior = np.zeros((1, size, 0)), np.zeros(1)
        pairs = data.of(candidates, nodes)
    else:
        points, sets, log_prior = lattice(size, shift)
        points = points / math.sqrt(data.gamma)
        nodes = points[sets][:, :, None]
        unit = candidates.features(points[None, :, None], data.x)[0]
        gram = (unit.T * data.counts) @ unit
        pairs = gram[sets[:, :, None], sets[:, None, :]], (unit.T @ data.totals)[sets]
    rungs = []
    for beta in stops:
        given = data.given(pairs, beta)
        posterior, log_evidence, _ = collapsed(candidates.features, nodes, log_prior, given, 1.0)
        rungs.append(Rung(posterior, posterior.mean_loss(), log_evidence))
    return rungs
