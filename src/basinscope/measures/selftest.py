"""The selftest: the estimator with the same settings on a network of the same size whose λ is known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Unpack

from torch import Tensor

from ..errors import InputError
from ..estimates import Check, Estimate
from ..landscape import Landscape, check_landscape
from ..sampling.calibration import Resolution, resolution
from .llc import llc
from .operator_norm import operator_norm
from .planting import PlantedNetwork, plant
from .settings import Sampling, checked, takes_settings

_STEEP = 100.0  # least stiffness nβσ of the planted network in units of γ
_FEW = 4096  # samples on which the user's steepest direction is sought
MAX_ERROR = 0.05  # relative error of a passed selftest
MAX_DOUBTFUL_ERROR = 0.15  # relative error beyond which the selftest has failed
MAX_ERROR_STDERRS = 4.0  # error in standard errors
CHANCE_STDERRS = 2.0  # standard errors that an error may owe to chance
_COUPLING = 0.006  # relative error of the planted network's value at finite resolution


@takes_settings
def selftest(land: Landscape, *, progress: bool = True, **settings: Unpack[Sampling]) -> Estimate:
    """Can `llc` with these settings be trusted on a network like this one? It is tried on one whose λ is known.

    A deep linear network with the landscape's layer widths, depth, number of samples, precision and steepest curvature
    is planted at a minimum of rank r = smallest width − 1, where it is singular, and measured with the very settings
    given here, at the landscape's own (nβ, γ). Its λ is exact (Aoyagi; `exact.deep_linear`), and so, but for a small
    coupling, is the value λ_t at finite resolution that a perfect sampler would report:

        λ_t = ½ Σ nβσ_i/(nβσ_i + γ) over the steep directions + `exact.finite.matrix_chain` of the widths less r.

    A passed selftest says that the sampler copes with this size, sample number and budget; a real network may still be
    harder, which its own verdict tells.

    The widths are the inputs of the first weight matrix and the outputs of all of them, in the order of the model's
    parameters; axes of convolution kernels beyond the first count as inputs, and vectors (biases, norms) are left out.
    A landscape without matrices is stood for by a linear regression on as many inputs as it has parameters, and inputs
    are cut to half the number of samples where there are more.

    Args:
        land: the landscape whose measurement is in question.
        progress: show a bar when it takes over a second.
        settings: those of `posterior`, as for `llc`.

    Returns:
        An `Estimate` of the relative error λ̂/λ_t − 1 with its standard error s. Two standard errors of it may be
        chance: the verdict is `ok` where the rest is at most 5 %, s itself at most 5 %, and the error within 4 s;
        `doubtful` where the rest is at most 15 %, else `failed`; `warnings` say so in words. `diagnostics` hold `llc`
        and `llc_stderr` of the planted network, `reference` λ_t, `exact` λ, `z`, and how it was planted.

    Examples:
        >>> import torch, basinscope as bs
        >>> x = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
        >>> _ = torch.manual_seed(0)
        >>> net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        >>> land = bs.Landscape(net, "mse", (x, x.sum(1, keepdim=True)))
        >>> tried = bs.selftest(land, gamma=1.0, rtol=0.05, budget=2, progress=False)
        >>> abs(tried.value) < 6 * tried.stderr, tried.diagnostics["widths"], tried.diagnostics["exact"]
        (True, [3, 4, 1], 1.5)
    """
    check_landscape(land)
    nbeta, gamma, chosen = checked(settings)
    at = resolution(land, nbeta, gamma)
    widths = widths_of(land)
    planted = plant(
        widths, min(widths) - 1, land.n, curvature=_curvature(land, at, len(widths) - 1, chosen.seed),
        seed=chosen.seed, dtype=land.dtype, device=land.device,
    )  # fmt: skip
    common: Sampling = {**settings, "nbeta": at.nbeta, "gamma": at.gamma}
    estimate = llc(planted.land, progress=progress, **common)
    return relative_error(land, planted, at, estimate)


def widths_of(land: Landscape) -> list[int]:
    """Layer widths of a deep linear network like the landscape's, from input to output.

    Examples:
        >>> import torch, basinscope as bs
        >>> net = torch.nn.Sequential(torch.nn.Conv2d(1, 6, 3), torch.nn.Flatten(), torch.nn.Linear(96, 10))
        >>> widths_of(bs.Landscape(net, "cross_entropy", (torch.zeros(200, 1, 6, 6), torch.zeros(200).long())))
        [9, 6, 10]
    """
    matrices = [tensor for tensor in land.parameters.values() if tensor.ndim > 1 and tensor.numel() > 0]
    widths = [land.dimension, 1]
    if matrices:
        widths = [_inputs(matrices[0]), *(len(matrix) for matrix in matrices)]
    if land.n < 4:
        raise InputError(f"a selftest needs at least 4 samples, the landscape has {land.n}")
    widths[0] = min(widths[0], land.n // 2)
    return widths


def _inputs(matrix: Tensor) -> int:
    return math.prod(matrix.shape[1:])


def _curvature(land: Landscape, at: Resolution, layers: int, seed: int) -> float:
    """σ such that the steepest planted direction, Lσ, is as steep as the landscape's, and steep compared with γ/nβ."""
    part = land if land.n <= _FEW else land.subset(slice(0, land.n, land.n // _FEW))
    steepest = operator_norm(part, matrix="hessian", rtol=0.05, max_products=40, seed=seed, progress=False).value
    least = _STEEP * at.gamma / at.nbeta
    return max(steepest / layers if math.isfinite(steepest) else 0.0, least)


def relative_error(land: Landscape, planted: PlantedNetwork, at: Resolution, estimate: Estimate) -> Estimate:
    """The error of an estimate on a planted network, with its verdict."""
    exact, reference = float(planted.coefficient), planted.at(at.nbeta, at.gamma)
    unknown = _COUPLING * reference
    off, deviation = estimate.value - reference, math.hypot(estimate.stderr, unknown)
    error, z = off / reference, off / deviation if deviation > 0 else math.nan
    diagnostics: Mapping[str, Any] = {
        "llc": estimate.value, "llc_stderr": estimate.stderr, "llc_verdict": estimate.verdict,
        "llc_warnings": list(estimate.warnings), "reference": reference, "exact": exact,
        "multiplicity": planted.multiplicity, "z": z, "nbeta": at.nbeta, "gamma": at.gamma,
        "widths": list(planted.widths), "rank": planted.rank, "curvature": planted.curvature, "n": land.n,
        "dimension": planted.land.dimension, "own_dimension": land.dimension,
        "sampler": estimate.diagnostics["sampler"],
    }  # fmt: skip
    checks = selftest_checks(error, deviation / reference, estimate, reference)
    return Estimate("selftest", error, deviation / reference, checks, diagnostics)


def selftest_checks(error: float, stderr: float, estimate: Estimate, reference: float) -> tuple[Check, ...]:
    """Whether λ̂ is near enough to the truth beyond chance, precise enough to tell, and as precise as it says."""
    if not math.isfinite(error):
        reason = "no number: these settings give none on a network whose λ is known"
        return (
            Check("relative error", "none", f"within {MAX_ERROR:.0%}", False, _remedy(estimate), "failure", reason),
        )
    summary = (
        f"these settings find λ̂ = {estimate.value:.4g} ± {estimate.stderr:.2g} where {reference:.4g} is right "
        f"({error:+.1%} ± {stderr:.1%})"
    )
    beyond_chance = abs(error) - CHANCE_STDERRS * stderr if math.isfinite(stderr) else abs(error)
    failed = estimate.verdict == "failed" or beyond_chance > MAX_DOUBTFUL_ERROR
    near = Check(
        "relative error", f"{error:+.1%} ± {stderr:.1%}",
        f"within {MAX_ERROR:.0%} beyond {CHANCE_STDERRS:g} standard errors; failed from {MAX_DOUBTFUL_ERROR:.0%} on",
        beyond_chance <= MAX_ERROR and not failed, _remedy(estimate), "failure" if failed else "doubt",
        f"wrong: {summary}",
    )  # fmt: skip
    precise = Check(
        "standard error", f"{stderr:.1%}", f"at most {MAX_ERROR:.0%}", stderr <= MAX_ERROR or not near.passed,
        _remedy(estimate), reason=f"imprecise: {summary}: too imprecise to tell",
    )  # fmt: skip
    honest = Check(
        "error in standard errors", f"{abs(error) / stderr if stderr > 0 else math.inf:.1f}",
        f"within {MAX_ERROR_STDERRS:g}", abs(error) <= MAX_ERROR_STDERRS * stderr or not near.passed, "lower rtol",
        reason=f"overconfident: {summary}: close, but the standard error is too small",
    )  # fmt: skip
    return near, precise, honest


def _remedy(estimate: Estimate) -> str:
    return estimate.warnings[0] if estimate.warnings else "raise budget, or lower rtol"
