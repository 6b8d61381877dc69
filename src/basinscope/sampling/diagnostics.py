"""Convergence of chains: effective sample size, split-R̂, and the mean with its standard error."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def autocovariance(rows: Array) -> Array:
    """Autocovariance of every row at lags 0, 1, …, by FFT (biased normalization, as usual for spectra)."""
    length = rows.shape[-1]
    centred = rows - rows.mean(-1, keepdims=True)
    spectrum = np.fft.rfft(centred, n=2 * length)
    return np.fft.irfft(spectrum * np.conj(spectrum), n=2 * length)[..., :length] / length


def effective_size(rows: Array) -> float:
    """Effective number of independent values among all entries of (chains, length); NaN if that cannot be told.

    Geyer's initial monotone sequence on the multi-chain autocorrelation ρ_k = 1 − (W − s_k)/V (Vehtari et al. 2021).

    Examples:
        >>> import numpy as np
        >>> independent = np.random.default_rng(0).normal(size=(4, 1000))
        >>> 3000 < effective_size(independent) < 5000
        True
    """
    chains, length = rows.shape
    total = chains * length
    if length < 4 or chains == 0:
        return float("nan")
    covariance = autocovariance(rows) * length / (length - 1)
    within = float(covariance[:, 0].mean())
    between = float(rows.mean(1).var(ddof=1)) if chains > 1 else 0.0
    overall = within * (length - 1) / length + between
    if overall <= 0:
        return float(total)
    rho = 1 - (within - covariance.mean(0)) / overall
    pairs = rho[: length // 2 * 2].reshape(-1, 2).sum(1)
    negative = np.flatnonzero(pairs <= 0)
    pairs = np.minimum.accumulate(pairs[: negative[0] if len(negative) else len(pairs)])
    tau = max(-1 + 2 * float(pairs.sum()), 1 / math.log10(total))
    return float(total / tau)


def split_rhat(means: Array, within: float, length: float) -> float:
    """√((W(N−1)/N + B/N)/W) over half-chains.

    Args:
        means: mean of each half-chain.
        within: variance W of single draws inside half-chains.
        length: draws N per half-chain.

    Examples:
        >>> import numpy as np
        >>> split_rhat(np.array([1.0, 1.0, 1.0, 1.0]), within=1.0, length=100) < 1.0
        True
    """
    if within <= 0:
        return 1.0 if float(np.ptp(means)) == 0 else float("inf")
    return math.sqrt((length - 1) / length + float(means.var(ddof=1)) / within)


class Summary(NamedTuple):
    """A statistic's mean over chains and draws."""

    mean: float
    stderr: float
    ess: float  # effective number of independent draws
    rhat: float
    variance: float  # of single draws


def summarize(blocks: Array, squares: Array, width: int) -> Summary:
    """Mean, autocorrelation-aware standard error, ESS and split-R̂ from block means of x and of x² (chains, blocks).

    The standard error comes from the block means, which carry every autocorrelation longer than a block.
    """
    chains, length = blocks.shape
    half = length // 2
    mean = float(blocks.mean())
    variance = max(0.0, float(squares.mean()) - mean**2)
    ess = effective_size(blocks)
    spread = float(blocks.var(ddof=1))
    stderr = math.sqrt(spread / ess) if ess > 0 else float("nan")
    halves = np.concatenate([blocks[:, :half], blocks[:, half : 2 * half]])
    half_means = halves.mean(1)
    squared = np.concatenate([squares[:, :half], squares[:, half : 2 * half]]).mean(1)
    within = float(np.maximum(squared - half_means**2, 0).mean())
    draws = variance / stderr**2 if stderr > 0 else float(chains * length * width)
    return Summary(mean, stderr, draws, split_rhat(half_means, within, half * width), variance)
