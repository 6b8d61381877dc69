"""Remedies as the reader of a whole report can follow them: an option of one measure is named with its call."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from ..estimates import Estimate
from .fluctuation import fluctuation
from .gap import gap
from .llc import llc
from .log_det import log_det
from .loo import loo
from .soft_rank import soft_rank
from .tic import tic
from .trace import trace
from .waic import waic

AnyEstimate = TypeVar("AnyEstimate", bound=Estimate)
OPTIONS = ("nbeta", "gamma", "weight_decay", "held_out", "sampler", "rtol", "budget", "seed")  # of a whole measurement
_WORD = re.compile(r"[a-z_]+")
_MEASURES: dict[str, Callable[..., Any]] = {
    "llc": llc,
    "half_soft_rank": soft_rank,
    "hessian_trace": trace,
    "log_det": log_det,
    "gap": gap,
    "waic": waic,
    "loo": loo,
    "tic": tic,
    "fluctuation": fluctuation,
}


def followable(name: str, estimate: AnyEstimate) -> AnyEstimate:
    """The estimate with remedies whose options are those of the whole measurement, or are named with their measure.

    Args:
        name: of the estimate in a report.
        estimate: as its measure returned it.

    Examples:
        >>> from basinscope.estimates import Check
        >>> shaky = Estimate("waic", 1.0, 0.5, (Check("standard error", "50%", "at most 10%", False, "raise draws"),))
        >>> followable("waic", shaky).checks[0].remedy
        'raise draws: bs.waic(land, draws=…)'
    """
    measure = _MEASURES.get(name)
    if measure is None:
        return estimate
    options = inspect.signature(measure).parameters.keys() - {*OPTIONS, "land", "progress"}

    def worded(remedy: str) -> str:
        named = [word for word in dict.fromkeys(_WORD.findall(remedy)) if word in options]
        if not named or "bs." in remedy:
            return remedy
        return f"{remedy}: bs.{measure.__name__}(land, {', '.join(f'{option}=…' for option in named)})"

    checks = tuple(replace(check, remedy=worded(check.remedy)) for check in estimate.checks)
    return replace(estimate, checks=checks)
