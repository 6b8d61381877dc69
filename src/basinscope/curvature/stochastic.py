"""Stochastic Lanczos quadrature with Gauss–Radau brackets: Tr(M f(A)) from random vectors z with E[z zᵀ] = M.

Tr(M f(A)) = E[zᵀ f(A) z]. Each quadratic form is enclosed by two quadrature rules (`bracket`), and their mean over z is
a Monte Carlo estimate whose error shows in the scatter (`averages`). After Ubaru, Chen and Saad, "Fast estimation of
tr(f(A)) via stochastic Lanczos quadrature" (2017, https://doi.org/10.1137/16M1104974). For the density of eigenvalues,
which needs no function f, see `density`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..checks import fraction, whole_seed
from ..progress import Report
from .averages import Average, averages
from .bracket import Function
from .lanczos import LanczosRuns, Tridiagonal
from .operators import Operator
from .tiles import DEFAULT_MEMORY

INITIAL_PROBES = 8
MAX_PROBES = 64
MIN_STRIDE = 10  # Lanczos steps between two looks at the bracket
MAX_STEPS = 400  # of Lanczos, from each probe
MAX_RESIDUAL = 0.05  # relative, of the eigenvectors that are taken out

Starts = Callable[[int, torch.Generator], Tensor]


class Whitened:
    """diag(scale) A diag(scale) as an operator."""

    def __init__(self, operator: Operator, scale: Tensor | None) -> None:
        self.dimension, self.device, self.dtype, self.psd = (
            operator.dimension, operator.device, operator.dtype, operator.psd
        )  # fmt: skip
        self._operator = operator
        self._scale = None if scale is None else scale.to(operator.device, operator.dtype)

    def __matmul__(self, v: Tensor) -> Tensor:
        if self._scale is None:
            return self._operator @ v
        scale = self._scale if v.ndim == 1 else self._scale[:, None]
        return scale * (self._operator @ (scale * v))


def signs(operator: Operator) -> Starts:
    """Rademacher vectors, E[z zᵀ] = I, the same on every device."""

    def draw(count: int, generator: torch.Generator) -> Tensor:
        return torch.randint(2, (operator.dimension, count), generator=generator).to(operator.dtype) * 2 - 1

    return draw


def traced(
    operator: Operator, functions: Sequence[Function], levels: Sequence[float], starts: Starts | None = None, *,
    seed: int, rtol: float, report: Report,
) -> list[Average]:  # fmt: skip
    """Tr(M f(A)) of several functions from the same Lanczos runs.

    The runs grow until every bracket is below the Monte Carlo error. If that error is above rtol · value, leading
    eigenvectors are taken out where that is cheaper (and M = I, the case without `starts`), and probes are added.

    Args:
        operator: A.
        functions: the functions f.
        levels: where each of them bends, its weight decay λ.
        starts: draws vectors z with E[z zᵀ] = M; random signs, for M = I, unless given.
        seed: of the random vectors.
        rtol: relative standard error to reach.
        report: called with the fraction done and a line of text.
    """
    rtol = fraction("rtol", rtol)
    generator = torch.Generator().manual_seed(whole_seed(seed))
    draw = signs(operator) if starts is None else starts
    fixed: Tridiagonal | None = None

    def converge(runs: LanczosRuns) -> list[Average]:
        """Grow the runs until every bracket has closed, or the steps are spent."""
        max_steps = min(MAX_STEPS, operator.dimension)
        while True:
            runs.grow(min(max(MIN_STRIDE, runs.steps // 4), max_steps - runs.steps))
            results = averages(operator, functions, levels, [runs.tridiagonal], fixed, rtol)
            report(0.5 * runs.steps / max_steps, f"{runs.steps} Lanczos steps, {INITIAL_PROBES} probes")
            spent = runs.steps >= max_steps or bool(runs.exhausted.all())
            if spent or all(average.closed for average in results):
                return results

    def missing_probes() -> int:
        """The further probes that bring the standard error to rtol: it falls with the root of their number."""
        needed = max(
            INITIAL_PROBES * (average.stderr / (rtol * abs(average.value) + 1e-300)) ** 2 for average in results
        )
        return max(0, min(MAX_PROBES, math.ceil(needed)) - INITIAL_PROBES)

    # First few probes, until the quadrature error is below the Monte Carlo error.
    runs = LanczosRuns(operator, draw(INITIAL_PROBES, generator))
    results = converge(runs)
    # Deflation, where it costs fewer products than the probes that it saves. A soft rank of r has about r eigenvalues
    # that matter, and a Lanczos run finds them in about 3 r steps.
    products = math.ceil(3 * max(abs(average.value) for average in results)) + 3 * MIN_STRIDE
    cheaper = products + INITIAL_PROBES * runs.steps < missing_probes() * runs.steps
    if starts is None and cheaper and _fits(operator, products):
        vectors, fixed = _leading(operator, draw(1, generator)[:, 0], products)
        draw = _orthogonal(draw, vectors)
        runs = LanczosRuns(operator, draw(INITIAL_PROBES, generator))
        results = converge(runs)
    # The rest of the probes, with as many steps as closed the brackets of the first ones.
    missing = missing_probes()
    if missing == 0:
        return results
    others = LanczosRuns(operator, draw(missing, generator))
    for step in range(runs.steps):
        others.grow(1)
        report(0.5 + 0.5 * (step + 1) / runs.steps, f"{runs.steps} Lanczos steps, {INITIAL_PROBES + missing} probes")
    return averages(operator, functions, levels, [runs.tridiagonal, others.tridiagonal], fixed, rtol)


def _leading(operator: Operator, start: Tensor, products: int) -> tuple[Tensor, Tridiagonal]:
    """Approximate eigenvectors u (d, k) of the largest eigenvalues, and the rules for uᵀ f(A) u.

    Where an operator has few large eigenvalues, they make most of the Monte Carlo error. Split off, they make none:
    Tr f(A) = Σ_u uᵀ f(A) u + E[zᵀ f(A) z] for z orthogonal to all u, and the Rayleigh quotient of u with its residual
    is one step of a Lanczos run from u.
    """
    run = LanczosRuns(operator, start, memory=math.inf)
    run.grow(products)
    (values, rotation), residuals = (part[0] for part in run.tridiagonal.eigensystem), run.tridiagonal.residuals[0]
    converged = residuals < MAX_RESIDUAL * values
    vectors = torch.linalg.qr(run.basis[0].T @ rotation[:, converged].to(run.basis)).Q
    values, residuals = values[converged], residuals[converged]
    return vectors, Tridiagonal(values[:, None], residuals[:, None], torch.ones_like(values))


def _orthogonal(draw: Starts, vectors: Tensor) -> Starts:
    """Draws the same random vectors without their part in the span of orthonormal `vectors`."""

    def projected(count: int, generator: torch.Generator) -> Tensor:
        probes = draw(count, generator).to(vectors)
        return probes - vectors @ (vectors.T @ probes)

    return projected


def _fits(operator: Operator, vectors: int) -> bool:
    """Whether that many vectors, their images and a copy fit in memory."""
    size = 3 * operator.dimension * vectors * torch.finfo(operator.dtype).bits // 8
    return size <= (32 if operator.device.type == "cuda" else 1) * DEFAULT_MEMORY
