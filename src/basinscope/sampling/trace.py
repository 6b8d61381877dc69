"""Streams of draws kept in bounded memory: means over blocks whose width doubles as the run grows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# What is recorded of every draw; `excess_squared` is that of excess and tilt together. The products make exact
# variances and covariances possible from block means.
STATISTICS = (
    "excess", "excess_squared", "virial", "soft_virial", "tilt", "distance", "excess_distance", "acceptance",
)  # fmt: skip


def statistic(draws: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    """One statistic of draws (steps, chains, statistics), by its name."""
    return draws[..., STATISTICS.index(name)]


class Trace:
    """Block means of the statistics of every chain, at most `2 * blocks` of them however many draws there are.

    Examples:
        >>> import numpy as np
        >>> trace = Trace(chains=1, blocks=2)
        >>> trace.append(np.arange(8.0)[:, None, None] * np.ones(len(STATISTICS)))
        >>> trace.width, trace.values("excess").ravel().tolist()
        (4, [1.5, 5.5])
    """

    def __init__(self, chains: int, blocks: int = 512) -> None:
        self.blocks = blocks
        self.width = 1
        self.draws = 0
        self._means = np.empty((0, chains, len(STATISTICS)))
        self._sum = np.zeros((chains, len(STATISTICS)))  # of the draws that do not fill a block yet
        self._count = 0

    def append(self, draws: NDArray[np.float64]) -> None:
        """Add draws of shape (steps, chains, statistics)."""
        self.draws += len(draws)
        missing = min(len(draws), (self.width - self._count) % self.width)
        whole = (len(draws) - missing) // self.width if (self._count + missing) % self.width == 0 else 0
        rest = missing + whole * self.width
        self._add(draws[:missing])
        fresh = draws[missing:rest].reshape(whole, self.width, *draws.shape[1:]).mean(1)
        self._means = np.concatenate([self._means, fresh])
        self._add(draws[rest:])
        while len(self._means) >= 2 * self.blocks:
            odd = len(self._means) % 2
            if odd:  # the last block has no partner yet
                self._sum += self._means[-1] * self.width
                self._count += self.width
            self._means = self._means[: len(self._means) - odd].reshape(-1, 2, *self._means.shape[1:]).mean(1)
            self.width *= 2

    def _add(self, draws: NDArray[np.float64]) -> None:
        """Add fewer draws than make a block to the unfinished one, and close it when it is full."""
        self._sum = self._sum + draws.sum(0)
        self._count += len(draws)
        if self._count == self.width:
            self._means = np.concatenate([self._means, self._sum[None] / self.width])
            self._sum, self._count = np.zeros_like(self._sum), 0

    def values(
        self, name: str, *, discard: float = 0.0, chains: NDArray[np.bool_] | None = None
    ) -> NDArray[np.float64]:
        """Block means of one statistic, shape (chains, blocks), without the first fraction `discard` of the run."""
        rows = self._means[int(np.ceil(discard * len(self._means))) :, :, STATISTICS.index(name)].T
        return rows if chains is None else rows[chains]
