"""Deep linear networks of known λ: the calibrated estimator without tuning, and the published protocol."""

from __future__ import annotations

import time
from typing import Any

from torch import nn

from basinscope.errors import BasinscopeError
from basinscope.estimates import Estimate
from basinscope.exact import deep_linear
from basinscope.landscape import Landscape, watanabe_nbeta
from basinscope.measures.llc import llc
from basinscope.sampling.clock import Nominal

from .cases import linear_landscape, linear_network
from .jobs import Truth, minibatch_budget, size_of

Row = dict[str, Any]
PUBLISHED_GAMMA = 1.0
PUBLISHED_CHAINS = 2  # the published code has one; the second gives a standard error


def run(job: Truth) -> list[Row]:
    """A row for each method."""
    exact, multiplicity = deep_linear(list(job.widths), job.rank)
    common = {
        "parameters": size_of(job.widths), "hidden_layers": len(job.widths) - 2, "exact": float(exact),
        "multiplicity": multiplicity,
    }  # fmt: skip
    net = linear_network(job.widths, job.rank, job.seed)
    rows = []
    for method in ("calibrated", *(("minibatch",) if job.minibatch_samples else ()), "published"):
        began = time.perf_counter()
        try:
            if method == "published":
                estimate = _published(job, linear_landscape(net, job.published_samples, job.seed))
            else:
                estimate = _calibrated(job, net, method)
        except BasinscopeError as error:
            estimate = Estimate.failed("llc", error)
        spent = time.perf_counter() - began
        rows.append({**common, "method": method, **beside(estimate, float(exact)), "spent": spent})
    return rows


def beside(estimate: Estimate, exact: float) -> Row:
    """An estimate beside its exact value as columns."""
    return {
        "llc": estimate.value, "llc_stderr": estimate.stderr, "verdict": estimate.verdict,
        "error": estimate.value / exact - 1, "reason": estimate.warnings[0] if estimate.warnings else "",
        "nbeta": estimate.diagnostics.get("nbeta"),
        "sampler": estimate.diagnostics.get("sampler"),
    }  # fmt: skip


def stiff_landscape(job: Truth, net: nn.Sequential, samples: int) -> Landscape:
    """The network on orthogonal inputs with nβσ = stiffness·γ: nβ·L is then the same function for any `samples`."""
    return linear_landscape(net, samples, job.seed, job.stiffness * job.gamma / watanabe_nbeta(samples))


def _calibrated(job: Truth, net: nn.Sequential, method: str) -> Estimate:
    """Nothing is chosen but γ, by one rule for all networks: sampler, step sizes and lengths come by themselves."""
    sampler, samples, budget = "auto", job.widths[0], job.budget
    if method == "minibatch":
        sampler, samples, budget = method, job.minibatch_samples, minibatch_budget(job)
    land = stiff_landscape(job, net, samples)
    return llc(land, gamma=job.gamma, sampler=sampler, budget=Nominal(budget), seed=job.seed, progress=False)


def _published(job: Truth, land: Any) -> Estimate:
    """SGLD with the published step, batch and length, and the mean over all draws."""
    return llc(
        land, gamma=PUBLISHED_GAMMA, sampler="sgld", step_size=job.step_size, draws=job.draws,
        batch_size=job.batch_size, chains=PUBLISHED_CHAINS, burn_in=0.0, seed=job.seed, progress=False,
    )  # fmt: skip
