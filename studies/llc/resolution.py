"""λ_t as a function of t = nβ over decades, by one set of chains on a ladder of temperatures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from basinscope.exact import finite
from basinscope.landscape import Landscape, watanabe_nbeta
from basinscope.measures.llc import estimate_of
from basinscope.measures.planting import plant
from basinscope.measures.soft_rank import soft_rank
from basinscope.sampling.calibration import Resolution
from basinscope.sampling.clock import Nominal
from basinscope.sampling.local import Sampler, Settings
from studies.common.measuring import device

from .cases import teacher, trained_classifier
from .jobs import Ladder

Row = dict[str, Any]
SPECTRUM = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5)
CHAIN = (3, 2, 1, 3)
NETWORK = (5, 4, 4)  # at rank 3, one less than the smallest width


@dataclass(frozen=True)
class LadderCase:
    """A landscape, what λ_t is there as far as it is known, and its limit λ."""

    land: Landscape
    exact: Callable[[float, float], float] | None
    limit: float | None


def run(job: Ladder) -> list[Row]:
    """A row for every rung."""
    ladder = subject(job)
    settings = Settings(sampler="hmc", rtol=0.02, budget=Nominal(job.budget), seed=job.seed)
    rungs = job.rungs
    if job.case == "real":  # at β of order one its w* is no minimum of the sample any more
        top = watanabe_nbeta(ladder.land.n)
        rungs = tuple(top * rung / max(job.rungs) for rung in job.rungs)
    values = descend(ladder.land, rungs, job.gamma, settings)
    halves = [
        estimate.value / 2
        for estimate in soft_rank(
            ladder.land, weight_decay=[job.gamma / t for t in rungs], seed=job.seed, rtol=0.02, progress=False
        )
    ]
    return [
        {
            "rung": t, "n": ladder.land.n, "parameters": ladder.land.dimension, **row, "half_soft_rank": half,
            "exact": None if ladder.exact is None else ladder.exact(t, job.gamma), "limit": ladder.limit,
            "watanabe": watanabe_nbeta(ladder.land.n),
        }
        for t, row, half in zip(rungs, values, halves, strict=True)
    ]  # fmt: skip


def descend(land: Landscape, rungs: Sequence[float], gamma: float, settings: Settings) -> list[Row]:
    """λ̂ at every nβ of `rungs`, from the largest down: chains spread from w* and go on from where they are."""
    sampler, rows = Sampler(land, settings), []
    ladder = [Resolution(t, gamma) for t in sorted(rungs, reverse=True)]
    for outcome in sampler.ladder(ladder, lambda fraction, text: None):
        estimate = estimate_of(sampler, outcome)
        rows.append(
            {
                "llc": estimate.value, "llc_stderr": estimate.stderr, "verdict": estimate.verdict,
                "sampler": outcome.sampler, "draws": outcome.main.trace.draws,
                "heat_capacity": estimate.diagnostics.get("heat_capacity"),
                "reason": estimate.warnings[0] if estimate.warnings else "",
            }
        )  # fmt: skip
    order = sorted(range(len(rungs)), key=lambda number: rungs[number], reverse=True)
    return [row for _, row in sorted(zip(order, rows, strict=True), key=lambda pair: pair[0])]


def subject(job: Ladder) -> LadderCase:
    """The landscape of a case.

    Examples:
        >>> from studies.llc.jobs import jobs
        >>> from studies.llc.settings import LlcSettings
        >>> ladder = next(jobs(LlcSettings(parts=("resolution",))))
        >>> case = subject(ladder)
        >>> case.land.dimension, round(case.exact(1000.0, 1.0), 3)
        (12, 4.231)
    """
    if job.case == "quadratic":
        return LadderCase(_quadratic(), lambda t, gamma: finite.quadratic(SPECTRUM, t, gamma), len(SPECTRUM) / 2)
    if job.case == "chain":
        planted = plant(CHAIN, 0, 1000, seed=job.seed, device=device())
        return LadderCase(
            planted.land, lambda t, gamma: finite.matrix_chain(CHAIN, t, gamma), float(planted.coefficient)
        )
    if job.case == "network":
        planted = plant(NETWORK, min(NETWORK) - 1, 1000, seed=job.seed, device=device())
        return LadderCase(planted.land, planted.at, float(planted.coefficient))
    trained = trained_classifier(job.data, job.samples, job.widths, job.epochs, job.seed)
    return LadderCase(teacher(trained, job.seed), None, None)


def _quadratic() -> Landscape:
    """Linear regression whose Hessian has exactly the eigenvalues `SPECTRUM`."""
    n, d = 1000, len(SPECTRUM)
    basis = torch.linalg.qr(torch.randn(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64))[0]
    x = (basis * torch.tensor(SPECTRUM, dtype=torch.float64).sqrt() * n**0.5).float().to(device())
    net = nn.Linear(d, 1, bias=False, device=device())
    nn.init.ones_(net.weight)
    with torch.no_grad():
        return Landscape(net, "gaussian", (x, net(x)), sigma=1.0)
