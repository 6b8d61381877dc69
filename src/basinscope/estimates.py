"""Estimate: a number with its standard error, its diagnostics and a verdict on whether to believe it."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from scipy.special import stdtrit  # scipy.stats takes half a second to import

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
        half = float(stdtrit(self.freedom, 0.5 + level / 2)) * self.stderr
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

    def to_arviz(self) -> Any:
        """The chains behind the estimate as an ArviZ `DataTree`, for its plots and tables; needs `basinscope[arviz]`.

        Group `posterior` holds the trace over (chain, draw) under the estimate's name; group `pointwise`, where there
        is one, each observation's part.

        Examples:
            >>> import numpy as np, basinscope as bs
            >>> tree = bs.loo(np.random.default_rng(0).normal(-1.0, 0.1, size=(4, 100, 5))).to_arviz()
            >>> dict(tree.posterior.sizes), sorted(tree.pointwise.data_vars)
            ({'chain': 4, 'draw': 100}, ['loo', 'shape'])
        """
        if "trace" not in self.diagnostics:
            raise InputError(f"{self.name} comes from no chains, so that there is nothing for ArviZ to show")
        try:
            import xarray
            from arviz_base import from_dict
        except ModuleNotFoundError as error:
            raise InputError("ArviZ objects need arviz-base — install basinscope[arviz]") from error
        facts = {key: value for key, value in _plain(self.diagnostics).items() if isinstance(value, (int, float, str))}
        tree = from_dict(
            {"posterior": {self.name: self.diagnostics["trace"]}},
            check_conventions=False,  # more chains than draws are usual here
            attrs={"/": {"value": self.value, "stderr": self.stderr, "verdict": self.verdict, **facts}},
        )
        parts = self.diagnostics.get("pointwise")
        if parts:
            data = {name: ("observation", values) for name, values in parts.items()}
            tree["pointwise"] = xarray.DataTree(xarray.Dataset(data))
        return tree

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
