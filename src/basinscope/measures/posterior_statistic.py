"""The estimate of a statistic of the posterior, from draws: its value, its Monte Carlo error and its checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..estimates import Check, Estimate
from .checks import check_draws
from .evidence import Evidence
from .pointwise import Pointwise


def posterior_statistic(
    name: str,
    evidence: Evidence,
    statistic: Callable[[Pointwise], float],
    *,
    scale: float | None = None,
    of: str = "the value",
    checks: Sequence[Check] = (),
    diagnostics: Mapping[str, Any] | None = None,
) -> Estimate:
    """The estimate of a statistic of all draws.

    Args:
        name: of the estimate.
        evidence: the draws.
        statistic: what to compute of them.
        scale, of: what the Monte Carlo error must be small against, and its name; the value itself unless given.
        checks: of this statistic alone.
        diagnostics: of this statistic alone.
    """
    value, stderr = evidence.stream.estimate(statistic, evidence.alive)
    all_checks = (*evidence.checks, *checks, check_draws(stderr, abs(value) if scale is None else scale, of))
    return Estimate(name, value, stderr, all_checks, {**evidence.facts, "trace": evidence.trace, **(diagnostics or {})})
