"""What a sampler hands back, and the rules by which it decides that it has sampled enough."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from .diagnostics import Summary, effective_size, summarize
from .target import Target
from .trace import Trace

UNBALANCED = 2.0  # standard errors by which virials may lack before part of the posterior counts as unseen
WORTHWHILE = 0.5  # largest part of the plain standard error that control variates may leave, to be used at all
MANY = 8  # chains whose means alone tell a standard error
MAX_NEGATIVE_STDERRS = 4.0  # standard errors below zero from which on more draws would not help
UNSEEN = 0.15  # part of the plain standard error that control variates cannot remove


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

    def summary(self, name: str = "excess") -> Summary:
        """Mean, standard error, ESS and R̂ of a statistic over the living chains, without burn-in."""
        blocks = self.trace.values(name, discard=self.discard, chains=self.alive)
        squares = (
            self.trace.values("excess_squared", discard=self.discard, chains=self.alive)
            if name == "excess"
            else blocks**2
        )
        return summarize(blocks, squares, self.trace.width)

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
        return -half * float(products.mean()), half * _error(products)

    def excess(self, control: bool | None = None) -> tuple[float, float]:
        """Mean excess loss E[L − L(w*)] and its standard error, with virial identities as control variates.

        E[δ·∇U] = d and E[δᵀM∇U] = Tr M hold exactly for the posterior, and both go up and down with the loss: on a
        quadratic whose directions are known, δᵀM∇U is twice nβ·excess, draw by draw. What they are off by in this
        run, times the regression slopes of the loss on them, is taken out where that `profits`, unless `control`
        says otherwise. Rare excursions that no draw has made yet can hide from every check, so that a part of the
        plain standard error stays.
        """
        mean, error, unseen = self.excess_and_unseen(control)
        return mean, float(np.hypot(error, unseen * mean))

    def excess_and_unseen(self, control: bool | None = None) -> tuple[float, float, float]:
        """As `excess`, with the relative error that parts of the posterior which were not seen may make apart."""
        raw = self._blocks(control=False)
        if control is False or (control is None and not self.profits()):
            return float(raw.mean()), _error(raw), self._unseen()
        blocks = self._blocks(control=True)
        error, plain = _error(blocks), _error(raw)
        # Where they explain all of the loss what they take out is certain, where they explain little it is a guess.
        guessed = (blocks.mean() - raw.mean()) * min(1.0, error / plain)
        return float(blocks.mean()), float(np.sqrt(error**2 + (UNSEEN * plain) ** 2 + guessed**2)), 0.0

    def balanced(self) -> bool:
        """Whether the virials are as large as the posterior's; chains that missed part of it leave them too small."""
        return bool(self.imbalance().min() > -UNBALANCED)

    def _unseen(self) -> float:
        """Relative error to expect of a run that is not `balanced`: half of what the virial E[δ·∇U] = d lacks."""
        lacking = -float(self._surplus()[..., 0].mean()) / self.target.losses.dimension
        return 0.0 if self.balanced() else max(0.0, 0.5 * lacking)

    def profits(self, most: float = UNBALANCED) -> bool:
        """Whether control variates can be trusted and pay.

        A run whose virials are off by more than chance has left part of the posterior unseen, where the slopes may
        differ; `most` is how many standard errors they may lie above their exact means. And virials that mix more
        slowly than the loss add more error to its mean than they take out, though each draw's is smaller.
        """
        trusted = self.balanced() and self.imbalance().max() < most
        return bool(trusted and _error(self._blocks(control=True)) < WORTHWHILE * _error(self._blocks(control=False)))

    def drift(self, control: bool | None = None) -> float:
        """Mean excess loss of the last quarter of the run less that of the quarter before it."""
        kept = self._blocks(self.profits() if control is None else control)
        middle = kept.shape[1] // 2
        return float(kept[:, middle:].mean() - kept[:, :middle].mean())

    def imbalance(self) -> NDArray[np.float64]:
        """How many standard errors the two virials are off their exact means."""
        rows = np.moveaxis(self._surplus(), -1, 0)
        return np.array([row.mean() / max(_error(row), 1e-300) for row in rows])

    def _surplus(self) -> NDArray[np.float64]:
        """The virials less their exact means, (chains, blocks, 2)."""
        exact = {"virial": self.target.losses.dimension, "soft_virial": float(self.target.weights().double().sum())}
        kept = [self.trace.values(name, discard=self.discard, chains=self.alive) - mean for name, mean in exact.items()]
        return np.stack(kept, axis=-1)

    def _blocks(self, control: bool) -> NDArray[np.float64]:
        """Block means of the excess loss, (chains, blocks), with or without control variates."""
        excess = self.trace.values("excess", discard=self.discard, chains=self.alive)
        if not control:
            return excess
        surplus = self._surplus()
        flat = surplus.reshape(-1, surplus.shape[-1])
        slopes, *_ = np.linalg.lstsq(flat - flat.mean(0), excess.ravel() - excess.mean(), rcond=1e-9)
        return excess - surplus @ slopes


def _error(blocks: NDArray[np.float64]) -> float:
    """Standard error of the mean of all blocks: from autocorrelation, or from the chains' own means if that is more.

    Autocorrelations are cut off where noise hides them; chains that each saw their own part of the posterior show it
    in the spread of their means.
    """
    within = np.sqrt(blocks.var(ddof=1) / effective_size(blocks))
    between = np.sqrt(blocks.mean(1).var(ddof=1) / len(blocks)) if len(blocks) >= MANY else 0.0
    return float(max(within, between))


def converged(run: Run, rtol: float) -> bool:
    """Whether the mean excess loss is known to `rtol` and no longer moves.

    Large networks need few draws for a small standard error, too few for R̂ to come near 1 by itself; for them a
    drift between the last two quarters below half the tolerance serves.
    """
    if run.alive.sum() < 2:
        return False
    mean, stderr = run.excess()
    if not np.isfinite(stderr) or mean <= 0:
        return False
    tolerance, plain = rtol * mean, run.summary()
    rhat = plain.rhat
    still = abs(run.drift()) <= max(0.5 * tolerance, 3 * np.sqrt(2) * stderr)
    precise = stderr <= tolerance and plain.stderr <= 3 * tolerance and run.balanced()
    return bool(precise and still and (rhat <= 1.02 or (stderr <= 0.5 * tolerance and rhat < 1.5)))


def below_zero(run: Run) -> bool:
    """Whether the mean excess loss is negative beyond doubt and not on its way up.

    The chains have found lower ground, so w* is no minimum, and no number of draws would make it one.
    """
    if run.alive.sum() < 2:
        return False
    mean, stderr = run.excess(control=False)
    return bool(mean < -MAX_NEGATIVE_STDERRS * stderr and run.drift(control=False) <= 3 * np.sqrt(2) * stderr)
