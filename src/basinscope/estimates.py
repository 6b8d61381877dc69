"""Estimate: a number with its standard error, its diagnostics and a verdict on whether to believe it."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from scipy import stats

from .errors import InputError

Verdict = Literal["ok", "doubtful", "failed"]


@dataclass(frozen=True)
class Estimate:
    """A measured value.

    Attributes:
        name: what was measured, e.g. `llc`.
        value: the number; NaN only when the verdict is `failed`.
        stderr: its standard error, all known error sources included; 0 for an exact computation.
        verdict: `ok`, `doubtful` or `failed`.
        warnings: the verdict's reasons in words, each with what to do.
        diagnostics: everything else that was seen on the way.
        freedom: degrees of freedom behind the standard error (∞: normal intervals).
        bounds: a bracket of the true value, when the method gives one: certain for exact values and upper bounds,
            99.99 % where it rests on random vectors (Lanczos).

    Examples:
        >>> estimate = Estimate("llc", 10.0, 0.5)
        >>> low, high = estimate.interval(0.9)
        >>> round(low, 2), round(high, 2)
        (9.18, 10.82)
    """

    name: str
    value: float
    stderr: float
    verdict: Verdict = "ok"
    warnings: tuple[str, ...] = ()
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    freedom: float = math.inf
    bounds: tuple[float, float] | None = None

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """Two-sided confidence interval value ± t·stderr, Student's t with `freedom` degrees of freedom.

        Examples:
            >>> Estimate("trace", 3.0, 0.0).interval()
            (3.0, 3.0)
        """
        if not 0 < level < 1:
            raise InputError(f"level must lie strictly between 0 and 1, got {level}")
        if self.stderr == 0:
            return (self.value, self.value)
        half = float(stats.t.ppf(0.5 + level / 2, self.freedom)) * self.stderr
        return (self.value - half, self.value + half)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values, ready for JSON; NaN and infinity become None.

        Examples:
            >>> Estimate("llc", 1.0, 0.1).to_dict()["verdict"]
            'ok'
        """
        return {
            "name": self.name,
            "value": _plain(self.value),
            "stderr": _plain(self.stderr),
            "interval90": _plain(self.interval(0.9)),
            "verdict": self.verdict,
            "warnings": list(self.warnings),
            "bounds": _plain(self.bounds),
            "diagnostics": _plain(self.diagnostics),
        }

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        return f"{self.name} = {self.value:.5g} ± {self.stderr:.2g} ({self.verdict})"

    def _repr_html_(self) -> str:
        reasons = "".join(f"<li>{html.escape(warning)}</li>" for warning in self.warnings)
        return f"<p><b>{html.escape(str(self))}</b></p><ul>{reasons}</ul>"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no NaN
    return value
