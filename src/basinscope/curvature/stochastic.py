"""Tr(M f(A)) from random vectors z with E[z zᵀ] = M: bracketed by quadrature, averaged by Monte Carlo."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from scipy import stats
from torch import Tensor

from ..errors import InputError
from ..progress import Report
from .bracket import Function, Runs
from .operators import Operator

FIRST = 8  # probes to begin with
MOST = 64
STRIDE = 10  # Lanczos steps between looks at the bracket
MOST_STEPS = 400
CERTAINTY = 0.9999  # of the bounds: the quadrature bracket holds for certain, the average over probes only so

Starts = Callable[[int, torch.Generator], Tensor]


@dataclass(frozen=True)
class Average:
    """One traced function.

    Attributes:
        value, stderr, freedom: middle of the bracket; Monte Carlo error and half of the bracket, in squares.
        bracket: Gauss and Gauss–Radau values averaged over probes: they enclose the average, not the trace.
        bounds: the bracket widened by Monte Carlo (99.99 %) and rounding errors.
        closed: whether the bracket shrank below the Monte Carlo error before the steps ran out.
    """

    value: float
    stderr: float
    freedom: float
    bracket: tuple[float, float]
    bounds: tuple[float, float]
    closed: bool
    probes: int
    steps: int
    left: float


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
    operator: Operator, functions: Sequence[Function], levels: Sequence[float], starts: Starts, *, seed: int,
    rtol: float, report: Report,
) -> list[Average]:  # fmt: skip
    """Tr(M f(A)) of several functions from the same runs; levels[j] is where functions[j] bends (its weight decay).

    The runs grow until every bracket is below the Monte Carlo error, then probes are added until that error is below
    rtol · value.
    """
    if not 0 < rtol < 1:
        raise InputError(f"rtol must lie between 0 and 1, got {rtol}")
    generator = torch.Generator().manual_seed(seed)
    first = Runs(operator, starts(FIRST, generator))
    most = min(MOST_STEPS, operator.dimension)
    while True:
        first.grow(min(STRIDE, most - first.steps))
        found = _averages(operator, [first], functions, levels, rtol)
        report(0.5 * first.steps / most, f"{first.steps} Lanczos steps, {FIRST} probes")
        if all(average.closed for average in found) or first.steps >= most:
            break
    wanted = max(FIRST * (average.stderr / (rtol * abs(average.value) + 1e-300)) ** 2 for average in found)
    missing = min(MOST, math.ceil(wanted)) - FIRST
    if missing <= 0:
        return found
    second = Runs(operator, starts(missing, generator))
    for step in range(first.steps):
        second.grow(1)
        report(0.5 + 0.5 * (step + 1) / first.steps, f"{first.steps} Lanczos steps, {FIRST + missing} probes")
    return _averages(operator, [first, second], functions, levels, rtol)


def _averages(
    operator: Operator, runs: list[Runs], functions: Sequence[Function], levels: Sequence[float], rtol: float
) -> list[Average]:
    epsilon = torch.finfo(operator.dtype).eps
    largest = max(run.largest for run in runs)
    smallest = min(run.smallest for run in runs)
    # Rounding can push a zero eigenvalue below zero, and the left node must lie below what the runs see.
    lowest = min(min(run.edge for run in runs), 0.0) * 2 - epsilon * largest
    left = lowest if operator.psd else min(smallest, lowest)
    if left <= -min(levels):
        _refuse(operator, left, min(levels))
    rules = [run.nodes(left) for run in runs]
    found = []
    for function, level in zip(functions, levels, strict=True):
        low, high = (torch.cat(side) for side in zip(*(function.bracket(rule) for rule in rules), strict=True))
        middle = (low + high) / 2
        value, width, probes = float(middle.mean()), float((high - low).mean()), len(middle)
        noise = float(middle.std() / math.sqrt(probes))
        reach = float(stats.t.ppf(0.5 + CERTAINTY / 2, probes - 1)) * noise + epsilon * largest / level * abs(value)
        bracket = float(low.mean()), float(high.mean())
        goal = max(min(noise, rtol * abs(value)), rtol * abs(value) / 4)
        found.append(
            Average(
                value=value,
                stderr=math.hypot(noise, width / 2),
                freedom=probes - 1,
                bracket=bracket,
                bounds=(bracket[0] - reach, bracket[1] + reach),
                closed=width <= goal,
                probes=probes,
                steps=runs[0].steps,
                left=left,
            )
        )
    return found


def _refuse(operator: Operator, left: float, level: float) -> None:
    if operator.psd:
        raise InputError(
            f"weight decay {level:g} drowns in rounding errors of size {-left:.1g} — raise it, or convert model and data "
            f"to float64 with model.double()"
        )
    raise InputError(
        f"the Hessian has an eigenvalue near {left:.4g}, so H + Λ is not positive definite with weight decay {level:g} — "
        f"train on to a minimum, raise the weight decay above {-left:.4g}, or take matrix='fisher'"
    )
