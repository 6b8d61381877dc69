"""The widely applicable information criterion."""

from __future__ import annotations

import math
from typing import Any, Literal, Unpack

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..estimates import Check, Estimate
from ..landscape import Landscape, watanabe_nbeta
from ..progress import Report, tracked
from .evidence import Evidence, gather, of_posterior, posterior_for_draws, temperature
from .pointwise import Pointwise
from .posterior import Posterior
from .posterior_statistic import posterior_statistic
from .settings import Sampling, takes_settings

Method = Literal["direct", "tempered"]

MAX_VARIANCE = 0.4  # of a sample's log-likelihood among draws, for WAIC to be trusted (Vehtari, Gelman, Gabry 2017)
MAX_IRREGULARITY = 0.15  # of λ̂, by which what a quadratic basin has equal to it may be off for a tempered WAIC
MAX_DESCENT = 0.15  # of (λ̂ + ν̂)/n, by which a tempered WAIC may be off because w* is no minimum


@takes_settings
def waic(
    source: Any,
    *,
    method: Method = "direct",
    progress: bool = True,
    beta: float | None = None,
    **settings: Unpack[Sampling],
) -> Estimate:
    """WAIC = BtL + (β/n) V, an estimate of the Bayes generalization loss per sample (Watanabe 2010).

    BtL = −(1/n) Σ_i log E[p(x_i|w)] is the Bayes training loss and V = Σ_i Var[log p(x_i|w)] the functional variance,
    both over draws of the posterior at inverse temperature β. At β = 1, −n·WAIC is ArviZ's `elpd_waic`.

    `tempered` takes WAIC of the posterior at β = 1 from draws at another temperature, such as the chains of WBIC. As
    n E[BgL₁] = n L(w₀) + λ and n E[GtL_β] = n L(w₀) + λ/β − ν_β, it is GtL_β − (1/β − 1)λ/n + ν_β/n (Hayashi, Kutsuna
    and Takamuku 2025, https://arxiv.org/abs/2505.13902). With λ̂ and ν̂ of the same draws for λ and ν this is

        (1 − β) L_n(w*) + β GtL_β + (β/2n) V = L_n(w*) + (λ̂ + ν̂)/n,

    up to terms of order 1/n² at a regular minimum. At a singular one n(L(w₀) − L_n(w*)) is not ν, and the difference is
    as large as the correction: the verdict is `ok` only where λ̂ is that of a quadratic basin.

    Args:
        source: a landscape, whose local posterior is sampled, or its `posterior`, whose β is then that of WAIC; or
            log-likelihoods (draws, n) or (chains, draws, n) at draws of yours, or what `log_likelihood` returned.
        method: `direct`, at the temperature of the draws; or `tempered`, at β = 1 from draws at another, of a landscape
            or posterior: `nbeta` is then n/log n unless given.
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
    if method not in ("direct", "tempered"):
        raise InputError(f"method must be 'direct' or 'tempered', got {method!r}")
    if method == "direct":
        at = temperature(source, settings.get("nbeta"), beta)
        with tracked("waic", progress) as report:
            return from_evidence(gather(source, at, settings, report))
    if not isinstance(source, (Landscape, Posterior)):
        raise InputError(
            f"method='tempered' needs L_n(w*): expected a landscape or its posterior, got {type(source).__name__}"
        )
    if isinstance(source, Landscape) and beta is None and settings.get("nbeta") is None:
        settings["nbeta"] = watanabe_nbeta(source.n)
    at = temperature(source, settings.get("nbeta"), beta)
    with tracked("waic", progress) as report:
        return tempered(posterior_for_draws(source, at, settings, report), report)


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


def tempered(post: Posterior, report: Report) -> Estimate:
    """WAIC at β = 1 of a posterior at another temperature."""
    evidence = of_posterior(post, report)
    pooled, n, loss = evidence.stream.pooled(evidence.alive), post.land.n, evidence.facts["loss"]

    def coefficient(part: Pointwise) -> float:
        return n * part.beta * (part.gibbs_training_loss - loss)

    def statistic(part: Pointwise) -> float:
        return loss + (coefficient(part) + part.fluctuation) / n

    value, stderr = evidence.stream.estimate(coefficient, evidence.alive)
    left_out = [np.delete(evidence.trace, chain, axis=0).var() for chain in range(len(evidence.trace))]
    capacity = post.nbeta**2 * float(evidence.trace.var())
    capacity_stderr = post.nbeta**2 * math.sqrt((len(left_out) - 1) * float(np.var(left_out)))
    at, quadratic = post.outcome.at, post.sampler.quadratic
    rank = quadratic.basin(at) if quadratic.complete else None
    drop = max(0.0, post.sampler.bottom(at).drop)
    correction = n * (statistic(pooled) - loss)
    return posterior_statistic(
        "waic",
        evidence,
        statistic,
        scale=abs(correction) / n,
        of="(λ̂ + ν̂)/n",
        checks=[
            check_minimum(drop * (1 / pooled.beta - 1), correction),
            check_regular(value, capacity, math.hypot(stderr, capacity_stderr), rank),
        ],
        diagnostics={
            "method": "tempered",
            "llc": value,
            "fluctuation": pooled.fluctuation,
            "heat_capacity": capacity,
            "half_soft_rank": rank,
            "drop": drop,
        },
    )


def check_minimum(raised: float, correction: float) -> Check:
    """Whether w* is so near to a minimum that a tempered WAIC may go by its loss.

    λ̂ is lower than its basin by the drop nβ(L_n(w*) − L_n(ŵ)), so that WAIC is too high by (1/β − 1)/n
    times this.

    Args:
        raised: n times what WAIC is too high by.
        correction: λ̂ + ν̂.
    """
    share = raised / correction if correction > 0 else math.inf
    return Check(
        "drop from w* to ŵ", f"{share:.1%} of (λ̂ + ν̂)/n", f"at most {MAX_DESCENT:.0%}", share <= MAX_DESCENT,
        "train longer, or use method='direct' at nbeta = n",
        reason=f"not at a minimum: the drop from w* raises WAIC by {share:.0%} of (λ̂ + ν̂)/n",
    )  # fmt: skip


def check_regular(value: float, capacity: float, stderr: float, rank: float | None) -> Check:
    """Whether the basin is quadratic, and its directions stiffer than the prior.

    There λ̂, the heat capacity (nβ)² Var L and half the soft rank are all half the number of directions.

    Args:
        value, capacity: λ̂ and the heat capacity.
        stderr: of their difference; two of them may be chance.
        rank: half the soft rank; None where it is not known.

    Examples:
        >>> check_regular(1.5, 1.48, 0.01, 1.5).passed, check_regular(0.25, 0.25, 0.01, 0.0).passed
        (True, False)
    """
    chance = 2 * stderr
    others = {"(nβ)² Var L": capacity, **({} if rank is None else {"½ soft rank": rank})}
    name, worst = max(others.items(), key=lambda item: abs(item[1] - value))
    beyond = (abs(worst - value) - chance) / value if value > 0 else math.inf
    return Check(
        "regular minimum", f"λ̂ = {value:.3g}, {', '.join(f'{key} = {one:.3g}' for key, one in others.items())}",
        f"equal within {MAX_IRREGULARITY:.0%} beyond chance", beyond <= MAX_IRREGULARITY,
        "use method='direct' at nbeta = n",
        reason=f"not regular: λ̂ = {value:.3g} is not {name} = {worst:.3g}, so that only draws at β = 1 tell WAIC",
    )  # fmt: skip


def check_variances(variances: NDArray[np.float64]) -> Check:
    """Whether no sample's log-likelihood varies so much among draws that its second cumulant says too little."""
    wild, n = int((variances > MAX_VARIANCE).sum()), len(variances)
    return Check(
        "variance of a log-likelihood", f"too large for {wild} of {n} samples", f"at most {MAX_VARIANCE:g}", wild == 0,
        "compare with loo",
        reason=f"outliers: the log-likelihood of {wild} of {n} samples varies by more than {MAX_VARIANCE:g} among "
        f"draws, where WAIC is not to be trusted",
    )  # fmt: skip
