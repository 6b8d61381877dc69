"""Run the Gibbs sampler until its mean is known well enough, and say how well."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from .case import Array, Reference
from .gibbs import LinearPosterior, sweep

TARGET = 0.001  # relative standard error aimed at
ACCEPTABLE = 0.003  # and the largest that may stand as a reference
RHAT = 1.01
COOLING = 60  # sweeps
FIRST_ROUND = 400
BATCHES = 8  # per chain, for the standard error


class NotConverged(RuntimeError):
    """The chains disagree or the budget ran out: there is no reference."""


def gibbs_mean(posterior: LinearPosterior, *, seed: int, target: float = TARGET, budget: float = 300.0) -> Reference:
    """λ_t by block-Gibbs sampling to a relative standard error `target`, split-R̂ below 1.01.

    Half of the chains start at w*. The others start at draws from the localiser, which is wider than the posterior, and
    are cooled down from a thousandth of t, where every barrier is low, so that they choose among separate modes by
    their weight. Agreement between the two is evidence that nothing was missed. A quarter of every run is
    discarded; a run that falls short is continued to twice its length, within `budget` seconds of processor time.
    """
    clock = time.process_time()
    rng = np.random.default_rng(seed)
    chains = int(np.clip(2 * (20_000 // posterior.dimension), 8, 128))
    wide = [f + rng.standard_normal(f.shape) / np.sqrt(posterior.gamma) for f in posterior.start(chains // 2)]
    for index, fraction in enumerate(np.geomspace(1e-3, 1, COOLING)):
        sweep(replace(posterior, t=fraction * posterior.t), wide, rng, upward=index % 2 == 0)
    state = [np.concatenate(pair) for pair in zip(posterior.start(chains - chains // 2), wide, strict=True)]
    offset = posterior.offset
    record: list[Array] = []
    length = FIRST_ROUND
    while True:
        while len(record) < length:
            record.append(sweep(posterior, state, rng, upward=len(record) % 2 == 0) - offset)
        values = np.array(record[len(record) // 4 :])
        value, error, rhat = float(values.mean()), standard_error(values), split_rhat(values)
        elapsed = time.process_time() - clock
        if error <= target * abs(value) and rhat < RHAT:
            return Reference(value, error, "gibbs", rhat, elapsed)
        if 2 * elapsed > budget:
            if error <= ACCEPTABLE * abs(value) and rhat < RHAT:
                return Reference(value, error, "gibbs", rhat, elapsed)
            raise NotConverged(
                f"after {length} sweeps of {chains} chains: {value:.5g} ± {error:.2g}, split-R̂ {rhat:.3f} "
                f"(needed ± {ACCEPTABLE * abs(value):.2g} and {RHAT})"
            )
        length *= 2


def standard_error(values: Array) -> float:
    """Of the mean of draws × chains: the larger of batch means (long batches) and the spread between chains."""
    length = len(values) // BATCHES
    batches = values[: length * BATCHES].reshape(BATCHES, length, -1).mean(axis=1)
    between = values.mean(axis=0)
    return float(max(batches.std(ddof=1) / np.sqrt(batches.size), between.std(ddof=1) / np.sqrt(between.size)))


def split_rhat(values: Array) -> float:
    """Potential scale reduction of draws × chains, each chain split in two."""
    half = len(values) // 2
    pieces = np.concatenate([values[:half], values[-half:]], axis=1)
    within = pieces.var(axis=0, ddof=1).mean()
    return float(np.sqrt((half - 1) / half + pieces.mean(axis=0).var(ddof=1) / within))
