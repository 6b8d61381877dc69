"""Estimate: a number with its standard error, and the checks that say whether to believe it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from scipy.special import stdtrit  # scipy.stats takes half a second to import

from .checks import fraction
from .differences import RESOLUTION, check_one_resolution, resolution_in_words, welch_freedom
from .errors import InputError
from .estimate_card import card
from .files import write_whole
from .foreign import contents, parsed
from .verdict import VERDICTS as VERDICTS
from .verdict import Check as Check
from .verdict import Checked
from .verdict import Verdict as Verdict
from .verdict import checks_from_dict as checks_from_dict
from .verdict import unmet as unmet


@dataclass(frozen=True)
class Estimate(Checked):
    """A measured value.

    Attributes:
        name: what was measured, e.g. `llc`.
        value: the number; one that is not finite has failed, whatever the checks say.
        stderr: its standard error, all known error sources included; 0 for an exact computation.
        checks: what was looked at before the number was believed; `verdict` and `warnings` follow from them.
        diagnostics: everything else that was seen on the way.
        freedom: degrees of freedom behind the standard error (∞: normal intervals).
        bounds: a bracket of the true value, when the method gives one: certain for exact values and upper bounds,
            99.99 % where it rests on random vectors (Lanczos).

    Examples:
        >>> estimate = Estimate("llc", 10.0, 0.5)
        >>> low, high = estimate.interval(0.9)
        >>> round(low, 2), round(high, 2)
        (9.18, 10.82)
        >>> shaky = Estimate("llc", 10.0, 2.0, (Check("standard error", "20 %", "below 10 %", False, "raise budget"),))
        >>> shaky.verdict, shaky.warnings
        ('doubtful', ('standard error: 20 %, wanted below 10 % — raise budget',))
    """

    name: str
    value: float
    stderr: float
    checks: tuple[Check, ...] = ()
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    freedom: float = math.inf
    bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.checks, tuple) or not all(isinstance(check, Check) for check in self.checks):
            raise InputError(
                f"checks must be a tuple of Check, got {self.checks!r} — verdict and warnings follow from them; "
                f"Estimate.failed(name, reason) is an estimate without a number"
            )

    @classmethod
    def failed(cls, name: str, reason: object, diagnostics: Mapping[str, Any] | None = None) -> Self:
        """An estimate without a number, for a reason in words; an error's message is one.

        Examples:
            >>> Estimate.failed("gap", "Tr F is zero — take more data").warnings
            ('Tr F is zero — take more data',)
        """
        check = Check.not_passed(str(reason), "failure")
        return cls(name, math.nan, math.nan, (check,), diagnostics or {})

    @property
    def verdict(self) -> Verdict:
        """`ok`, `doubtful` or `failed`, by the worst of the checks that did not pass."""
        return super().verdict if math.isfinite(self.value) else "failed"

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """Two-sided confidence interval value ± t·stderr, Student's t with `freedom` degrees of freedom.

        Examples:
            >>> Estimate("trace", 3.0, 0.0).interval()
            (3.0, 3.0)
        """
        fraction("level", level)
        if self.stderr == 0:
            return (self.value, self.value)
        half = float(stdtrit(self.freedom, 0.5 + level / 2)) * self.stderr
        return (self.value - half, self.value + half)

    def columns(self, name: str = "") -> dict[str, Any]:
        """The estimate as columns of a table: its value, `…_stderr`, `…_verdict` and, if there are any, `…_warnings`.

        Examples:
            >>> Estimate("llc", 2.5, 0.5).columns()
            {'llc': 2.5, 'llc_stderr': 0.5, 'llc_verdict': 'ok'}
        """
        name = name or self.name
        row = {name: float(self.value), f"{name}_stderr": float(self.stderr), f"{name}_verdict": self.verdict}
        return {**row, f"{name}_warnings": "; ".join(self.warnings)} if self.warnings else row

    def to_dict(self, longest: int | None = None) -> dict[str, Any]:
        """Everything as plain Python values, ready for JSON; NaN and infinity become None.

        Args:
            longest: leave out diagnostics of more entries, such as the chains; none unless given.

        Examples:
            >>> Estimate("llc", 1.0, 0.1).to_dict()["verdict"]
            'ok'
        """
        diagnostics = plain(self.diagnostics)
        if longest is not None:
            diagnostics = {name: value for name, value in diagnostics.items() if _count(value) <= longest}
        return {
            "name": self.name,
            "value": plain(self.value),
            "stderr": plain(self.stderr),
            "interval90": plain(self.interval(0.9)),
            "verdict": self.verdict,
            "warnings": list(self.warnings),
            "checks": [asdict(check) for check in self.checks],
            "freedom": plain(self.freedom),
            "bounds": plain(self.bounds),
            "diagnostics": diagnostics,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The estimate that `to_dict` wrote, of this version or of an earlier one that kept warnings but no checks.

        Examples:
            >>> estimate = Estimate("llc", 1.0, 0.5, freedom=3.0)
            >>> Estimate.from_dict(estimate.to_dict()) == estimate
            True
        """
        if data["verdict"] not in VERDICTS or not isinstance(data["name"], str):
            raise InputError(f"a verdict is one of {', '.join(VERDICTS)}, got {data['verdict']!r} of {data['name']!r}")
        bounds = data.get("bounds")
        return cls(
            data["name"],
            as_float(data["value"]),
            as_float(data["stderr"]),
            checks_from_dict(data),
            dict(data["diagnostics"]),
            as_float(data.get("freedom"), math.inf),
            None if bounds is None else (as_float(bounds[0], -math.inf), as_float(bounds[1], math.inf)),
        )

    def plot(self) -> Any:
        """The figure of the estimate: chains, slope in γ, step sizes, temperatures or samples, as far as there are any,
        and what each check saw. Needs matplotlib (`basinscope[plot]`).

        Examples:
            >>> import numpy as np, basinscope as bs
            >>> figure = bs.waic(np.random.default_rng(0).normal(-1.0, 0.1, size=(4, 100, 20))).plot()
            >>> [axes.get_xlabel() for axes in figure.axes]
            ['draw of each chain', 'waic of a sample', '']
        """
        from .estimate_figure import figure

        return figure(self)

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
        facts = {key: value for key, value in plain(self.diagnostics).items() if isinstance(value, (int, float, str))}
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

    def save(self, path: str | Path) -> Path:
        """Write everything, chains included, to a JSON file, which `load` reads back."""
        path = Path(path)
        write_whole(path, (json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False) + "\n").encode())
        return path

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The estimate that `save` wrote.

        Examples:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     file = Estimate("llc", 1.0, 0.5).save(f"{folder}/llc.json")
            ...     Estimate.load(file)
            Estimate(llc = 1 ± 0.5, ok)
        """
        try:
            return cls.from_dict(parsed(contents(path)))
        except FileNotFoundError:
            raise InputError(f"there is no estimate at {path}") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path} is no estimate ({error}) — write one with estimate.save()") from error

    def __sub__(self, other: Estimate) -> Estimate:
        """The difference of two estimates of the same name at the same resolution, from independent draws.

        Its standard error is √(s₁² + s₂²). What speaks against either of the two speaks against their difference.

        Examples:
            >>> Estimate("llc", 10.0, 0.4) - Estimate("llc", 8.0, 0.3)
            Estimate(llc difference = 2 ± 0.5, ok)
        """
        if not isinstance(other, Estimate):
            return NotImplemented
        if self.name != other.name:
            raise InputError(f"{self.name!r} and {other.name!r} are different things — subtract estimates of one name")
        check_one_resolution(self.diagnostics, other.diagnostics)
        if self.stderr > 0 and (self.value, self.stderr) == (other.value, other.stderr):
            raise InputError(
                f"both estimates of {self.name} are {self.value:.6g} ± {self.stderr:.2g}, as of one run, so that their "
                f"errors are not independent — measure one of the two with another seed"
            )
        checks = [
            replace(check, reason=f"{which}: {check.trouble}")
            for which, estimate in (("first", self), ("second", other))
            for check in estimate.checks
        ]
        return Estimate(
            f"{self.name} difference",
            self.value - other.value,
            math.hypot(self.stderr, other.stderr),
            tuple(checks),
            {name: self.diagnostics[name] for name in RESOLUTION if name in self.diagnostics},
            welch_freedom((self.stderr, self.freedom), (other.stderr, other.freedom)),
        )

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        return f"{self.name} = {self.value:.5g} ± {self.stderr:.2g} ({self.verdict})"

    def __repr__(self) -> str:
        resolution = resolution_in_words(self.diagnostics)
        facts = f"{self.name} = {self.value:.5g} ± {self.stderr:.2g}, {self.verdict}"
        return f"Estimate({facts}{f' at {resolution}' if resolution else ''})"

    def _repr_html_(self) -> str:
        interval = self.interval(0.9)
        exact = "exact" if self.stderr == 0 else ""
        words = f"90 % interval {interval[0]:.4g} … {interval[1]:.4g}" if interval[0] < interval[1] else exact
        resolution = resolution_in_words(self.diagnostics)
        facts = ", ".join(filter(None, (words, f"at {resolution}" if resolution else "")))
        heading = f"{self.name} = {self.value:.5g} ± {self.stderr:.2g}"
        half = self.diagnostics.get("half_soft_rank") if self.name == "llc" else None
        beside = {} if half is None else {"½ soft rank": float(half)}
        return card(heading, self.verdict, facts, interval, self.value, self.warnings, beside)


def as_float(value: Any, missing: float = math.nan) -> float:
    """A number from JSON, where None stands for one that is not finite; anything but a number is refused.

    Examples:
        >>> as_float(2), as_float(None)
        (2.0, nan)
    """
    if value is None:
        return missing
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"expected a number, got {value!r}")
    return float(value)


def plain(value: Any) -> Any:
    """A value, and whatever it holds, as JSON has it: arrays as lists, numbers that are not finite as None.

    Examples:
        >>> plain({"a": (1, float("nan"))})
        {'a': [1, None]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no NaN
    return value


def _count(value: Any) -> int:
    """Numbers and texts in a plain value."""
    if isinstance(value, (list, dict)):
        return sum(map(_count, value.values() if isinstance(value, dict) else value))
    return 1
