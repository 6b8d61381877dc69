"""Tr(M f(A)) from random vectors z with E[z zᵀ] = M: bracketed by quadrature, averaged by Monte Carlo."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..errors import InputError
from ..progress import Report
from .averages import Average, averages
from .bracket import Function, Runs
from .lanczos import lanczos
from .operators import Operator
from .tiles import DEFAULT_MEMORY

FIRST = 8  # probes to begin with
MOST = 64
STRIDE = 10  # least number of Lanczos steps between looks at the bracket
MOST_STEPS = 400
SHARP = 0.05  # relative residual of the eigenvectors that are taken out

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
    """Tr(M f(A)) of several functions from the same runs; levels[j] is where functions[j] bends (its weight decay).

    The runs grow until every bracket is below the Monte Carlo error. If that error is above rtol · value, leading
    eigenvectors are taken out where that is cheaper (and M = I, the case without `starts`), and probes are added.
    """
    if not 0 < rtol < 1:
        raise InputError(f"rtol must lie between 0 and 1, got {rtol}")
    generator = torch.Generator().manual_seed(seed)
    draw = signs(operator) if starts is None else starts
    fixed: Runs | None = None

    def settled(run: Runs) -> list[Average]:
        most = min(MOST_STEPS, operator.dimension)
        while True:
            run.grow(min(max(STRIDE, run.steps // 4), most - run.steps))
            found = averages(operator, functions, levels, [run], fixed, rtol)
            report(0.5 * run.steps / most, f"{run.steps} Lanczos steps, {FIRST} probes")
            if all(average.closed for average in found) or run.steps >= most:
                return found

    def missing() -> int:
        wanted = max(FIRST * (average.stderr / (rtol * abs(average.value) + 1e-300)) ** 2 for average in found)
        return max(0, min(MOST, math.ceil(wanted)) - FIRST)

    run = Runs(operator, draw(FIRST, generator))
    found = settled(run)
    leading = math.ceil(3 * max(abs(average.value) for average in found)) + 3 * STRIDE
    if starts is None and leading + FIRST * run.steps < missing() * run.steps and _fits(operator, leading):
        vectors, fixed = _leading(operator, draw(1, generator)[:, 0], leading)
        draw = _orthogonal(draw, vectors)
        run = Runs(operator, draw(FIRST, generator))
        found = settled(run)
    more = missing()
    if more == 0:
        return found
    others = Runs(operator, draw(more, generator))
    for step in range(run.steps):
        others.grow(1)
        report(0.5 + 0.5 * (step + 1) / run.steps, f"{run.steps} Lanczos steps, {FIRST + more} probes")
    return averages(operator, functions, levels, [run, others], fixed, rtol)


def _leading(operator: Operator, start: Tensor, products: int) -> tuple[Tensor, Runs]:
    """Approximate eigenvectors u (d, k) of the largest eigenvalues, and the rules for uᵀ f(A) u.

    Where an operator has few large eigenvalues, they make most of the Monte Carlo error. Split off, they make none:
    Tr f(A) = Σ_u uᵀ f(A) u + E[zᵀ f(A) z] for z orthogonal to all u, and the Rayleigh quotient of u with its residual
    is one step of a Lanczos run from u.
    """
    found = lanczos(operator, start, products)
    values, rotation = torch.linalg.eigh(found.matrix())
    residuals = found.off_diagonal[-1] * rotation[-1].abs()
    sharp = residuals < SHARP * values
    vectors = torch.linalg.qr(found.basis.T @ rotation[:, sharp].to(found.basis)).Q
    return vectors, Runs.known(values[sharp], residuals[sharp])


def _orthogonal(draw: Starts, vectors: Tensor) -> Starts:
    def projected(count: int, generator: torch.Generator) -> Tensor:
        drawn = draw(count, generator).to(vectors)
        return drawn - vectors @ (vectors.T @ drawn)

    return projected


def _fits(operator: Operator, vectors: int) -> bool:
    size = 3 * operator.dimension * vectors * torch.finfo(operator.dtype).bits // 8
    return size <= (32 if operator.device.type == "cuda" else 1) * DEFAULT_MEMORY
