"""Soft rank, its square and the log-determinant: trace functions Σ_i h(σ_i / λ) of a curvature matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..checks import fraction
from ..errors import InputError
from ..estimates import Check, Estimate
from ..landscape import Landscape
from ..language.model import LanguageModel
from ..memory import memory_explained
from ..progress import tracked
from .averages import check_positive, check_rounding, indefinite
from .bracket import Function
from .decay import Decay, WeightDecay, read_decay
from .kronecker import Sharing
from .operators import operator
from .spectra import Eigenvalues, choose, eigenvalues
from .stochastic import Whitened, traced

MAX_NEGATIVE_SHARE = 1e-6  # of the largest eigenvalue, that a negative one may be by rounding alone
ROUNDING_REMEDY = "raise weight_decay, or standardize the data"  # eigenvalues are in float64 already


@dataclass(frozen=True)
class TraceFunction:
    """A function of the eigenvalues: `at(λ)` is σ ↦ h(σ/λ). Only a `concave` one turns stand-ins into bounds."""

    name: str
    concave: bool
    at: Callable[[float], Function]


SOFT_RANK = TraceFunction("soft_rank", True, lambda level: Function(lambda x: x / (x + level)))
# (x/(x+λ))² = 2x/(x+λ) − 1 + (λ/(x+λ))², a part that rises and one that falls.
SOFT_RANK_SQUARED = TraceFunction(
    "soft_rank_squared",
    False,
    lambda level: Function(lambda x: 2 * x / (x + level) - 1, lambda x: (level / (x + level)).square()),
)
LOG_DET = TraceFunction("log_det", True, lambda level: Function(lambda x: torch.log1p(x / level) / 2))


@memory_explained()
def trace_function(
    land: Landscape | LanguageModel, kind: TraceFunction, *, weight_decay: WeightDecay, matrix: str, method: str,
    seed: int, rtol: float, sharing: Sharing, progress: bool,
) -> Estimate | list[Estimate]:  # fmt: skip
    """Tr h(Λ^(−1/2) A Λ^(−1/2)) for every weight decay, from one factorization or one set of Lanczos runs."""
    if matrix not in ("hessian", "fisher", "covariance"):
        raise InputError(f"matrix must be 'hessian', 'fisher' or 'covariance', got {matrix!r}")
    decay, rtol = read_decay(land, weight_decay), fraction("rtol", rtol)
    if method == "auto":
        method = "lanczos" if isinstance(land, LanguageModel) else choose(land, matrix)
    common: dict[str, Any] = {"matrix": matrix, "method": method, "parameters": land.dimension, "samples": land.n}
    if method == "lanczos":
        product = Whitened(operator(land, matrix), decay.whitening)
        with tracked(kind.name.replace("_", " "), progress) as report:
            averages = traced(
                product, [kind.at(level) for level in decay.levels], decay.levels, seed=seed, rtol=rtol, report=report
            )
        estimates = [
            average.estimate(kind.name, rtol, {**common, "weight_decay": decay.describe(level)})
            for average, level in zip(averages, decay.levels, strict=True)
        ]
    else:
        assert isinstance(land, Landscape)  # soft_rank has refused others
        with tracked(kind.name.replace("_", " "), progress) as report:
            values = eigenvalues(land, matrix, method, decay.whitening, sharing, report)
        estimates = [_from_eigenvalues(kind, values, level, decay, rtol, common) for level in decay.levels]
    return estimates if decay.several else estimates[0]


def _from_eigenvalues(
    kind: TraceFunction, spectrum: Eigenvalues, level: float, decay: Decay, rtol: float, common: dict[str, Any]
) -> Estimate:
    """Σ_i h(σ_i/λ) over all eigenvalues, with its bounds and checks."""
    values = torch.cat([spectrum.values, spectrum.values.new_zeros(1)])  # h(0) = 0, so that an empty sum is one, too
    smallest, largest = float(values.min()), float(values.max())
    if smallest <= -level:
        raise InputError(indefinite(smallest, level))
    value = float(kind.at(level)(values).sum())
    share = _rounding(kind.at(level), values)
    rounding = check_rounding(share, rtol, ROUNDING_REMEDY)
    bound = spectrum.bound if spectrum.bound == "exact" or kind.concave else "neither"
    return Estimate(
        name=kind.name,
        value=value,
        stderr=0.0 if rounding.passed else share * abs(value),
        checks=(
            check_method(spectrum.method, bound, kind.name),
            check_positive(smallest, MAX_NEGATIVE_SHARE * largest),
            rounding,
        ),
        bounds={"exact": (value, value), "upper": (0.0, value), "neither": None}[bound],
        diagnostics={
            **common,
            "weight_decay": decay.describe(level),
            "bound": bound,
            "largest": largest,
            "smallest": smallest,
        },
    )


def _rounding(function: Function, values: Tensor) -> float:
    """How far rounding errors of the eigenvalues, each up to ε‖A‖, may move their function's sum, relative to it."""
    error = torch.finfo(values.dtype).eps * float(values.abs().max())
    low, high = torch.maximum(values - error, values.clamp(max=0)), values + error
    change, value = float((function(high) - function(low)).abs().sum()), float(function(values).sum())
    return change / abs(value) if value else 0.0


def check_method(method: str, bound: str, name: str) -> Check:
    """Whether eigenvalues are the matrix's own, rather than those of a stand-in."""
    meaning = {"exact": "exact", "upper": "an upper bound", "neither": "an approximation of unknown sign"}[bound]
    return Check(
        "method", f"{method}, {meaning}", "exact, or a bracket", bound == "exact", "take method='exact' or 'lanczos'",
        reason=f"stand-in: method={method!r} gives {meaning} of the {name.replace('_', ' ')}, not itself",
    )  # fmt: skip
