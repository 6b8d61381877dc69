"""One estimate against its reference, and many against the targets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from basinscope import Estimate

from .case import Reference

WRONG = 0.15  # relative error that must not come with the verdict `ok`


@dataclass(frozen=True)
class Score:
    """A run of the estimator on a case; a crash counts as NaN with the verdict `crashed`."""

    case: str
    seed: int
    d: int
    n: int
    nbeta: float
    gamma: float
    coefficient: float  # λ; NaN where no theorem gives it
    reference: float  # λ_t
    reference_stderr: float
    value: float
    stderr: float
    covered: bool  # the 90 % interval holds λ_t
    verdict: str
    seconds: float  # by the clock or of processor time, whichever is less: others may be using the machine
    remark: str = ""

    @property
    def relative_error(self) -> float:
        return (self.value - self.reference) / self.reference

    @property
    def z(self) -> float:
        spread = math.hypot(self.stderr, self.reference_stderr)
        return (self.value - self.reference) / spread if spread else math.copysign(math.inf, self.relative_error)


def covers(estimate: Estimate, reference: Reference) -> bool:
    """Whether the 90 % interval holds λ_t."""
    low, high = estimate.interval(0.9)
    return low <= reference.value <= high


@dataclass(frozen=True)
class Goal:
    """A target and what was reached."""

    text: str
    reached: float
    met: bool
    unit: str = "%"

    @property
    def measured(self) -> str:
        return f"{100 * self.reached:.2f} %" if self.unit == "%" else f"{self.reached:.4g}{self.unit}"


def goals(scores: Sequence[Score], *, minibatch: bool) -> list[Goal]:
    """The targets, over all runs."""
    errors = np.array([abs(score.relative_error) for score in scores])
    missing = int(np.sum(~np.isfinite(errors)))
    errors[~np.isfinite(errors)] = np.inf
    middle = float(np.median(errors))
    median_limit = 0.04 if minibatch else 0.02
    found = [
        Goal(f"median |relative error| ≤ {median_limit:.0%}", middle, middle <= median_limit),
        Goal("no NaN, no crash", missing, missing == 0, ""),
    ]
    false_ok = sum(score.verdict == "ok" and not abs(score.relative_error) <= WRONG for score in scores)
    found.append(Goal(f"no `ok` with an error above {WRONG:.0%}", false_ok, false_ok == 0, ""))
    if minibatch:
        return found
    tail = float(np.quantile(errors, 0.95, method="higher"))
    coverage = float(np.mean([score.covered for score in scores]))
    slowest = max(score.seconds for score in scores)
    return [
        found[0],
        Goal("95th percentile of |relative error| ≤ 6%", tail, tail <= 0.06),
        *found[1:],
        Goal("90 % intervals cover ≥ 85%", coverage, coverage >= 0.85),
        Goal("each case within 90 s", slowest, slowest <= 90, " s"),
    ]
