"""The singular fluctuation ν, on all data or on minibatches."""

from __future__ import annotations

import math
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor

from ..checks import whole
from ..errors import InputError
from ..estimates import Estimate
from ..landscape import Landscape
from ..progress import Report, tracked
from .checks import check_draws
from .evidence import checks_of, facts_of, gather, mixing, posterior_for_draws, temperature
from .posterior import Posterior
from .posterior_statistic import posterior_statistic
from .settings import Sampling, takes_settings


@takes_settings
def fluctuation(
    source: Any,
    *,
    samples: int | None = None,
    progress: bool = True,
    beta: float | None = None,
    **settings: Unpack[Sampling],
) -> Estimate:
    """ν̂ = (β/2) Σ_i Var[log p(x_i|w)], the singular fluctuation; 2ν̂/n is the gap WAIC predicts between BtL and BgL.

    With `samples`, each draw's losses are taken on that many samples only, each chain going through all data in an
    order of its own, so that one draw costs samples/n of a full pass. A sample then has c_i draws instead of all, and

        V̂ = n Σ_i Σ_s (l_is − l̄_i)² / Σ_i (c_i − 1)

    has the same mean as on all data: draws that saw a sample are a random part of all draws.

    Args:
        source: a landscape or its `posterior`, or log-likelihoods (draws, n) or (chains, draws, n).
        samples: per draw and chain; all unless given.
        progress: show a bar when it takes over a second.
        beta: former name of `nbeta`, for β.
        settings: as for `waic`.

    Examples:
        >>> import numpy as np, basinscope as bs
        >>> draws = np.random.default_rng(0).normal(-1.0, 0.1, size=(4, 500, 20))
        >>> round(bs.fluctuation(draws).value, 2)  # ½ · 20 · 0.01
        0.1
    """
    at = temperature(source, settings.get("nbeta"), beta)
    with tracked("fluctuation", progress) as report:
        if samples is None:
            evidence = gather(source, at, settings, report)
            return posterior_statistic("fluctuation", evidence, lambda pooled: pooled.fluctuation)
        if not isinstance(source, (Landscape, Posterior)):
            raise InputError(
                f"samples={samples} is about drawing from a landscape, got draws already made — leave it out"
            )
        whole("samples", samples, 1)
        return _visited(posterior_for_draws(source, at, settings, report), samples, report)


def _visited(post: Posterior, samples: int, report: Report) -> Estimate:
    post.refuse_diverged()
    land, chains, count, beta = post.land, post.chains, post.count, post.nbeta / post.land.n
    size = min(samples, land.n)
    visits = Visits(chains, land.n, size, post.settings.seed, land.device)
    alive = torch.ones(chains, dtype=torch.bool)
    trace = np.empty((chains, count))
    for number, (delta, living) in enumerate(post.draws()):
        indices = visits.next()
        losses = post.losses.own_excess(delta, indices)
        visits.add(indices, losses)
        trace[:, number] = losses.mean(1).cpu().numpy()
        alive = living
        report(number / count, f"{number + 1} of {count} draws")
    post.refuse_diverged(alive)
    survivors = np.flatnonzero(alive.cpu().numpy())
    if count * len(survivors) * size < 2 * land.n:
        raise InputError(
            f"{count} draws of {len(survivors)} chains on {size} of {land.n} samples see a sample fewer than two times "
            f"on average, too few for a variance — raise draws or samples"
        )
    value = 0.5 * beta * visits.variance(survivors)
    left_out = np.array([visits.variance(np.delete(survivors, g)) for g in range(len(survivors))])
    stderr = 0.5 * beta * math.sqrt((len(left_out) - 1) * left_out.var())
    checks = (*checks_of(post, alive.cpu().numpy(), trace[survivors]), check_draws(stderr, abs(value)))
    facts = facts_of(post) | {
        "rhat": mixing(trace[survivors]),
        "beta": beta,
        "draws": count,
        "samples": size,
        "visits": count * chains * size / land.n,
    }
    return Estimate("fluctuation", value, stderr, checks, facts)


class Visits:
    """Sums of the losses that chains saw, sample by sample.

    Every chain goes through the data in an order of its own, new on each round: all samples are seen equally often,
    and the draws that saw one are far apart.

    Args:
        chains: C.
        n: samples.
        size: samples per draw and chain.
        seed: of the orders.
        device: where to add up.
    """

    def __init__(self, chains: int, n: int, size: int, seed: int, device: torch.device | str = "cpu") -> None:
        self.n, self.size = n, size
        self._generator = torch.Generator(device).manual_seed(seed)
        self._order = torch.empty(chains, 0, dtype=torch.long, device=device)
        self._sums = torch.zeros(3, chains, n, dtype=torch.float64, device=device)  # of 1, l and l²

    def next(self) -> Tensor:
        """The samples (C, m) that each chain's next draw is to be seen on, no sample twice in a draw."""
        if self._order.shape[1] < self.size:  # the rest of a round is dropped: a draw sees a sample once
            chains = self._sums.shape[1]
            keys = torch.rand(chains, self.n, generator=self._generator, device=self._sums.device)
            self._order = keys.argsort(1)
        now, self._order = self._order[:, : self.size], self._order[:, self.size :]
        return now

    def add(self, indices: Tensor, losses: Tensor) -> None:
        """Add losses (C, m), each less that at w*, which keeps the digits of their squares."""
        for row, values in zip(self._sums, (torch.ones_like(losses), losses, losses.square()), strict=True):
            row.scatter_add_(1, indices, values)

    def variance(self, chains: Any = None) -> float:
        """V̂ of the given chains."""
        chosen = slice(None) if chains is None else torch.as_tensor(chains, device=self._sums.device)
        count, first, second = self._sums[:, chosen].sum(1)
        repeated = count > 0
        squares = (second - first.square() / count.clamp(min=1))[repeated].sum()
        return float(self.n * squares / (count[repeated] - 1).sum())
