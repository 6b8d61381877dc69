"""Tr(M f(A)) from random vectors z with E[z zᵀ] = M: bracketed by quadrature, averaged by Monte Carlo."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from scipy import stats
from torch import Tensor

from ..errors import InputError
from ..estimates import Estimate
from ..progress import Report
from .bracket import Function, Runs
from .operators import Operator

FIRST = 8  # probes to begin with
MOST = 64
STRIDE = 10  # least number of Lanczos steps between looks at the bracket
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
        rounding: relative size of the operator's rounding errors, ε‖A‖ over the weight decay.
        closed: whether the bracket shrank below the Monte Carlo error before the steps ran out.
        smallest: the operator's smallest eigenvalue as far as seen.
    """

    value: float
    stderr: float
    freedom: float
    bracket: tuple[float, float]
    bounds: tuple[float, float]
    closed: bool
    probes: int
    steps: int
    rounding: float
    smallest: float

    def estimate(self, name: str, rtol: float, diagnostics: Mapping[str, Any], factor: float = 1.0) -> Estimate:
        """factor · the traced function, with a verdict."""
        warnings = []
        if not self.closed:
            warnings.append(
                f"after {self.steps} Lanczos steps the bracket [{factor * self.bracket[0]:.5g}, "
                f"{factor * self.bracket[1]:.5g}] is still wider than the Monte Carlo error — raise the weight decay"
            )
        if self.smallest < 0:
            warnings.append(negative(self.smallest))
        if self.rounding > 0.1 * rtol:
            warnings.append(
                f"rounding errors may change the value by {self.rounding:.1%} — convert model and data to float64"
            )
        if self.stderr > 2 * rtol * abs(self.value):
            warnings.append(f"the relative error is {self.stderr / abs(self.value):.1%}, above rtol={rtol:g}")
        return Estimate(
            name=name,
            value=factor * self.value,
            stderr=factor * self.stderr,
            verdict="doubtful" if warnings else "ok",
            warnings=tuple(warnings),
            freedom=self.freedom,
            bounds=(factor * self.bounds[0], factor * self.bounds[1]),
            diagnostics={
                **diagnostics,
                "bound": "neither",
                "bracket": (factor * self.bracket[0], factor * self.bracket[1]),
                "probes": self.probes,
                "steps": self.steps,
            },
        )


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
        first.grow(min(max(STRIDE, first.steps // 4), most - first.steps))
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
    largest = max(run.ritz.largest for run in runs)
    left, certain = _left_end(operator, runs, epsilon * largest, min(levels))
    rules = [run.nodes(left) for run in runs]
    found = []
    for function, level in zip(functions, levels, strict=True):
        low, high = (torch.cat(side) for side in zip(*(function.bracket(rule) for rule in rules), strict=True))
        middle = (low + high) / 2
        value, width, probes = float(middle.mean()), float((high - low).mean()), len(middle)
        noise = float(middle.std() / math.sqrt(probes))
        rounding = epsilon * largest / level
        reach = float(stats.t.ppf(0.5 + CERTAINTY / 2, probes - 1)) * noise + rounding * abs(value)
        bracket = float(low.mean()), float(high.mean())
        goal = max(min(noise, rtol * abs(value)), rtol * abs(value) / 4)
        found.append(
            Average(
                value=value,
                stderr=math.hypot(noise, width / 2, rounding * value),
                freedom=probes - 1,
                bracket=bracket,
                bounds=(bracket[0] - reach, bracket[1] + reach),
                closed=certain and width <= goal,
                probes=probes,
                steps=runs[0].steps,
                rounding=rounding,
                smallest=0.0 if operator.psd else min(run.ritz.smallest for run in runs),
            )
        )
    return found


def _left_end(operator: Operator, runs: list[Runs], noise: float, level: float) -> tuple[float, bool]:
    """A point left of the spectrum but right of −level, where the functions are singular; and whether it surely is."""
    smallest = min(run.ritz.smallest for run in runs)
    if operator.psd:
        # Rounding pushes zero eigenvalues a little below zero; the node must lie below what the runs see.
        left = 2 * min(smallest, 0.0) - noise
        if left <= -level:
            raise InputError(
                f"weight decay {level:g} drowns in rounding errors of size {-left:.1g} — raise it, or convert model "
                f"and data to float64"
            )
        return left, True
    if smallest <= -level:
        raise InputError(indefinite(smallest, level))
    left = min(0.0, min(run.ritz.smallest - run.ritz.residual for run in runs)) - noise
    return (left, True) if left > -level else ((smallest - level) / 2, False)


def indefinite(smallest: float, level: float) -> str:
    """The message for a Hessian with too negative an eigenvalue."""
    return (
        f"the Hessian has an eigenvalue {smallest:.4g}, so H + Λ is not positive definite with weight decay {level:g} "
        f"— train on to a minimum, raise the weight decay well above {-smallest:.4g}, or take matrix='fisher'"
    )


def negative(smallest: float) -> str:
    """The warning for a Hessian that is not positive semi-definite, though H + Λ is."""
    return (
        f"the Hessian has negative eigenvalues, the smallest {smallest:.3g}: this is no minimum, and such directions "
        f"count below zero — train on, or take matrix='fisher'"
    )
