"""The trace of the Hessian, the Fisher matrix or the gradient covariance."""

from __future__ import annotations

import math
from typing import Any

from ..checks import fraction, whole, whole_seed
from ..curvature.ghost import LayerTraces, layer_traces
from ..curvature.operators import CurvatureOperator, hessian, residual
from ..curvature.piecewise import piecewise_affine
from ..curvature.stack_traces import stack_traces
from ..curvature.trace import Trace, estimate_trace
from ..deprecated import warn_renamed
from ..errors import InputError
from ..estimates import Check, Estimate
from ..landscape import Landscape, check_landscape
from ..progress import Report, tracked

MAX_STDERR_OF_RTOL = 1.05  # standard error in units of the one asked for: the rule that stops leaves a little more


def trace(
    land: Landscape,
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
        land: the landscape.
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
    check_landscape(land)
    if matrix not in ("hessian", "fisher", "covariance"):
        raise InputError(f"matrix must be 'hessian', 'fisher' or 'covariance', got {matrix!r}")
    fraction("rtol", rtol)
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
    land: Landscape,
    matrix: str,
    rtol: float,
    per_layer: bool,
    max_products: int,
    seed: int,
    memory: int | None,
    report: Report,
) -> tuple[LayerTraces | None, Trace | None]:
    """The part of the trace that comes from gradients, and the part that comes from products."""

    def probed(operator: CurvatureOperator, offset: float, share: float = 1.0) -> Trace:
        sizes = [tensor.numel() for tensor in land.parameters.values()] if per_layer else None
        return estimate_trace(
            operator, rtol=share * rtol, offset=offset, max_products=max_products, seed=seed, sizes=sizes,
            memory=memory, report=report,
        )  # fmt: skip

    if matrix != "hessian":
        return layer_traces(land, matrix, rtol=rtol, seed=seed, memory=memory, report=report), None
    if land.loss.family == "custom":
        return None, probed(hessian(land, memory=memory), offset=0.0)
    stack = stack_traces(land, curved=True, memory=memory, report=report)
    if stack is not None:
        blocks = tuple((value, 0.0) for value in stack.residual.values())
        rest = Trace(math.fsum(stack.residual.values()), 0.0, math.inf, "closed form", 0, blocks)
        return LayerTraces.exact(stack.fisher, 1, "closed form"), rest
    gradients = layer_traces(land, "fisher", rtol=rtol / 2, seed=seed, memory=memory, report=report)
    if piecewise_affine(land):
        return gradients, None
    share = 1.0 if gradients.stderr == 0 else 0.85  # two errors share the tolerance: 0.5² + 0.85² < 1
    return gradients, probed(residual(land, memory=memory), gradients.value, share)


def _estimate(
    land: Landscape,
    matrix: str,
    rtol: float,
    per_layer: bool,
    from_gradients: LayerTraces | None,
    from_products: Trace | None,
) -> Estimate:
    value, method, layers = 0.0, [], dict.fromkeys(land.parameters, (0.0, 0.0))
    errors: list[tuple[float, float]] = []
    if from_gradients is not None:
        value += from_gradients.value
        errors.append((from_gradients.stderr, from_gradients.freedom))
        method.append(from_gradients.method)
        layers = {name: from_gradients.layers.get(name, (0.0, 0.0)) for name in layers}
    if from_products is not None:
        value += from_products.value
        errors.append((from_products.stderr, from_products.freedom))
        if from_products.method not in method:
            method.append(from_products.method if from_gradients is None else f"{from_products.method} on H − F")
        if per_layer:
            pairs = zip(layers.items(), from_products.blocks, strict=True)
            layers = {name: (a + c, math.hypot(b, d)) for (name, (a, b)), (c, d) in pairs}
    stderr = math.hypot(*(error for error, _ in errors))
    return Estimate(
        name=f"{matrix}_trace",
        value=value,
        stderr=stderr,
        checks=(check_trace(value, stderr, rtol),),
        freedom=_freedom(errors),
        diagnostics={
            "matrix": matrix,
            "method": " + ".join(method),
            "products": 0 if from_products is None else from_products.products,
            "passes": 0 if from_gradients is None else from_gradients.passes,
            **({"fisher_trace": from_gradients.value} if from_gradients is not None and matrix == "hessian" else {}),
            **({"per_layer": layers} if per_layer else {}),
        },
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


def _freedom(errors: list[tuple[float, float]]) -> float:
    """Degrees of freedom of a sum of independent estimates (Welch and Satterthwaite)."""
    total = math.fsum(error**2 for error, _ in errors)
    spread = math.fsum(error**4 / freedom for error, freedom in errors if error > 0)
    return total**2 / spread if spread > 0 else math.inf
