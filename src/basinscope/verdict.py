"""Checks of a number, and the verdict on it that follows from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from .errors import InputError

Verdict = Literal["ok", "doubtful", "failed"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)  # the worst last
Severity = Literal["doubt", "failure"]


@dataclass(frozen=True)
class Check:
    """One thing that was looked at before a number was believed.

    Attributes:
        name: what was looked at, e.g. `split-R̂ between chains`.
        seen: what it was, in words.
        wanted: what it had to be, in words.
        passed: whether it was.
        remedy: what to do if it was not.
        severity: what it means if it was not: a `doubt` about the number, or a `failure`, so that there is none.
        reason: what is wrong if it did not pass, in words that begin with the kind of trouble and a colon; made of the
            name, what was seen and what was wanted unless given.

    Examples:
        >>> Check("split-R̂ between chains", "1.21", "below 1.1", False, "raise budget").warning
        'split-R̂ between chains: 1.21, wanted below 1.1 — raise budget'
    """

    name: str
    seen: str
    wanted: str
    passed: bool
    remedy: str = ""
    severity: Severity = "doubt"
    reason: str = ""

    @property
    def trouble(self) -> str:
        """What is wrong if the check did not pass, without the remedy."""
        return self.reason or f"{self.name}: {self.seen}, wanted {self.wanted}"

    @property
    def warning(self) -> str:
        """What is wrong if the check did not pass, and what to do."""
        return f"{self.trouble} — {self.remedy}" if self.remedy else self.trouble

    @classmethod
    def not_passed(cls, warning: str, severity: Severity = "doubt") -> Check:
        """A check of which nothing but its warning is known, such as an error's message.

        Examples:
            >>> Check.not_passed("imprecise: the standard error is 20 % of λ̂ — raise budget").remedy
            'raise budget'
        """
        reason, dash, remedy = warning.rpartition(" — ")
        reason, remedy = (reason, remedy) if dash else (warning, "")
        name, colon, seen = reason.partition(": ")
        return cls(name if colon else "value", seen if colon else reason, "", False, remedy, severity, reason)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Check:
        """The check whose fields a file holds."""
        values = {entry.name: plain[entry.name] for entry in fields(cls)}
        texts = [value for name, value in values.items() if name != "passed"]
        if not all(isinstance(text, str) for text in texts) or not isinstance(values["passed"], bool):
            raise InputError(f"a check is made of texts and whether it passed, got {dict(plain)!r}")
        if values["severity"] not in get_args(Severity):
            raise InputError(f"severity must be one of {', '.join(get_args(Severity))}, got {values['severity']!r}")
        return cls(**values)


def verdict_of(checks: Iterable[Check]) -> Verdict:
    """`failed` if a check that makes a number wrong did not pass, `doubtful` if another did not, else `ok`.

    Examples:
        >>> verdict_of([Check("a", "1", "1", True)]), verdict_of([Check("a", "2", "1", False)])
        ('ok', 'doubtful')
    """
    severities = {check.severity for check in checks if not check.passed}
    return "failed" if "failure" in severities else "doubtful" if severities else "ok"


def unmet(checks: Iterable[Check]) -> list[Check]:
    """The checks that did not pass, failures first."""
    return sorted((check for check in checks if not check.passed), key=lambda check: check.severity != "failure")


def warnings_of(checks: Iterable[Check]) -> tuple[str, ...]:
    """What the checks that did not pass say, failures first."""
    return tuple(dict.fromkeys(check.warning for check in unmet(checks)))


class Checked:
    """Something with `checks`: its verdict and its warnings follow from them."""

    checks: tuple[Check, ...]

    @property
    def verdict(self) -> Verdict:
        """`ok`, `doubtful` or `failed`, by the worst of the checks that did not pass."""
        return verdict_of(self.checks)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the checks that did not pass say, each with what to do."""
        return warnings_of(self.checks)


def worst_of(results: Iterable[Any]) -> Verdict:
    """The worst verdict of several results."""
    return max((result.verdict for result in results), key=VERDICTS.index)


def checks_from_dict(data: Mapping[str, Any]) -> tuple[Check, ...]:
    """The checks that a file holds; of one that kept a verdict and warnings alone, what is known from these.

    Examples:
        >>> data = {"verdict": "doubtful", "warnings": ["imprecise: the standard error is 20 % — raise budget"]}
        >>> checks_from_dict(data)[0].name
        'imprecise'
    """
    if "checks" in data:
        return tuple(map(Check.from_dict, data["checks"]))
    if data["verdict"] == "ok":
        return ()
    first: Severity = "failure" if data["verdict"] == "failed" else "doubt"
    texts = list(data["warnings"]) or [f"{data['verdict']}: its reason was not kept"]
    return tuple(Check.not_passed(str(text), "doubt" if place else first) for place, text in enumerate(texts))
