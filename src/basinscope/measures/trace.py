"""The trace of the Hessian, the Fisher matrix or the gradient covariance."""

from __future__ import annotations

import math
from typing import Any

from ..checks import fraction, whole, whole_seed
from ..curvature.ghost import layer_traces
from ..curvature.language import LanguageOperator
from ..curvature.operators import Operator, check_differentiable, hessian, residual
from ..curvature.piecewise import piecewise_affine
from ..curvature.stack_traces import stack_traces
from ..curvature.trace import TraceEstimate, estimate_trace
from ..deprecated import warn_renamed
from ..errors import InputError
from ..estimates import Check, Estimate
from ..landscape import Landscape
from ..language.model import LanguageModel
from ..progress import Report, tracked

MAX_STDERR_OF_RTOL = 1.05  # standard error in units of the one asked for: the rule that stops leaves a little more


def trace(
    land: Landscape | LanguageModel,
    *,
    matrix: str = "hessian",
    rtol: float = 0.02,
    per_layer: bool = False,
    max_products: int = 2000,
    seed: int = 0,
    memory: int | None = None,
    progress: bool = True,
) -> Estimate:
    """Tr H, Tr F or Tr C of the mean loss at w*.

    Tr F and Tr C are exact sums of squared per-sample gradients. H = F + R with R = (1/n) Σ_i Σ_k r_ik ∇²z_ik, so
    Tr H = Tr F exactly where the outputs z are piecewise affine in the weights of each layer (ReLU networks). For
    plain stacks of linear layers and elementwise functions Tr R has a closed form too, used unless the layers are too
    many and too wide. Elsewhere only Tr R, the smaller and less noisy part, is estimated: by Hutchinson's vᵀRv, or
    XTrace when that takes fewer products. It stops when the standard error is at most `rtol` · |trace|.

    Args:
        land: the landscape, or a `LanguageModel`, whose trace is taken by products alone, with scores over the
            vocabulary made a piece at a time.
        matrix: `hessian`, `fisher` or `covariance`.
        rtol: relative standard error to reach.
        per_layer: also the traces of the diagonal blocks, a (value, standard error) per parameter name in
            `diagnostics["per_layer"]`; the tolerance applies to the whole.
        max_products: most matrix–vector products to spend.
        seed: of the random probes.
        memory: bound in bytes on what is held at once; 512 MiB on a CPU unless given.
        progress: show a bar.

    Returns:
        An estimate whose standard error is 0 where the trace is exact. Diagnostics: `method` (`closed form`, `gradient
        norms`, …), `products`, `passes` (backward passes for Tr F or Tr C), `fisher_trace`.

    Examples:
        >>> import torch, basinscope as bs
        >>> x = torch.tensor([[1.0, 2.0], [3.0, 0.0]])
        >>> land = bs.Landscape(torch.nn.Linear(2, 1), "mse", (x, torch.zeros(2, 1)))
        >>> bs.trace(land).value  # Σ_j mean(x_j²) + 1
        8.0
    """
    check_differentiable(land)
    if matrix not in ("hessian", "fisher", "covariance"):
        raise InputError(f"matrix must be 'hessian', 'fisher' or 'covariance', got {matrix!r}")
    rtol = fraction("rtol", rtol)
    whole("max_products", max_products, 2)
    whole_seed(seed)
    with tracked(f"Trace of the {matrix}", progress) as report:
        from_gradients, from_products = _parts(land, matrix, rtol, per_layer, max_products, seed, memory, report)
    return _estimate(land, matrix, rtol, per_layer, from_gradients, from_products)


def hessian_trace(land: Landscape, **options: Any) -> Estimate:
    """`trace` by its former name; of the Hessian alone."""
    warn_renamed("hessian_trace", "trace")
    if options.get("matrix", "hessian") != "hessian":
        raise InputError(f"hessian_trace is of the Hessian — call bs.trace(land, matrix={options['matrix']!r})")
    return trace(land, **options)


