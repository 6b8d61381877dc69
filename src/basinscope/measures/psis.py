"""Leave-one-out by Pareto-smoothed importance sampling (Vehtari, Simpson, Gelman, Yao and Gabry 2024), streamed."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..checks import positive, whole
from ..errors import InputError
from .pointwise import refuse_infinite

Array = NDArray[np.float64]

SHORTEST = 5  # weights that make a tail
MAX_SHAPE = 0.7  # k̂ beyond which no number of draws gives a trustworthy answer
_BLOCK = 16 * 2**20  # bytes that one piece of the Pareto fit may take
_PRIOR_STRENGTH, _PRIOR_SHAPE = 10, 0.5  # the weak prior on k of Vehtari et al. 2024, appendix C
_PRIOR_SCALE = 3  # of the profile's grid (Zhang and Stephens 2009)


class Smoothed(NamedTuple):
    """Leave-one-out densities and how far the importance weights behind each can be trusted."""

    log_leave_one_out: Array  # (n,)
    shape: Array  # k̂ (n,): the Pareto shape of the largest weights; ∞ where there are too few


def tail_length(draws: int, efficiency: float = 1.0) -> int:
    """How many of the largest weights are smoothed: ⌊3√(S/r)⌋, r the draws' efficiency ESS/S, or ⌊S/5⌋ of few draws.

    Rounded down as ArviZ does since 1.0; earlier releases and R's loo round up.

    Examples:
        >>> tail_length(4000), tail_length(100)
        (189, 20)
    """
    if draws * efficiency > 225:
        return math.floor(3 * math.sqrt(draws / efficiency))
    return draws // 5


def reliable_shape(draws: int) -> float:
    """Largest k̂ up to which S draws give a trustworthy answer: min(1 − 1/log₁₀ S, 0.7).

    Examples:
        >>> round(reliable_shape(1000), 3), reliable_shape(10**6)
        (0.667, 0.7)
    """
    return min(1 - 1 / math.log10(max(draws, 2)), MAX_SHAPE)


class Tails:
    """The largest weights r_s = p_i(w_s)^(−β) of every observation, and sums over all the others.

    What smoothing needs of S draws are the M ≈ 3√S largest weights of each observation: n·(M + 1) numbers instead of
    the matrix of n·S. Nothing is lost on the way, so that the answer is that of the whole matrix.

    Args:
        n: observations.
        draws: all draws that will come.
        beta: inverse temperature of the draws.
        efficiency: effective draws per draw, for the length of the tail.
        memory: bytes that the weights may take.
        device: where to keep them.
    """

    def __init__(
        self,
        n: int,
        draws: int,
        *,
        beta: float = 1.0,
        efficiency: float = 1.0,
        memory: float = 2**30,
        device: torch.device | str = "cpu",
    ) -> None:
        self.n, self.expected = whole("n", n, 1), whole("draws", draws, 2)
        self.beta = positive("beta", beta)
        self.length = min(tail_length(self.expected, positive("efficiency", efficiency)), self.expected - 1)
        needed = 2 * 8 * self.n * (self.length + 1)  # once more while new draws are sorted in
        if needed > positive("memory", memory):
            raise InputError(
                f"Pareto smoothing keeps the {self.length + 1} largest weights of {self.n:,} observations, "
                f"{needed / 2**20:,.0f} MiB, more than memory={memory / 2**20:,.0f} MiB — raise memory, take fewer "
                f"draws, or use plain importance sampling (method='importance')"
            )
        self.draws = 0
        self._tail = torch.empty(self.n, 0, dtype=torch.float64, device=device)  # ℓ of the largest weights
        self._body = torch.full((2, self.n), -math.inf, dtype=torch.float64, device=device)  # log Σ r, log Σ r p

    def add(self, rows: Tensor | Array) -> None:
        """Add log-likelihoods (..., n)."""
        block = torch.as_tensor(rows, dtype=torch.float64, device=self._tail.device)
        if block.ndim < 1 or block.shape[-1] != self.n:
            raise InputError(f"log-likelihoods must have {self.n} columns, got shape {tuple(block.shape)}")
        refuse_infinite(block.reshape(-1, self.n))
        for part in block.reshape(-1, self.n).split(max(1, self.length + 1)):
            self._sort_in(part.T)
            self.draws += len(part)

    def _sort_in(self, fresh: Tensor) -> None:
        together = torch.cat([self._tail, fresh], dim=1)
        keep = self.length + 1
        if together.shape[1] <= keep:
            self._tail = together
            return
        ordered = together.sort(dim=1).values  # small likelihood first: that is where the weight is large
        self._tail, rest = ordered[:, :keep].clone(), ordered[:, keep:]
        sums = torch.stack([(-self.beta * rest).logsumexp(1), ((1 - self.beta) * rest).logsumexp(1)])
        self._body = torch.logaddexp(self._body, sums)

    def smoothed(self) -> Smoothed:
        """log (Σ r_s p_s / Σ r_s) with the tail of r replaced by the quantiles of a Pareto fit, and its k̂."""
        if self.draws != self.expected:
            raise InputError(f"expected {self.expected} draws, got {self.draws} — state how many will come")
        ordered = self._tail.sort(dim=1, descending=True).values.cpu().numpy()  # weights ascending
        log_weights = -self.beta * ordered
        peak = log_weights[:, -1:]
        new, shape = _pareto_smoothed(log_weights - peak)
        log_tail = np.concatenate([log_weights[:, :1] - peak, new], axis=1)
        body = self._body.cpu().numpy() - peak.T
        below = np.logaddexp(body[0], _logsumexp(log_tail))
        above = np.logaddexp(body[1], _logsumexp(log_tail + ordered))
        return Smoothed(above - below, shape)


def _logsumexp(rows: Array) -> Array:
    top = rows.max(1)
    return top + np.log(np.exp(rows - top[:, None]).sum(1))


def _pareto_smoothed(log_weights: Array) -> tuple[Array, Array]:
    """Smoothed log-weights (n, M) and k̂ (n,) of (n, M + 1) ascending ones whose largest is 0; the first is the cut."""
    n, length = log_weights.shape[0], log_weights.shape[1] - 1
    tail = log_weights[:, 1:]
    if length < SHORTEST:
        return tail, np.full(n, np.inf)
    smooth, shape = tail.copy(), np.full(n, -np.inf)
    varies = np.flatnonzero(tail[:, -1] - tail[:, 0] > np.finfo(float).tiny)  # equal weights need no smoothing
    step = max(1, _BLOCK // (8 * length * (30 + math.isqrt(length))))
    at = (np.arange(length) + 0.5) / length
    for start in range(0, len(varies), step):
        which = varies[start : start + step]
        cut = np.exp(log_weights[which, :1])
        k, sigma = pareto_fit(np.exp(tail[which]) - cut)
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = np.expm1(-k[:, None] * np.log1p(-at)) / k[:, None]
            quantiles = np.log(cut + sigma[:, None] * np.where(k[:, None] == 0, -np.log1p(-at), slope))
        good = np.isfinite(k) & (sigma > 0)
        smooth[which[good]] = np.minimum(quantiles[good], 0.0)
        shape[which] = np.where(good, k, np.inf)
    return smooth, shape


def pareto_fit(excess: Array) -> tuple[Array, Array]:
    """Shape k and scale σ of a generalised Pareto distribution for every ascending row of (n, M) positive values.

    Zhang and Stephens (2009): the profile likelihood in b = −k/σ, averaged over a grid of b, with a weak prior that
    draws k to ½ for short tails.

    Examples:
        >>> import numpy as np
        >>> u = (np.arange(2000) + 0.5) / 2000
        >>> k, sigma = pareto_fit(np.expm1(-0.4 * np.log1p(-u))[None] / 0.4)  # quantiles of k = 0.4, σ = 1
        >>> round(float(k[0]), 2), round(float(sigma[0]), 2)
        (0.4, 1.0)
    """
    length = excess.shape[1]
    points = 30 + math.isqrt(length)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        grid = 1 - np.sqrt(points / (np.arange(points) + 0.5))
        quartile = excess[:, int(length / 4 + 0.5) - 1]
        b = grid / (_PRIOR_SCALE * quartile[:, None]) + 1 / excess[:, -1:]
        k = np.log1p(-b[:, :, None] * excess[:, None, :]).mean(2)
        profile = length * (np.log(-b / k) - k - 1)
        weights = np.exp(profile - profile.max(1, keepdims=True))
        weights /= weights.sum(1, keepdims=True)
        weights[weights < 10 * np.finfo(float).eps] = 0
        weights /= weights.sum(1, keepdims=True)
        best = (weights * b).sum(1)
        shape = np.log1p(-best[:, None] * excess).mean(1)
        scale = -shape / best
    return (length * shape + _PRIOR_STRENGTH * _PRIOR_SHAPE) / (length + _PRIOR_STRENGTH), scale
