"""The widely applicable Bayesian information criterion."""

from __future__ import annotations

import math

from ..errors import InputError
from ..estimates import Estimate
from ..landscape import Landscape, watanabe_nbeta
from .llc import llc


def wbic(
    land: Landscape,
    *,
    gamma: float | None = None,
    sampler: str = "auto",
    chains: int | None = None,
    draws: int | None = None,
    step_size: float | None = None,
    batch_size: int | None = None,
    burn_in: float | None = None,
    rtol: float = 0.02,
    budget: float = 60.0,
    seed: int = 0,
    progress: bool = True,
) -> Estimate:
    """WBIC = E[n L_n(w)] over the local posterior at β = 1/log n (Watanabe 2013), an estimate of the free energy.

    It is n L_n(w*) + λ̂ log n, so it comes from the same chains as λ̂, with the same checks; the arguments are those
    of `llc`, and `rtol` is relative to λ̂ log n.

    Examples:
        >>> import torch, basinscope as bs
        >>> x = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
        >>> net = torch.nn.Linear(3, 1, bias=False)
        >>> _ = torch.nn.init.ones_(net.weight)
        >>> est = bs.wbic(bs.Landscape(net, "mse", (x, x.sum(1, keepdim=True))), seed=0)
        >>> abs(est.value - 1.5 * 6.2146) < 1.0, est.stderr < 0.3
        (True, True)
    """
    coefficient = llc(
        land,
        gamma=gamma,
        sampler=sampler,
        chains=chains,
        draws=draws,
        step_size=step_size,
        batch_size=batch_size,
        burn_in=burn_in,
        rtol=rtol,
        budget=budget,
        seed=seed,
        progress=progress,
    )
    return from_llc(land, coefficient)


def from_llc(land: Landscape, coefficient: Estimate) -> Estimate:
    """WBIC from a λ̂ measured at nβ = n/log n; refused at another."""
    found = coefficient.diagnostics
    if not math.isclose(found["nbeta"], watanabe_nbeta(land.n), rel_tol=1e-9):
        raise InputError(
            f"WBIC is defined at nβ = n/log n = {watanabe_nbeta(land.n):.4g}, got λ̂ at {found['nbeta']:.4g}"
        )
    scale = math.log(land.n)  # 1/β
    return Estimate(
        "wbic",
        land.n * found["loss"] + scale * coefficient.value,
        scale * coefficient.stderr,
        coefficient.checks,
        {**found, "llc": coefficient.value, "llc_stderr": coefficient.stderr},
        coefficient.freedom,
    )
