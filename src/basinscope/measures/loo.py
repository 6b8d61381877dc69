"""Leave-one-out cross-validation by importance sampling, with Pareto smoothing."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal, Unpack

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..estimates import Check, Estimate
from ..progress import tracked
from .evidence import Evidence, gather, temperature
from .posterior import MEMORY
from .posterior_statistic import posterior_statistic
from .psis import reliable_shape
from .settings import Sampling, takes_settings

Method = Literal["psis", "importance"]


@takes_settings
def loo(
    source: Any,
    *,
    method: Method = "psis",
    memory: float = MEMORY,
    progress: bool = True,
    beta: float | None = None,
    **settings: Unpack[Sampling],
) -> Estimate:
    """CvL = −(1/n) Σ_i log (E[p_i^(1−β)] / E[p_i^(−β)]), the leave-one-out loss per sample, without a refit.

    Draws of the posterior of all samples get the weights r = p(x_i|w)^(−β) to stand for those of the posterior without
    sample i. `psis` replaces the largest weights by the quantiles of a fitted Pareto distribution, whose shape k̂ tells
    whether the answer can be trusted: up to min(1 − 1/log₁₀ S, 0.7) for S draws. At β = 1, −n·CvL is ArviZ's
    `elpd_loo`.

    Args:
        source: a landscape, whose local posterior is sampled, or its `posterior`; or log-likelihoods (draws, n) or
            (chains, draws, n).
        method: `psis`, or `importance` for the plain weights.
        memory: bytes that smoothing may take: 16·n·(3√S + 1) are needed.
        progress: show a bar when it takes over a second.
        beta: former name of `nbeta`, for β.
        settings: as for `waic`.

    Returns:
        The estimate; `diagnostics["pointwise"]` holds each sample's part and k̂. When no k̂ is in range, the verdict is
        `failed` and there is no value.

    Examples:
        >>> import numpy as np, basinscope as bs
        >>> draws = np.random.default_rng(0).normal(-1.0, 0.1, size=(4, 500, 20))  # chains, draws, observations
        >>> est = bs.loo(draws)
        >>> est.verdict, round(est.value, 2), est.diagnostics["unreliable"]
        ('ok', 1.0, 0)
    """
    if method not in ("psis", "importance"):
        raise InputError(f"method must be 'psis' or 'importance', got {method!r}")
    at = temperature(source, settings.get("nbeta"), beta)
    with tracked("loo", progress) as report:
        if method == "psis":
            return from_evidence(gather(source, at, settings, report, memory=memory))
        return from_evidence(replace(gather(source, at, settings, report), tails=None))


def from_evidence(evidence: Evidence) -> Estimate:
    """Leave-one-out of draws at hand, smoothed if the largest weights were kept.

    The standard error is that of plain importance sampling, which smoothing only makes smaller.
    """
    pooled = evidence.stream.pooled(evidence.alive)
    scale = abs(pooled.leave_one_out - pooled.bayes_training_loss) + 1e-12 * abs(pooled.leave_one_out)
    facts = {"importance": pooled.leave_one_out, "bayes_training_loss": pooled.bayes_training_loss}
    if evidence.tails is None:
        facts |= _spread(-pooled.log_leave_one_out) | {"method": "importance"}
        checks = [UNCHECKED_WEIGHTS]
        return posterior_statistic(
            "loo", evidence, lambda part: part.leave_one_out, scale=scale, of=_SCALE, checks=checks, diagnostics=facts
        )
    smoothed = evidence.tails.smoothed()
    limit = reliable_shape(evidence.tails.draws)
    terms = -smoothed.log_leave_one_out
    value = float(terms.mean())
    estimate = posterior_statistic(
        "loo",
        evidence,
        lambda part: part.leave_one_out,
        scale=scale,
        of=_SCALE,
        checks=[check_weights(smoothed.shape, limit)],
        diagnostics=facts
        | _spread(terms)
        | {
            "method": "psis",
            "unreliable": int((~(smoothed.shape <= limit)).sum()),
            "largest_shape": float(smoothed.shape.max()),
            "reliable_shape": limit,
            "pointwise": {"loo": terms, "shape": smoothed.shape},
        },
    )
    if estimate.diagnostics["unreliable"] < pooled.n:
        return replace(estimate, value=value)
    diagnostics = {**estimate.diagnostics, "unreliable_value": value}
    return replace(estimate, value=math.nan, stderr=math.nan, diagnostics=diagnostics)


def _spread(terms: Any) -> dict[str, Any]:
    return {"sampling_stderr": float(terms.std() / math.sqrt(len(terms))), "pointwise": {"loo": terms}}


_SCALE = "the difference from the training loss"
UNCHECKED_WEIGHTS = Check(
    "Pareto shapes k̂", "unknown", "known", False, "use method='psis'",
    reason="unchecked weights: without k̂ nothing tells whether the largest weights decide",
)  # fmt: skip


def check_weights(shape: NDArray[np.float64], limit: float) -> Check:
    """Whether the largest importance weights leave a mean: k̂ up to min(1 − 1/log₁₀ S, 0.7) (Vehtari et al. 2024).

    Samples out of range make the number doubtful; if all of them are, there is none.
    """
    bad = np.flatnonzero(~(shape <= limit))
    name, wanted = "Pareto shapes k̂", f"up to {limit:.2f}"
    observed = f"out of range for {len(bad)} of {len(shape)} samples"
    if len(bad) == len(shape):
        return Check(
            name, observed, wanted, False, "take more draws, or refit", "failure",
            f"no reliable weights: k̂ exceeds {limit:.2f} for every one of {len(shape)} samples, so that draws with all "
            f"of them say nothing about a fit without one",
        )  # fmt: skip
    worst = bad[np.argsort(-shape[bad])][:5].tolist()
    return Check(
        name, observed, wanted, not len(bad), "raise draws, or refit without each of them",
        reason=f"unreliable weights: k̂ exceeds {limit:.2f} for {len(bad)} of {len(shape)} samples, worst at {worst}",
    )  # fmt: skip
