"""The log-likelihoods of all samples at posterior draws, as a matrix."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..checks import positive
from ..errors import InputError
from ..landscape import Landscape, check_landscape
from ..progress import tracked
from .evidence import MEMORY, Asked, LogLikelihood, gather, temperature


def log_likelihood(
    land: Landscape,
    *,
    nbeta: float | None = None,
    memory: float = MEMORY,
    gamma: float | None = None,
    sampler: str = "auto",
    chains: int | None = None,
    draws: int | None = None,
    batch_size: int | None = None,
    rtol: float = 0.02,
    budget: float = 60.0,
    seed: int = 0,
    progress: bool = True,
    beta: float | None = None,
) -> LogLikelihood:
    """log p(x_i | w_s) for every sample and draw, for other tools; `waic` and `loo` need no such matrix.

    Args:
        land: the landscape, whose local posterior at inverse temperature β is sampled.
        nbeta: inverse temperature nβ of the draws; n unless given, so that β = 1. Its former name is `beta`, for β.
        memory: bytes that the matrix may take, 8·chains·draws·n.
        gamma, sampler, chains, draws, batch_size, rtol, budget, seed, progress: as for `waic`; the draws are the same.

    Examples:
        >>> import torch, basinscope as bs
        >>> x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
        >>> net = torch.nn.Linear(2, 1)
        >>> with torch.no_grad():
        ...     land = bs.Landscape(net, "gaussian", (x, net(x)), sigma=1.0)
        >>> matrix = bs.log_likelihood(land, chains=4, draws=20, budget=1.0)
        >>> matrix.values.shape
        (4, 20, 40)
        >>> matrix.to_arviz().log_likelihood["target"].dims
        ('chain', 'draw', 'observation')
    """
    check_landscape(land)
    asked = Asked(temperature(land, nbeta, beta), gamma, sampler, chains, draws, batch_size, rtol, budget, seed)
    rows: list[NDArray[np.float64]] = []
    limit = positive("memory", memory)

    def keep(block: NDArray[np.float64], count: int) -> None:
        needed = 8 * block.size * count
        if needed > limit:
            raise InputError(
                f"{count} draws of {block.shape[0]} chains on {block.shape[1]:,} samples take {needed / 2**20:,.0f} "
                f"MiB, more than memory={limit / 2**20:,.0f} MiB — raise memory, or take fewer draws"
            )
        rows.append(block)

    with tracked("log-likelihood", progress) as report:
        evidence = gather(land, asked, report, keep=keep)
    return LogLikelihood(np.stack(rows, axis=1)[evidence.alive], asked.beta, evidence.checks, evidence.facts)
