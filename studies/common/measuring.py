"""How several studies measure: where, plain SGLD of many networks at once, and estimates as columns of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from basinscope.estimates import Estimate
from basinscope.landscape import Landscape
from basinscope.sampling import plain
from basinscope.sampling.calibration import Resolution
from basinscope.sampling.diagnostics import Summary, summarize
from basinscope.sampling.goal import unlimited
from basinscope.sampling.stacked import StackedLosses


def device() -> torch.device:
    """The GPU where there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@dataclass(frozen=True)
class Walked:
    """What SGLD finds around a network.

    Attributes:
        loss: L_n(w*).
        means: of the excess loss, one for each share of the draws that is left out.
    """

    loss: float
    means: tuple[Summary, ...]


def sgld_excess(
    lands: Sequence[Landscape],
    at: Resolution,
    *,
    step_size: float,
    chains: int,
    draws: int,
    batch_size: int,
    seed: int,
) -> list[tuple[float, Summary | None]]:
    """L_n(w*) of several networks, and the mean excess loss that SGLD finds around each; None where it diverged.

    All draws count, as papers have it.
    """
    found = sgld_walks(
        lands, at, step_size=step_size, chains=chains, draws=draws, batch_size=batch_size, seed=seed, discard=(0.0,)
    )
    return [(each.loss, each.means[0] if each.means else None) for each in found]


def sgld_walks(
    lands: Sequence[Landscape],
    at: Resolution,
    *,
    step_size: float,
    chains: int,
    draws: int,
    batch_size: int,
    seed: int,
    discard: Sequence[float],
) -> list[Walked]:
    """What SGLD finds around several networks, without these shares of its beginning; no means where it diverged.

    All run at once, `chains` of them from each w*.
    """
    losses = StackedLosses(lands, chains)
    run = plain.sample(
        "sgld", losses, at, unlimited(seed, draws), price=0.0, chains=chains * len(lands), step_size=step_size,
        batch_size=min(batch_size, lands[0].n),
    )  # fmt: skip
    found = []
    for number, base in enumerate(losses.base.double().mean(1).tolist()):
        rows = slice(chains * number, chains * (number + 1))
        pairs = [
            [run.trace.values(name, discard=share)[rows] for name in ("excess", "excess_squared")] for share in discard
        ]
        means = tuple(summarize(values, squares, run.trace.width) for values, squares in pairs)
        found.append(Walked(base, means if run.alive[rows].all() else ()))
    return found


def columns(estimates: Mapping[str, Estimate | float]) -> dict[str, Any]:
    """Measurements as columns of a row: a value, and for estimates a standard error and a verdict.

    Examples:
        >>> columns({"llc": Estimate("llc", 2.0, 0.1), "loss": 0.5})
        {'llc': 2.0, 'llc_stderr': 0.1, 'llc_verdict': 'ok', 'loss': 0.5}
    """
    row: dict[str, Any] = {}
    for name, value in estimates.items():
        if isinstance(value, Estimate):
            row |= {name: value.value, f"{name}_stderr": value.stderr, f"{name}_verdict": value.verdict}
        else:
            row[name] = value
    return row
