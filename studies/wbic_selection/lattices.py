"""Sums over lattices of functions that do not depend on the order of their arguments."""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SHIFTS = (0.5, 0.0)  # two lattices, whose differences tell the error: of cell middles, and of cell ends


def unordered(weights: Array, size: int) -> tuple[NDArray[np.int64], Array]:
    """Indices of every unordered set of `size` points, and log weights of its sum over all orders."""
    sets = np.array(list(itertools.combinations_with_replacement(range(len(weights)), size)))
    repeated, run = np.ones(len(sets)), np.ones(len(sets))
    for column in range(1, size):
        run = np.where(sets[:, column] == sets[:, column - 1], run + 1, 1)
        repeated *= run
    log_weights = np.log(weights)[sets].sum(1) + math.log(math.factorial(size)) - np.log(repeated)
    return sets, np.asarray(log_weights, dtype=np.float64)
