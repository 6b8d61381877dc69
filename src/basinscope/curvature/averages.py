"""The averaging half of stochastic Lanczos quadrature: brackets of many vectors make a number, its error and bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from scipy.special import stdtrit

from ..errors import InputError
from ..estimates import Check, Estimate
from .bracket import Function, SpectrumEnds, ends_of, nodes_of
from .lanczos import Tridiagonal
from .operators import Operator

MAX_ROUNDING_OF_RTOL = 0.1  # rounding errors in units of the tolerance
MAX_STDERR_OF_RTOL = 2.0  # standard error in units of the tolerance
CERTAINTY = 0.9999  # of the bounds: the quadrature bracket holds for certain, the average over probes only so


@dataclass(frozen=True)
class Average:
    """The trace of one function of an operator.

    Attributes:
        value: the middle of the bracket.
        stderr: the Monte Carlo error and half of the width of the bracket, added in squares.
        freedom: the degrees of freedom of the Monte Carlo error.
        bracket: Gauss and Gauss–Radau values averaged over probes: they enclose the average, not the trace.
        bounds: the bracket widened by Monte Carlo (99.99 %) and rounding errors.
        rounding: relative size of the operator's rounding errors, ε‖A‖ over the weight decay.
        closed: whether the bracket shrank below the Monte Carlo error before the steps ran out.
        probes, steps: the number of random vectors, and of Lanczos steps from each.
        smallest: the operator's smallest eigenvalue as far as the Lanczos runs show it.
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
        """factor · the traced function, with its checks."""
        return Estimate(
            name=name,
            value=factor * self.value,
            stderr=factor * self.stderr,
            checks=self.checks(rtol, factor),
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

    def checks(self, rtol: float, factor: float = 1.0) -> tuple[Check, ...]:
        """Whether the bracket closed, the operator is positive, and rounding and Monte Carlo errors are small."""
        low, high = factor * self.bracket[0], factor * self.bracket[1]
        share = 0.0 if self.stderr == 0 else self.stderr / abs(self.value) if self.value else math.inf
        return (
            Check(
                "bracket", f"[{low:.5g}, {high:.5g}]", "narrower than the Monte Carlo error", self.closed,
                "raise weight_decay",
                reason=f"not converged: after {self.steps} Lanczos steps the bracket [{low:.5g}, {high:.5g}] is still "
                f"wider than the Monte Carlo error",
            ),
            check_positive(self.smallest),
            check_rounding(self.rounding, rtol, "convert model and data to float64"),
            Check(
                "standard error", f"{share:.1%} of the value", f"at most {MAX_STDERR_OF_RTOL:g} rtol",
                share <= MAX_STDERR_OF_RTOL * rtol, "raise rtol, or take method='exact' where it is affordable",
                reason=f"imprecise: the relative error is {share:.1%}, above rtol={rtol:g}",
            ),
        )  # fmt: skip


def averages(
    operator: Operator, functions: Sequence[Function], levels: Sequence[float], runs: list[Tridiagonal],
    fixed: Tridiagonal | None, rtol: float,
) -> list[Average]:  # fmt: skip
    """The functions' means over the vectors of `runs`, plus their sums over those of `fixed`."""
    epsilon = torch.finfo(operator.dtype).eps
    ends = [ends_of(run) for run in runs]
    largest, smallest = max(end.largest for end in ends), min(end.smallest for end in ends)
    left, certain = _left_end(operator.psd, ends, epsilon * largest, min(levels))
    rules = [nodes_of(run, left) for run in runs]
    fixed_rule = None if fixed is None else nodes_of(fixed, left)
    results = []
    for function, level in zip(functions, levels, strict=True):
        low, high = (torch.cat(side) for side in zip(*(function.bracket(rule) for rule in rules), strict=True))
        if fixed_rule is not None:
            base = [float(side.sum()) for side in function.bracket(fixed_rule)]
            low, high = low + base[0], high + base[1]
        low, high = torch.minimum(low, high), torch.maximum(low, high)  # equal up to rounding once exhausted
        middle = (low + high) / 2
        value, width, probes = float(middle.mean()), float((high - low).mean()), len(middle)
        noise = float(middle.std() / math.sqrt(probes))
        rounding = epsilon * largest / level
        margin = float(stdtrit(probes - 1, 0.5 + CERTAINTY / 2)) * noise + rounding * abs(value)
        bracket = float(low.mean()), float(high.mean())
        # Narrower than the Monte Carlo error or the tolerance, but no narrower than a quarter of the tolerance.
        widest = max(min(noise, rtol * abs(value)), rtol * abs(value) / 4)
        results.append(
            Average(
                value=value,
                stderr=math.hypot(noise, width / 2, rounding * value),
                freedom=probes - 1,
                bracket=bracket,
                bounds=(bracket[0] - margin, bracket[1] + margin),
                closed=certain and width <= widest,
                probes=probes,
                steps=runs[0].steps,
                rounding=rounding,
                smallest=0.0 if operator.psd else smallest,
            )
        )
    return results


def _left_end(psd: bool, ends: list[SpectrumEnds], noise: float, level: float) -> tuple[float, bool]:
    """A point left of the spectrum but right of −level, where the functions are singular; and whether it surely is."""
    smallest = min(end.smallest for end in ends)
    if psd:
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
    left = min(0.0, min(end.smallest - end.residual for end in ends)) - noise
    return (left, True) if left > -level else ((smallest - level) / 2, False)


def indefinite(smallest: float, level: float) -> str:
    """The message for a Hessian with too negative an eigenvalue."""
    return (
        f"the Hessian has an eigenvalue {smallest:.4g}, so H + Λ is not positive definite with weight decay {level:g} "
        f"— train on to a minimum, raise the weight decay well above {-smallest:.4g}, or take matrix='fisher'"
    )


def check_positive(smallest: float, limit: float = 0.0) -> Check:
    """Whether a matrix A is positive semi-definite, up to `-limit`, though A + Λ is in any case."""
    return Check(
        "smallest eigenvalue", f"{smallest:.3g}", "not negative", smallest >= -limit,
        "train on, or take matrix='fisher'",
        reason=f"not at a minimum: the Hessian has negative eigenvalues, the smallest {smallest:.3g}: this is no "
        f"minimum, and such directions count below zero",
    )  # fmt: skip


def check_rounding(share: float, rtol: float, remedy: str) -> Check:
    """Whether rounding errors, relative to the value, are small beside the tolerance."""
    return Check(
        "rounding errors", f"{share:.1%}", f"at most {MAX_ROUNDING_OF_RTOL:g} rtol",
        share <= MAX_ROUNDING_OF_RTOL * rtol, remedy,
        reason=f"imprecise: rounding errors may change the value by {share:.1%}",
    )  # fmt: skip
