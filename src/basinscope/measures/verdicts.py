"""Estimates from evidence: value, Monte Carlo error, verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..estimates import Estimate, Verdict
from .evidence import Evidence
from .pointwise import Pointwise

IMPRECISE = 0.1  # of the complexity term, that the Monte Carlo error may be


def drawn(
    name: str,
    evidence: Evidence,
    statistic: Callable[[Pointwise], float],
    *,
    scale: float | None = None,
    doubts: Sequence[str] = (),
    found: Mapping[str, Any] | None = None,
) -> Estimate:
    """The estimate of a statistic of all draws.

    Args:
        name: of the estimate.
        evidence: the draws.
        statistic: what to compute of them.
        scale: what the Monte Carlo error must be small against; the value itself unless given.
        doubts: of this statistic alone.
        found: diagnostics of this statistic alone.
    """
    value, stderr = evidence.stream.estimate(statistic, evidence.alive)
    reasons = [*evidence.doubts, *doubts, *imprecise(stderr, abs(value) if scale is None else scale)]
    verdict: Verdict = "doubtful" if reasons else "ok"
    diagnostics = {**evidence.facts, "trace": evidence.trace, **(found or {})}
    return Estimate(name, value, stderr, verdict, tuple(reasons), diagnostics)


def imprecise(stderr: float, scale: float) -> list[str]:
    """What to say of a Monte Carlo error beside the size it should be small against."""
    if not math.isfinite(stderr):
        return ["imprecise: too few draws for a standard error — give more draws, or several chains"]
    if stderr > IMPRECISE * scale:
        return [f"imprecise: the Monte Carlo error {stderr:.2g} is more than a tenth of {scale:.2g} — raise draws"]
    return []
