"""What a sampler hands back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from .diagnostics import Summary, effective_size, summarize
from .equilibrium import MAX_MISSING, Mean, Virials, freedom_of, worth
from .target import Target
from .trace import Trace

WORTHWHILE = 0.5  # largest part of the plain standard error that control variates may leave, to be used at all
FEW = 4  # chains whose means alone tell a standard error
UNSEEN = 0.15  # part of the plain standard error that control variates cannot remove


class Correction(NamedTuple):
    """How to correct the mean excess loss by the virials.

    Attributes:
        chance: how much of what each is off by is put down to chance, (2,).
        control: whether that goes into control variates.
    """

    chance: NDArray[np.float64]
    control: bool


@dataclass(frozen=True)
class Run:
    """Chains of one sampler at one setting."""

    target: Target
    trace: Trace
    alive: NDArray[np.bool_]
    position: Tensor  # where the chains ended, whitened (C, d)
    step_size: float
    settings: Mapping[str, float | int | str] = field(default_factory=dict)
    interrupted: bool = False
    exhausted: bool = False  # the budget ended before the standard error target was met
    discard: float = 0.5  # fraction of the run that is burn-in
    noise: float = 0.0  # mean trace of the covariance of its gradients, whitened
    relaxations: float = math.inf  # of the slowest direction there may be, during burn-in

    def summary(self, name: str = "excess") -> Summary:
        """Mean, standard error, ESS and R̂ of a statistic over the living chains, without burn-in; of the excess, what
        is due to the slope at ŵ is taken out."""
        if name == "excess":
            squares = self.trace.values("excess_squared", discard=self.discard, chains=self.alive)
            return summarize(self._blocks(None), squares, self.trace.width)
        blocks = self.trace.values(name, discard=self.discard, chains=self.alive)
        return summarize(blocks, blocks**2, self.trace.width)

    def slope_in_gamma(self) -> tuple[float, float]:
        """∂E[L − L(w*)]/∂log γ and its standard error, from the draws at this γ alone.

        The posterior's density is ∝ exp(−nβL − (γ/2)‖δ‖²), so that the derivative of a mean with respect to γ is minus
        its covariance with ½‖δ‖²: −(γ/2) Cov(L, ‖δ‖²).
        """
        excess, distance, both = (
            self.trace.values(name, discard=self.discard, chains=self.alive)
            for name in ("excess", "distance", "excess_distance")
        )
        mean, middle = excess.mean(), distance.mean()
        products = both - mean * distance - middle * excess + mean * middle  # block means of (L − E L)(‖δ‖² − E‖δ‖²)
        half = 0.5 * self.target.gamma
        return -half * float(products.mean()), half * _mean(products).stderr

    def plain(self) -> Mean:
        """Mean excess loss of the draws as they are, but for the tilt, whose mean is zero."""
        return _mean(self._blocks(None))

    def excess(self) -> Mean:
        """Mean excess loss E[L − L(w*)], by all that the virials tell."""
        return self.charged(self.corrected(self.correction()))

    def charged(self, mean: Mean) -> Mean:
        """A mean excess loss whose error counts what the virials lack."""
        return mean.widened(self.virials().charge(self.above_bottom(mean.value), self.target.nbeta))

    def above_bottom(self, excess: float) -> float:
        """A mean excess loss over L(w*) as one over L(ŵ)."""
        return excess + self.target.drop / self.target.nbeta

    def correction(self) -> Correction:
        """What the virials of this run itself tell to take out."""
        return Correction(self.virials().chance(), self.profits())

    def corrected(self, correction: Correction) -> Mean:
        """Mean excess loss with what the virial identities explain taken out.

        E[δ·∇U] = d and E[δᵀM∇U] = Tr M hold exactly for the posterior, and both go up and down with the loss: on a
        quadratic whose directions are known, δᵀM∇U is twice nβ·excess, draw by draw. What they are off by chance, times
        the regression slopes of the loss on them, is taken out where such control variates pay. What they lack beyond
        that is in parts of the posterior that no chain has reached, and is made up for by half of the most that it may
        be worth: in the unknown directions and in the known ones, which both virials see, each once. Rare excursions
        that no draw has made yet can hide from every check, so that a part of the plain standard error stays, and more
        of it the further the loss is from a quadratic: along a valley the virial may go where the loss does not.
        """
        blocks = _mean(self._blocks(correction))
        if not correction.control:
            return blocks
        raw, without = self.plain(), _mean(self._blocks(correction._replace(control=False)))
        # Where they explain all of the loss, as on a quadratic, what they take out is certain; else it is a guess.
        bent = self._bend()
        guess = max(bent, min(1.0, blocks.stderr / raw.stderr)) if raw.stderr > 0 else 0.0
        return blocks.widened(math.hypot(max(UNSEEN, bent) * raw.stderr, guess * (blocks.value - without.value)))

    def _bend(self) -> float:
        """How far the loss is from a quadratic in the known directions: 1 − 2 nβ·excess / E[δᵀM∇U], 0 on one."""
        nbeta, virials = self.target.nbeta, self.virials()
        mean = max(0.0, self.above_bottom(self.plain().value))
        return 1 - 2 * nbeta * float(worth(mean, nbeta, virials.exact[0], virials.means[1])[1])

    def virials(self) -> Virials:
        """The means of both virials."""
        surplus, exact = self._surplus(), self._exact()
        means = [_mean(surplus[..., place]) for place in range(len(exact))]
        values, stderrs = (np.array([getattr(mean, name) for mean in means]) for name in ("value", "stderr"))
        return Virials(exact + values, stderrs, exact, self.relaxations)

    def profits(self) -> bool:
        """Whether control variates pay: virials that mix more slowly than the loss add more error to its mean than they
        take out, though each draw's is smaller."""
        return _mean(self._blocks(Correction(np.ones(2), True))).stderr < WORTHWHILE * self.plain().stderr

    def drift(self, correction: Correction | None = None) -> float:
        """Mean excess loss of the last quarter of the run less that of the quarter before it."""
        blocks = self._blocks(correction)
        middle = blocks.shape[1] // 2
        return float(blocks[:, middle:].mean() - blocks[:, :middle].mean())

    def _exact(self) -> NDArray[np.float64]:
        """d and Tr M."""
        return np.array([self.target.losses.dimension, float(self.target.weights().double().sum())])

    def _surplus(self) -> NDArray[np.float64]:
        """The virials less their exact means, (chains, blocks, 2)."""
        names = ("virial", "soft_virial")
        rows = [self.trace.values(name, discard=self.discard, chains=self.alive) for name in names]
        return np.stack(rows, axis=-1) - self._exact()

    def _blocks(self, correction: Correction | None) -> NDArray[np.float64]:
        """Block means of the excess loss, (chains, blocks), corrected or as they are."""
        excess, tilt = (self.trace.values(name, discard=self.discard, chains=self.alive) for name in ("excess", "tilt"))
        excess = excess + tilt
        if correction is None:
            return excess
        surplus, exact = self._surplus(), self._exact()
        parts = np.stack([surplus[..., 0] - surplus[..., 1], surplus[..., 1]], -1)  # unknown and known directions
        mean, (whole, known) = max(0.0, self.above_bottom(excess.mean())), exact + surplus.mean((0, 1))
        whole = max(whole, (1 - MAX_MISSING) * exact[0])
        missing = np.maximum.accumulate(1 - correction.chance)  # what all directions lack, the known ones may
        corrected = excess - 0.5 * parts @ (missing * worth(mean, self.target.nbeta, whole, known))
        if correction.control:
            flat = parts.reshape(-1, parts.shape[-1])
            slopes, *_ = np.linalg.lstsq(flat - flat.mean(0), excess.ravel() - excess.mean(), rcond=1e-9)
            corrected = corrected - parts @ (slopes * correction.chance)
        return corrected


def _mean(blocks: NDArray[np.float64]) -> Mean:
    """The mean of all blocks with its standard error: from autocorrelation, or from the chains' own means if that is
    more.

    Autocorrelations are cut off where noise hides them; chains that each saw their own part of the posterior show it
    in the spread of their means. What the error is larger than each chain's own draws explain is known with one degree
    of freedom less than there are chains, the rest with about as many as there are independent blocks.
    """
    chains, size = len(blocks), effective_size(blocks)
    square = float(blocks.var(ddof=1)) / size
    if chains >= FEW:
        square = float(np.maximum(square, blocks.mean(1).var(ddof=1) / chains))
    part = min(square, float(np.mean([row.var(ddof=1) / effective_size(row[None]) for row in blocks])) / chains)
    return Mean(
        float(blocks.mean()), math.sqrt(square), freedom_of([square - part, part], [max(1, chains - 1), max(1.0, size)])
    )
