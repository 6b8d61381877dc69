"""From log-likelihoods ℓ_is = log p(x_i | w_s) at posterior draws to the criteria they carry: one pass, O(n) memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..checks import positive, whole
from ..errors import InputError

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Pointwise:
    """What draws at inverse temperature β say of each of n observations, and the sums of it.

    With E and Var over the draws (variances divide by their number, as ArviZ does):

        BtL = −(1/n) Σ_i log E[p_i]           Bayes training loss
        GtL = −(1/n) Σ_i E[log p_i]           Gibbs training loss
        V = Σ_i Var[log p_i]                  functional variance
        WAIC = BtL + (β/n) V
        CvL = −(1/n) Σ_i log (E[p_i^(1−β)] / E[p_i^(−β)])   leave-one-out by importance sampling
        ν̂ = β V / 2                           singular fluctuation

    Attributes:
        beta: inverse temperature β of the draws.
        draws: their number.
        log_predictive: log E[p_i], (n,).
        mean, variance, third: cumulants of log p_i, (n,) each.
        log_leave_one_out: log (E[p_i^(1−β)] / E[p_i^(−β)]), (n,).
    """

    beta: float
    draws: int
    log_predictive: Array
    mean: Array
    variance: Array
    third: Array
    log_leave_one_out: Array

    @property
    def n(self) -> int:
        """Number of observations."""
        return len(self.mean)

    @property
    def bayes_training_loss(self) -> float:
        return -float(self.log_predictive.mean())

    @property
    def gibbs_training_loss(self) -> float:
        return -float(self.mean.mean())

    @property
    def functional_variance(self) -> float:
        return float(self.variance.sum())

    @property
    def fluctuation(self) -> float:
        """ν̂ = βV/2."""
        return 0.5 * self.beta * self.functional_variance

    @cached_property
    def waic_terms(self) -> Array:
        """−log E[p_i] + β Var[log p_i], whose mean is WAIC."""
        return self.beta * self.variance - self.log_predictive

    @property
    def waic(self) -> float:
        return float(self.waic_terms.mean())

    @property
    def leave_one_out(self) -> float:
        return -float(self.log_leave_one_out.mean())

    @property
    def cumulants(self) -> tuple[float, float, float]:
        """Y₁, Y₂, Y₃: mean over observations of the cumulants of −log p."""
        return -float(self.mean.mean()), float(self.variance.mean()), -float(self.third.mean())


class Stream:
    """Draws as they come: what `Pointwise` needs, in 9 numbers per observation and group.

    Draws come in groups, one per chain: groups are pooled for the answer, and their spread is its standard error.

    Args:
        n: observations.
        beta: inverse temperature β > 0 of the draws.
        groups: chains.
        device: where to add up.

    Examples:
        >>> import torch
        >>> stream = Stream(n=2, groups=1)
        >>> stream.add(torch.tensor([[-1.0, -2.0]]))
        >>> stream.add(torch.tensor([[-3.0, -2.0]]))
        >>> stream.pooled().variance.tolist()
        [1.0, 0.0]
    """

    def __init__(self, n: int, *, beta: float = 1.0, groups: int = 1, device: torch.device | str = "cpu") -> None:
        self.beta = positive("beta", beta)
        self.n = whole("n", n, 1)
        self.groups = whole("groups", groups, 1)
        self.counts = np.zeros(self.groups, dtype=int)  # draws of each group
        self._powers = (1.0, 1 - self.beta, -self.beta)
        self._left: dict[tuple[int, ...], list[Pointwise]] = {}

        def filled(value: float, *shape: int) -> Tensor:
            return torch.full((*shape, self.groups, self.n), value, dtype=torch.float64, device=device)

        self._mean, self._second, self._third = filled(0.0), filled(0.0), filled(0.0)
        self._peak, self._sum = filled(-math.inf, 3), filled(0.0, 3)  # of log Σ_s exp(power · ℓ)

    def add(self, rows: Tensor | Array, group: int | None = None) -> None:
        """Add log-likelihoods (groups, n) of one draw of every group, or (draws, groups, n) of several.

        With `group`, rows (1, n) or (draws, 1, n) are draws of that group alone.
        """
        block = torch.as_tensor(rows, dtype=torch.float64, device=self._mean.device)
        block = block[None] if block.ndim == 2 else block
        span = slice(0, self.groups) if group is None else slice(group, group + 1)
        width = span.stop - span.start
        if block.shape[1:] != (width, self.n):
            raise InputError(
                f"log-likelihoods must have shape (draws, {width}, {self.n}) or ({width}, {self.n}), got "
                f"{tuple(block.shape)} — the last axis runs over observations"
            )
        if not len(block):
            return
        refuse_infinite(block)
        self._left.clear()
        self._add_moments(block, span)
        for k, power in enumerate(self._powers):
            scaled = power * block
            old = self._peak[k, span]
            peak = torch.maximum(old, scaled.amax(0))
            self._sum[k, span] = self._sum[k, span] * (old - peak).exp() + (scaled - peak).exp().sum(0)
            self._peak[k, span] = peak
        self.counts[span] += len(block)

    def _add_moments(self, block: Tensor, span: slice) -> None:
        """Merge the central moments of the block with those so far (Pébay 2008)."""
        old, new = self._column(self.counts[span]), len(block)
        total = old + new
        centre = block.mean(0)
        apart = block - centre
        second, third = apart.square().sum(0), (apart**3).sum(0)
        shift = centre - self._mean[span]
        self._third[span] += (
            third
            + shift**3 * old * new * (old - new) / total**2
            + 3 * shift * (old * second - new * self._second[span]) / total
        )
        self._second[span] += second + shift.square() * old * new / total
        self._mean[span] += shift * new / total

    def _column(self, counts: NDArray[np.int_]) -> Tensor:
        return torch.as_tensor(counts, dtype=torch.float64, device=self._mean.device)[:, None]

    def pooled(self, groups: Any = None) -> Pointwise:
        """All draws of the given groups (a mask or indices; all unless given) as one sample."""
        chosen = self._chosen(groups)
        mean, second, third = (part[chosen] for part in (self._mean, self._second, self._third))
        counts = self._column(self.counts[chosen])
        total = int(self.counts[chosen].sum())
        if total < 2:
            raise InputError(f"criteria need at least 2 draws, got {total} — draw more from the posterior")
        centre = (counts * mean).sum(0) / total
        shift = mean - centre
        peaks, sums = self._peak[:, chosen], self._sum[:, chosen]
        top = peaks.amax(1)
        logs = top + (sums * (peaks - top[:, None]).exp()).sum(1).log() - math.log(total)
        variance = (second + counts * shift.square()).sum(0) / total
        skew = (third + 3 * shift * second + counts * shift**3).sum(0) / total
        return Pointwise(
            self.beta,
            total,
            *(part.cpu().numpy() for part in (logs[0], centre, variance, skew, logs[1] - logs[2])),
        )

    def estimate(self, statistic: Callable[[Pointwise], float], groups: Any = None) -> tuple[float, float]:
        """A statistic of all draws and its Monte Carlo standard error, by leaving out one group after the other.

        The error knows the correlation of draws inside a group; it is NaN for a single group.
        """
        chosen = self._chosen(groups)
        value = statistic(self.pooled(chosen))
        if len(chosen) < 2 or self.counts[chosen].sum() - self.counts[chosen].max() < 2:
            return value, math.nan
        left_out = np.array([statistic(pooled) for pooled in self._leaving_out(chosen)])
        return value, float(np.sqrt((len(left_out) - 1) * left_out.var()))

    def _leaving_out(self, chosen: NDArray[np.int_]) -> list[Pointwise]:
        """What is left without each group, kept for the next statistic: as much memory as the stream itself takes."""
        key = tuple(chosen.tolist())
        if key not in self._left:
            self._left = {key: [self.pooled(np.delete(chosen, g)) for g in range(len(chosen))]}
        return self._left[key]

    def _chosen(self, groups: Any) -> NDArray[np.int_]:
        return np.arange(self.groups)[slice(None) if groups is None else np.asarray(groups)]


def pointwise(log_likelihood: Any, beta: float = 1.0) -> Pointwise:
    """The criteria of a matrix of log-likelihoods (draws, n) or (chains, draws, n) at inverse temperature β.

    Examples:
        >>> import numpy as np
        >>> result = pointwise(np.array([[-1.0, -2.0], [-1.5, -2.5]]))
        >>> round(result.gibbs_training_loss, 3), round(result.functional_variance, 3)
        (1.75, 0.125)
    """
    return streamed(log_likelihood, beta).pooled()


def streamed(log_likelihood: Any, beta: float = 1.0, blocks: int = 16) -> Stream:
    """A matrix (draws, n) or (chains, draws, n) as a stream whose groups are the chains.

    One chain alone is cut into up to `blocks` pieces, each long against its correlations if the chain is.
    """
    rows = as_chains(log_likelihood)
    chains, draws, n = rows.shape
    pieces = min(blocks, max(1, draws // 4)) if chains == 1 else 1
    length = draws // pieces
    stream = Stream(n, beta=beta, groups=chains * pieces)
    even = rows[:, : length * pieces].reshape(chains * pieces, length, n)
    for block in even.transpose(0, 1).split(256):
        stream.add(block)
    if draws > length * pieces:  # of one chain: the last piece takes what is left over
        stream.add(rows[0, length * pieces :, None], group=stream.groups - 1)
    return stream


def as_chains(log_likelihood: Any) -> Tensor:
    """Log-likelihoods as float64 (chains, draws, n), checked."""
    try:
        rows = torch.as_tensor(log_likelihood)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"log-likelihoods must be an array (draws, n) or (chains, draws, n), got "
            f"{type(log_likelihood).__name__}: {error}"
        ) from error
    if rows.ndim == 2:
        rows = rows[None]
    if rows.ndim != 3 or 0 in rows.shape:
        raise InputError(
            f"log-likelihoods must be an array (draws, n) or (chains, draws, n), got shape {tuple(rows.shape)} — "
            f"flatten the observations into the last axis"
        )
    if rows.shape[0] * rows.shape[1] < 2:
        raise InputError(f"criteria need at least 2 draws, got {rows.shape[0] * rows.shape[1]} — draw more")
    if rows.is_complex():
        raise InputError("log-likelihoods must be real numbers, got complex ones")
    rows = rows.to(torch.float64)
    refuse_infinite(rows)
    return rows


def refuse_infinite(block: Tensor) -> None:
    """Refuse log-likelihoods (..., n) that are no finite numbers."""
    bad = ~torch.isfinite(block)
    if not bool(bad.any()):
        return
    where = bad.flatten(0, -2).any(0).nonzero()[:, 0].tolist()
    lowest = bool((block == -math.inf).any())
    what = "−∞: a draw gives an observation probability zero" if lowest else "NaN or +∞"
    raise InputError(
        f"log-likelihoods must be finite, got {int(bad.sum())} of {bad.numel()} that are {what}, at observations "
        f"{where[:5]}{'…' if len(where) > 5 else ''} — drop those draws, or use a likelihood "
        f"that is positive everywhere"
    )
