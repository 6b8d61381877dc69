"""The widely applicable Bayesian information criterion."""

from __future__ import annotations

import math
from typing import Unpack

from ..errors import InputError
from ..estimates import Estimate
from ..landscape import Landscape, watanabe_nbeta
from .llc import llc
from .posterior import Posterior, landscape_of
from .settings import Sampling, takes_settings


@takes_settings
def wbic(land: Landscape | Posterior, *, progress: bool = True, **settings: Unpack[Sampling]) -> Estimate:
    """WBIC = E[n L_n(w)] over the local posterior at β = 1/log n (Watanabe 2013), an estimate of the free energy.

    It is n L_n(w*) + λ̂ log n, so it comes from the same chains as λ̂, with the same checks.

    Args:
        land: the landscape, or its `posterior` at nβ = n/log n.
        progress: show a bar when it takes over a second.
        settings: those of `posterior`; `rtol` is relative to λ̂ log n, and `nbeta` can only be n/log n.

    Examples:
        >>> import torch, basinscope as bs
        >>> x = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
        >>> net = torch.nn.Linear(3, 1, bias=False)
        >>> _ = torch.nn.init.ones_(net.weight)
        >>> est = bs.wbic(bs.Landscape(net, "mse", (x, x.sum(1, keepdim=True))), seed=0)
        >>> abs(est.value - 1.5 * 6.2146) < 1.0, est.stderr < 0.3
        (True, True)
    """
    itself = landscape_of(land)
    nbeta = land.nbeta if isinstance(land, Posterior) else settings.get("nbeta")
    if nbeta is not None:
        refuse_other(itself.n, nbeta, "a posterior" if isinstance(land, Posterior) else "one")
    return from_llc(itself, llc(land, progress=progress, **settings))


def from_llc(land: Landscape, coefficient: Estimate) -> Estimate:
    """WBIC from a λ̂ measured at nβ = n/log n; refused at another."""
    diagnostics = coefficient.diagnostics
    refuse_other(land.n, diagnostics["nbeta"], "λ̂")
    scale = math.log(land.n)  # 1/β
    return Estimate(
        "wbic",
        land.n * diagnostics["loss"] + scale * coefficient.value,
        scale * coefficient.stderr,
        coefficient.checks,
        {**diagnostics, "llc": coefficient.value, "llc_stderr": coefficient.stderr},
        coefficient.freedom,
    )


def refuse_other(n: int, nbeta: float, what: str) -> None:
    """Refuse another temperature than β = 1/log n, at which WBIC is defined."""
    if not is_watanabe(n, nbeta):
        raise InputError(
            f"WBIC is defined at nβ = n/log n = {watanabe_nbeta(n):.4g}, got {what} at {nbeta:.4g} — leave nbeta out"
        )


def is_watanabe(n: int, nbeta: float) -> bool:
    """Whether nβ is n/log n.

    Examples:
        >>> is_watanabe(100, 21.714724095162591), is_watanabe(100, 100.0)
        (True, False)
    """
    return math.isclose(nbeta, watanabe_nbeta(n), rel_tol=1e-9)
