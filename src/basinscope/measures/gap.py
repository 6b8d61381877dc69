"""The generalization gap that curvature predicts, and whether to believe the prediction."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from ..curvature import calibration
from ..curvature.calibration import Ratio, error_uncertainty, ratio
from ..curvature.decay import read_decay
from ..curvature.ghost import MAX_ROOTS, layer_traces
from ..curvature.gradients import Gradients
from ..curvature.likelihood import count
from ..curvature.spectra import choose, eigenvalues
from ..errors import InputError
from ..estimates import Check, Estimate
from ..landscape import Landscape, check_landscape
from .held_out import landscape_on
from .soft_rank import Method, soft_rank
from .tic import Curvature, chosen_matrix, tic

GapMethod = Literal["soft_rank", "tic", "trace_ratio", "trace_ratio_rank"]
MAX_PARAMETERS_PER_SAMPLE = 1.0  # effective parameters beyond which no gap is small
TRUNCATION = 1e-3  # Thomas et al. count the eigenvalues above this fraction of the largest


def gap(
    land: Landscape,
    *,
    weight_decay: float | Mapping[str, float | Tensor] | None = None,
    method: GapMethod = "soft_rank",
    held_out: Any = None,
    rank_method: Method = "auto",
    matrix: Curvature = "fisher",
    seed: int = 0,
    rtol: float = 0.02,
    progress: bool = True,
    curvature: Curvature | None = None,
) -> Estimate:
    """The predicted gap, E_z[l(θ̂; z)] − L_n(θ̂), 1/n included.

    Equations are those of Shoham, Mor-Yosef and Avron 2025, https://arxiv.org/abs/2506.17809.

    `soft_rank`         (1/n) (Tr C / Tr F) rank_Λ(F), Eq. 8
    `tic`               (1/n) Tr(C_Λ H_Λ⁻¹), Eq. 1
    `trace_ratio`       (1/n) Tr C / Tr F, Eq. 6 (Thomas et al. 2020)
    `trace_ratio_rank`  (1/n) (Tr C / Tr F) rank(F), Eq. 7, counting eigenvalues above 0.001 ‖F‖ (Remark 5.2)

    Tr C / Tr F compares mistakes with expected mistakes. Training data cannot tell it once a network has learned them
    by heart: the ratio then tends to zero, and so does the prediction. `diagnostics["error_uncertainty"]` is the same
    comparison at the outputs; outside of [½, 2] the verdict is `doubtful`.

    Args:
        land: the landscape of the training data, at a minimum of mean loss + ½ wᵀΛw; its n is the 1/n.
        weight_decay: λ > 0, or a dict from name patterns to numbers or tensors; not needed for the trace ratios.
        method: one of the above.
        held_out: data that the network was not trained on, as (x, y), a data set or batches, or a `Landscape` of
            them; C, F and H are then taken there. To combine a ratio from held-out data with a rank from training
            data, multiply `diagnostics["ratio"]` with a `soft_rank`.
        rank_method: how to compute the soft rank, see `soft_rank`.
        matrix: `fisher` or `hessian` for `tic`. Its former name is `curvature`.
        seed: of random vectors.
        rtol: relative standard error that Lanczos aims at.
        progress: whether to show a progress bar.

    Returns:
        The estimate; its standard error covers the sampling of the data behind C and F and the Monte Carlo error, not
        the scatter of the realised gap from one training set to the next.

    Examples:
        >>> import torch, basinscope as bs
        >>> x, y = torch.ones(4, 1), torch.tensor([[1.0], [-1.0], [1.0], [-1.0]])
        >>> land = bs.Landscape(torch.nn.Linear(1, 1, bias=False), "mse", (x, y))
        >>> land = land.at({"weight": torch.zeros(1, 1)})  # F = C = 1
        >>> bs.gap(land, weight_decay=1.0).value
        0.125
    """
    check_landscape(land)
    matrix = chosen_matrix(matrix, curvature)
    if method not in get_args(GapMethod):
        raise InputError(f"method must be one of {', '.join(map(repr, get_args(GapMethod)))}, got {method!r}")
    if weight_decay is None and method in ("soft_rank", "tic"):
        raise InputError(f"method={method!r} needs a weight_decay — pass the one the network was trained with")
    source = land if held_out is None else landscape_on(land, held_out)
    if weight_decay is not None:
        read_decay(source, weight_decay, single=True)
    options: dict[str, Any] = {"weight_decay": weight_decay, "seed": seed, "rtol": rtol, "progress": progress}
    if method == "tic":
        factor = tic(source, matrix=matrix, **options)
        scatter = factor.diagnostics.get("sampling_stderr") or 0.0
        value, error = source.n * factor.value, source.n * math.hypot(factor.stderr, scatter)
        details: dict[str, Any] = {}
    else:
        traces = _trace_ratio(source, rtol, seed)
        if method == "soft_rank":
            factor = soft_rank(source, method=rank_method, **options)
        else:
            factor = Estimate("rank", _hard_rank(source) if method == "trace_ratio_rank" else 1.0, 0.0)
        value = traces.value * factor.value
        error = math.hypot(traces.stderr * factor.value, traces.value * factor.stderr)
        details = {"ratio": traces.value, "ratio_stderr": traces.stderr, "rank": factor.value}
    if not math.isfinite(value):
        reason = "Tr F is zero: the model is sure of everything, and no ratio to its mistakes exists"
        return Estimate.failed("gap", reason, {"method": method, "calibrated": False, **details})
    balance = None if land.loss.family == "custom" else error_uncertainty(source)
    if balance is not None:
        details |= {"error_uncertainty": balance.value, "error_uncertainty_stderr": balance.stderr}
    calibrated = () if balance is None else (check_calibration(balance, held_out is not None),)
    return Estimate(
        name="gap",
        value=value / land.n,
        stderr=error / land.n,
        checks=(*factor.checks, *calibrated, check_smallness(value, land.n)),
        freedom=factor.freedom,
        diagnostics={
            "method": method,
            "data": "training" if held_out is None else "held_out",
            "calibrated": balance is not None and balance.calibrated,
            **details,
            "computed_by": factor.diagnostics.get("method"),
        },
    )


def check_calibration(balance: Ratio, held_out: bool) -> Check:
    """Whether the model makes about as many mistakes as it expects, so that curvature stands in for gradient noise."""
    low, high = calibration.CALIBRATED_RATIOS
    learned = balance.value < low and not held_out
    return Check(
        "errors over expected errors", f"{balance.value:.2g}", f"{low:g} … {high:g}", balance.calibrated,
        "pass held_out data" if learned else "expect the order of magnitude only",
        reason=f"not calibrated: errors on the {'held-out' if held_out else 'training'} data are {balance.value:.2g} "
        f"times what the model expects, outside of {low:g} … {high:g}"
        + (", as of a network that has learned them by heart: the prediction is too small" if learned else ""),
    )  # fmt: skip


def check_smallness(parameters: float, n: int) -> Check:
    """Whether the effective parameters, n times the gap, are few enough for an expansion in 1/n."""
    return Check(
        "effective parameters", f"{parameters:.3g}", f"at most {MAX_PARAMETERS_PER_SAMPLE:g} a sample",
        parameters <= MAX_PARAMETERS_PER_SAMPLE * n, "expect the order of magnitude only",
        reason=f"not small: the prediction holds for small gaps, and {parameters:.3g} effective parameters are more "
        f"than {MAX_PARAMETERS_PER_SAMPLE * n:g} samples bear",
    )  # fmt: skip


def _trace_ratio(land: Landscape, rtol: float, seed: int) -> Ratio:
    """Tr C / Tr F. Both are means over samples, except where F has too many roots and its trace is sampled."""
    noise = Gradients(land, "covariance").norms()
    if land.loss.family != "custom" and count(land, "fisher") <= MAX_ROOTS:
        return ratio(noise, Gradients(land, "fisher").norms())
    fisher = layer_traces(land, "fisher", rtol=rtol, seed=seed)
    quotient = ratio(noise, torch.full_like(noise, fisher.value))
    return Ratio(quotient.value, math.hypot(quotient.stderr, quotient.value * fisher.stderr / fisher.value))


def _hard_rank(land: Landscape) -> float:
    """Eigenvalues of F above 0.001 ‖F‖."""
    method = choose(land, "fisher")
    if method == "lanczos":
        raise InputError(
            f"method='trace_ratio_rank' counts eigenvalues, which needs all of them: {land.dimension:,} parameters are "
            f"too many — take method='soft_rank', or look at part of them with land.restrict()"
        )
    values = eigenvalues(land, "fisher", method).values
    return float((values > TRUNCATION * values.max()).sum()) if len(values) else 0.0
