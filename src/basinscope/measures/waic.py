"""The widely applicable information criterion."""

from __future__ import annotations

import math
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from ..estimates import Check, Estimate
from ..progress import tracked
from .evidence import Evidence, gather, temperature
from .posterior_statistic import posterior_statistic
from .settings import Sampling, takes_settings

MAX_VARIANCE = 0.4  # of a sample's log-likelihood among draws, for WAIC to be trusted (Vehtari, Gelman, Gabry 2017)


@takes_settings
def waic(source: Any, *, progress: bool = True, beta: float | None = None, **settings: Unpack[Sampling]) -> Estimate:
    """WAIC = BtL + (β/n) V, an estimate of the Bayes generalization loss per sample (Watanabe 2010).

    BtL = −(1/n) Σ_i log E[p(x_i|w)] is the Bayes training loss and V = Σ_i Var[log p(x_i|w)] the functional variance,
    both over draws of the posterior at inverse temperature β. At β = 1, −n·WAIC is ArviZ's `elpd_waic`.

    Args:
        source: a landscape, whose local posterior is sampled, or its `posterior`, whose β is then that of WAIC; or
            log-likelihoods (draws, n) or (chains, draws, n) at draws of yours, or what `log_likelihood` returned.
        progress: show a bar when it takes over a second.
        beta: former name of `nbeta`, for β.
        settings: of a landscape, all of `posterior`; of log-likelihoods, `nbeta`. `nbeta` is that of the draws; n
            unless given, so that β = 1.

    Returns:
        The estimate; its standard error is that of the draws. `diagnostics["sampling_stderr"]` is how far another data
        set would move it, `diagnostics["pointwise"]` holds each sample's part.

    Examples:
        >>> import numpy as np, basinscope as bs
        >>> draws = np.random.default_rng(0).normal(-1.0, 0.1, size=(4, 500, 20))  # chains, draws, observations
        >>> est = bs.waic(draws)
        >>> est.verdict, round(est.value, 2), round(est.diagnostics["functional_variance"], 1)
        ('ok', 1.0, 0.2)
    """
    at = temperature(source, settings.get("nbeta"), beta)
    with tracked("waic", progress) as report:
        return from_evidence(gather(source, at, settings, report))


def from_evidence(evidence: Evidence) -> Estimate:
    """WAIC of draws at hand."""
    pooled = evidence.stream.pooled(evidence.alive)
    return posterior_statistic(
        "waic",
        evidence,
        lambda part: part.waic,
        scale=pooled.beta * pooled.functional_variance / pooled.n + 1e-12 * abs(pooled.waic),
        of="(β/n) V",
        checks=[check_variances(pooled.variance)],
        diagnostics={
            "bayes_training_loss": pooled.bayes_training_loss,
            "gibbs_training_loss": pooled.gibbs_training_loss,
            "functional_variance": pooled.functional_variance,
            "fluctuation": pooled.fluctuation,
            "cumulants": pooled.cumulants,
            "sampling_stderr": float(pooled.waic_terms.std() / math.sqrt(pooled.n)),
            "pointwise": {"waic": pooled.waic_terms, "variance": pooled.variance},
        },
    )


def check_variances(variances: NDArray[np.float64]) -> Check:
    """Whether no sample's log-likelihood varies so much among draws that its second cumulant says too little."""
    wild, n = int((variances > MAX_VARIANCE).sum()), len(variances)
    return Check(
        "variance of a log-likelihood", f"too large for {wild} of {n} samples", f"at most {MAX_VARIANCE:g}", wild == 0,
        "compare with loo",
        reason=f"outliers: the log-likelihood of {wild} of {n} samples varies by more than {MAX_VARIANCE:g} among "
        f"draws, where WAIC is not to be trusted",
    )  # fmt: skip