def _parts(
    land: Landscape | LanguageModel, matrix: str, rtol: float, per_layer: bool, max_products: int, seed: int,
    memory: int | None, report: Report,
) -> tuple[TraceEstimate | None, TraceEstimate | None]:  # fmt: skip
    """The part of the trace that comes from gradients, and the part that comes from products."""

    def probed(operator: Operator, offset: float, share: float = 1.0) -> TraceEstimate:
        sizes = [tensor.numel() for tensor in land.parameters.values()] if per_layer else None
        return estimate_trace(
            operator, rtol=share * rtol, offset=offset, max_products=max_products, seed=seed, sizes=sizes,
            memory=memory, report=report,
        )  # fmt: skip

    if isinstance(land, LanguageModel):
        return None, probed(LanguageOperator(land, matrix, memory), offset=0.0)
    if matrix != "hessian":
        return layer_traces(land, matrix, rtol=rtol, seed=seed, memory=memory, report=report), None
    if land.loss.family == "custom":
        return None, probed(hessian(land, memory=memory), offset=0.0)
    stack = stack_traces(land, curved=True, memory=memory, report=report)
    if stack is not None:
        rest = TraceEstimate.exact(stack.residual.values(), "closed form", 0)
        return TraceEstimate.exact(stack.fisher.values(), "closed form", 1), rest
    gradients = layer_traces(land, "fisher", rtol=rtol / 2, seed=seed, memory=memory, report=report)
    if piecewise_affine(land):
        return gradients, None
    share = 1.0 if gradients.stderr == 0 else 0.85  # two errors share the tolerance: 0.5² + 0.85² < 1
    return gradients, probed(residual(land, memory=memory), gradients.value, share)


def _estimate(
    land: Landscape | LanguageModel,
    matrix: str,
    rtol: float,
    per_layer: bool,
    from_gradients: TraceEstimate | None,
    from_products: TraceEstimate | None,
) -> Estimate:
    parts = [part for part in (from_gradients, from_products) if part is not None]
    value, stderr = math.fsum(part.value for part in parts), math.hypot(*(part.stderr for part in parts))
    method, *others = dict.fromkeys(part.method for part in parts)
    diagnostics: dict[str, Any] = {
        "matrix": matrix,
        "method": " + ".join([method, *(f"{other} on H − F" for other in others)]),
        "products": 0 if from_products is None else from_products.spent,
        "passes": 0 if from_gradients is None else from_gradients.spent,
    }
    if from_gradients is not None and matrix == "hessian":
        diagnostics["fisher_trace"] = from_gradients.value
    if per_layer:
        blocks = (zip(*pairs, strict=True) for pairs in zip(*(part.blocks for part in parts), strict=True))
        totals = ((math.fsum(values), math.hypot(*errors)) for values, errors in blocks)
        diagnostics["per_layer"] = dict(zip(land.parameters, totals, strict=True))
    return Estimate(
        f"{matrix}_trace", value, stderr, (check_trace(value, stderr, rtol),), diagnostics, freedom=_freedom(parts)
    )


def check_trace(value: float, stderr: float, rtol: float) -> Check:
    """Whether the trace is a number, and as precise as was asked for."""
    if not math.isfinite(value):
        return Check(
            "trace", f"{value}", "finite", False, "convert model and data to float64", "failure",
            f"overflow: the trace is {value}, since its derivatives overflow",
        )  # fmt: skip
    return Check(
        "standard error", f"{stderr:.2g}", f"at most {MAX_STDERR_OF_RTOL:g} rtol·|trace|",
        stderr <= MAX_STDERR_OF_RTOL * rtol * abs(value), "raise max_products",
        reason=f"imprecise: the standard error {stderr:.2g} is above rtol·|trace| = {rtol * abs(value):.2g}",
    )  # fmt: skip


def _freedom(parts: list[TraceEstimate]) -> float:
    """Degrees of freedom of a sum of independent estimates (Welch and Satterthwaite)."""
    total = math.fsum(part.stderr**2 for part in parts)
    spread = math.fsum(part.stderr**4 / part.freedom for part in parts if part.stderr > 0)
    return total**2 / spread if spread > 0 else math.inf
