"""The log-likelihoods of all samples at posterior draws, as a matrix."""

from __future__ import annotations

from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from ..checks import positive
from ..errors import InputError
from ..landscape import Landscape
from ..progress import tracked
from .evidence import LogLikelihood, gather, temperature
from .posterior import MEMORY, Posterior, landscape_of
from .settings import Sampling, takes_settings


@takes_settings
def log_likelihood(
    land: Landscape | Posterior,
    *,
    memory: float = MEMORY,
    progress: bool = True,
    beta: float | None = None,
    **settings: Unpack[Sampling],
) -> LogLikelihood:
    """log p(x_i | w_s) for every sample and draw, for other tools; `waic` and `loo` need no such matrix.

    Args:
        land: the landscape, whose local posterior is sampled, or its `posterior`.
        memory: bytes that the matrix may take, 8·chains·draws·n.
        progress: show a bar when it takes over a second.
        beta: former name of `nbeta`, for β.
        settings: as for `waic`; the draws are the same.

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
    landscape_of(land)
    at = temperature(land, settings.get("nbeta"), beta)
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
        evidence = gather(land, at, settings, report, keep=keep)
    return LogLikelihood(np.stack(rows, axis=1)[evidence.alive], at, evidence.checks, evidence.facts)
