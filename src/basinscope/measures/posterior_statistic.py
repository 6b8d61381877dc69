"""Estimates from evidence: value, Monte Carlo error, checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..estimates import Check, Estimate
from .checks import check_precision
from .evidence import Evidence
from .pointwise import Pointwise


def drawn(
    name: str,
    evidence: Evidence,
    statistic: Callable[[Pointwise], float],
    *,
    scale: float | None = None,
    of: str = "the value",
    checks: Sequence[Check] = (),
    found: Mapping[str, Any] | None = None,
) -> Estimate:
    """The estimate of a statistic of all draws.

    Args:
        name: of the estimate.
        evidence: the draws.
        statistic: what to compute of them.
        scale, of: what the Monte Carlo error must be small against, and its name; the value itself unless given.
        checks: of this statistic alone.
        found: diagnostics of this statistic alone.
    """
    value, stderr = evidence.stream.estimate(statistic, evidence.alive)
    judged = (*evidence.checks, *checks, monte_carlo(stderr, abs(value) if scale is None else scale, of))
    return Estimate(name, value, stderr, judged, {**evidence.facts, "trace": evidence.trace, **(found or {})})


def monte_carlo(stderr: float, scale: float, of: str = "the value") -> Check:
    """Whether draws are enough: their Monte Carlo error beside the size it should be small against."""
    return check_precision(stderr, scale, of, "raise draws", few="give more draws, or several chains")
