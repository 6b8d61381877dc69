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
    def error_of_limit(self) -> float:
        """Relative to λ, the limit of λ_t; NaN where no theorem gives it."""
        return (self.value - self.coefficient) / self.coefficient

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


@dataclass(frozen=True)
class Limits:
    """What the runs of a list of landscapes are to reach; None: nothing is asked."""

    median: float
    tail: float | None = None  # 95th percentile of |relative error|
    worst: float | None = None
    coverage: float | None = None  # of 90 % intervals
    ok: float | None = None  # share of runs
    seconds: float | None = None  # of each


def goals(scores: Sequence[Score], limits: Limits) -> list[Goal]:
    """The targets, over all runs."""
    errors = np.array([abs(score.relative_error) for score in scores])
    missing = int(np.sum(~np.isfinite(errors)))
    errors[~np.isfinite(errors)] = np.inf
    false_ok = sum(score.verdict == "ok" and not abs(score.relative_error) <= WRONG for score in scores)
    middle = float(np.median(errors))
    found = [
        Goal(f"median |relative error| ≤ {limits.median:.1%}", middle, middle <= limits.median),
        Goal("no NaN, no crash", missing, missing == 0, ""),
        Goal(f"no `ok` with an error above {WRONG:.0%}", false_ok, false_ok == 0, ""),
    ]

    def most(text: str, reached: float, limit: float | None, shown: str, unit: str = "%") -> None:
        if limit is not None:
            found.append(Goal(f"{text} ≤ {shown}", reached, reached <= limit, unit))

    def least(text: str, reached: float, limit: float | None) -> None:
        if limit is not None:
            found.append(Goal(f"{text} ≥ {limit:.0%}", reached, reached >= limit))

    tail = float(np.quantile(errors, 0.95, method="higher"))
    most("95th percentile of |relative error|", tail, limits.tail, f"{limits.tail or 0:.1%}")
    most("worst |relative error|", float(errors.max()), limits.worst, f"{limits.worst or 0:.0%}")
    least("90 % intervals cover", float(np.mean([score.covered for score in scores])), limits.coverage)
    least("`ok`", float(np.mean([score.verdict == "ok" for score in scores])), limits.ok)
    slowest = max(score.seconds for score in scores)
    most("seconds of each case", slowest, limits.seconds, f"{limits.seconds or 0:g} s", " s")
    return found
