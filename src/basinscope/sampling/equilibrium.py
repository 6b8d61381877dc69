"""What the virial identities say of the part of the posterior that chains have not reached."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CHANCE_STDERRS = 2.0  # standard errors that virials may be off by chance alone
MAX_MISSING = 0.9  # largest share of the virial that is taken for missing


def freedom_of(squares: Sequence[float], freedoms: Sequence[float]) -> float:
    """Degrees of freedom of a variance that is a sum of several, as Welch and Satterthwaite have them.

    Examples:
        >>> freedom_of([1.0, 1.0], [3.0, 3.0]), freedom_of([2.0, 0.0], [3.0, 9.0]), freedom_of([1.0], [math.inf])
        (6.0, 3.0, inf)
    """
    inverse = sum(square**2 / freedom for square, freedom in zip(squares, freedoms, strict=True))
    return sum(squares) ** 2 / inverse if inverse > 0 else math.inf


def worth(mean: float, nbeta: float, whole: float, known: float) -> NDArray[np.float64]:
    """What the mean excess loss lacks where δ·∇U, and δᵀM∇U, lack one, (2,).

    The first is the share that each part that was seen has of the mean. In a quadratic, nβ·excess is half of the second
    in the directions that M knows. Elsewhere it is less, an eighth where the loss is of degree eight, and lacks so much
    less.

    Args:
        mean: the mean excess loss over that of ŵ.
        nbeta: nβ.
        whole: the mean of δ·∇U.
        known: the mean of δᵀM∇U.

    Examples:
        >>> worth(mean=4.0, nbeta=1.0, whole=10, known=8.0).tolist()
        [0.4, 0.5]
        >>> worth(mean=1.0, nbeta=1.0, whole=5, known=8.0).tolist()
        [0.2, 0.125]
    """
    share = nbeta * mean / known if known > 0 else 0.5
    return np.array([mean / whole, min(0.5, share) / nbeta])


class Mean(NamedTuple):
    """A mean with its standard error, and the degrees of freedom by which that is known."""

    value: float
    stderr: float
    freedom: float = math.inf

    def widened(self, systematic: float) -> Mean:
        """With a further error, which is taken as known."""
        freedom = freedom_of([self.stderr**2, systematic**2], [self.freedom, math.inf])
        return Mean(self.value, math.hypot(self.stderr, systematic), freedom)


@dataclass(frozen=True)
class Virials:
    """Means over the chains of δ·∇U and δᵀM∇U, beside what they are for the posterior: d and Tr M.

    Attributes:
        means, stderrs: of both, (2,).
        exact: d and Tr M, (2,).
        relaxations: of the slowest direction there may be, before draws counted.
    """

    means: NDArray[np.float64]
    stderrs: NDArray[np.float64]
    exact: NDArray[np.float64]
    relaxations: float = math.inf

    def chance(self) -> NDArray[np.float64]:
        """How much of each distance from the exact value is put down to chance.

        That is all of it up to `CHANCE_STDERRS` standard errors, and of a distance of z of them (`CHANCE_STDERRS`/z)²,
        as a shrunken estimate has it. Chains that started at w* and relaxed R times have all but e^(−2R) of the
        variance in the slowest direction: as long as that is much, what δ·∇U lacks may be missing however little it is.
        The directions of M are known and were made fast.
        """
        away, allowed = np.abs(self.means - self.exact), CHANCE_STDERRS * np.maximum(self.stderrs, 1e-300)
        chance = (allowed / np.maximum(away, allowed)) ** 2
        return np.array([chance[0] * -math.expm1(-2 * self.relaxations), chance[1]])

    def charge(self, mean: float, nbeta: float) -> float:
        """The standard error of what the mean excess loss lacks, as the virials do beyond chance.

        On a quadratic with stiffness a_i = nβσ_i + γ, chains that have seen 1 − f_i of the variance in direction i miss
        Σ f_i of the virial d and ½ Σ m_i f_i of nβ·excess, m_i = nβσ_i/a_i. Slow directions are soft ones: where f_i
        falls and m_i rises with a_i, Chebyshev's inequality bounds the part that the mean lacks by that of the virial,
        v = 1 − Σ f_i/d: it lies between mean and mean/v. In the known directions, where nβ·excess is half of the
        second virial, what they lack is known outright (`worth`). Half of what the virials tell has been added to
        the mean, which lies in the middle; of the larger range, the range/√12 that a uniform distribution has is
        charged. Virials above their exact means, as steps that are too long make them, are charged as those below.
        """
        lacking = np.abs((1 - self.chance()) * (self.exact - self.means))
        share, mean = min(MAX_MISSING, float(lacking[0] / self.exact[0])), max(mean, 0.0)
        second = float(worth(mean, nbeta, self.exact[0], self.means[1])[1] * lacking[1])
        return max(mean * 2 * share / (2 - share), second) / math.sqrt(12)
