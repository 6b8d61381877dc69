"""The learning coefficient λ̂(w*) as an estimate: a basin less a drop, and whether w* is a minimum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from ..errors import InputError
from ..estimates import Check, Estimate
from ..frames import dataframe
from ..parts import Part

if TYPE_CHECKING:
    from .llc_by_part import LlcByPart

MAX_DROP_SHARE = 0.1  # drop from w* to ŵ, of λ̂, with which w* counts as a minimum
MAX_DOWNWARD_CURVATURE = 1.0  # −nβσ of the least eigenvalue σ, in units of γ, which keeps chains from falling
MAX_DROP_ERROR = 0.05  # of the drop in nats, relative to the basin, with which the drop counts as known

AtMinimum = Literal["yes", "no", "unknown"]


class LearningCoefficient(Estimate):
    """λ̂(w*) as an estimate, split in two at ŵ, the minimum of nβL_n + (γ/2)‖w − w*‖² near w*.

    nβ(E[L_n] − L_n(w*)) = nβ(E[L_n] − L_n(ŵ)) − nβ(L_n(w*) − L_n(ŵ)): `basin` less `drop`. In a quadratic basin the
    first is half the soft rank, whatever the slope at w*. The verdict is on the sampling; whether w* is a minimum at
    this resolution is another question, which `at_minimum` answers.
    """

    @property
    def basin(self) -> Estimate:
        """nβ(E[L_n] − L_n(ŵ)), the coefficient of the basin that the chains sample."""
        return self._part("basin")

    @property
    def drop(self) -> Estimate:
        """nβ(L_n(w*) − L_n(ŵ)), in nats: how far above the bottom of its basin w* is."""
        return self._part("drop")

    @property
    def at_minimum(self) -> AtMinimum:
        """Whether w* is a minimum as far as this resolution can tell: `yes`, `no`, or `unknown`."""
        answer: AtMinimum = self.diagnostics.get("at_minimum", "unknown")
        return answer

    @property
    def note(self) -> str:
        """A sentence for a point that is no minimum, with the finest nβ at which it is one; else empty."""
        return str(self.diagnostics.get("note") or "")

    @property
    def of_basin(self) -> Estimate:
        """What to compare with other views of the basin: λ̂ itself, or `basin` where w* is no minimum."""
        return self.basin if self.at_minimum == "no" and self.diagnostics.get("basin") is not None else self

    @property
    def layers(self) -> LlcByPart:
        """λ̂ of each layer at the resolution of the whole, as `llc(land, per_layer=True)` measured it."""
        from .llc_by_part import LlcByPart

        kept = self.diagnostics.get("per_layer")
        if not kept:
            raise InputError("the layers were not measured — call bs.llc(land, per_layer=True)")
        parts = (Part(name, "layer", (), each["parameters"], place) for place, (name, each) in enumerate(kept.items()))
        return LlcByPart(tuple(parts), tuple(LearningCoefficient.from_dict(each) for each in kept.values()))

    def to_dataframe(self) -> Any:
        """A row for the whole, named `all`, and one for each layer where `per_layer=True` measured them."""
        whole = {"part": "all", "parameters": self.diagnostics.get("dimension"), **self.columns("llc")}
        return dataframe([whole, *(self.layers.rows if self.diagnostics.get("per_layer") else ())])

    def _part(self, name: str) -> Estimate:
        value, stderr = (self.diagnostics.get(key) for key in (name, f"{name}_stderr"))
        if value is None or stderr is None:
            return Estimate.failed(name, f"{name}: no minimum near w* was looked for, or none was there to be had")
        facts = {key: self.diagnostics.get(key) for key in ("nbeta", "gamma")}
        return Estimate(name, value, stderr, self.checks, facts, self.freedom)

    def columns(self, name: str = "") -> dict[str, Any]:
        """The estimate as columns of a table, with `…_basin`, `…_drop`, their standard errors, nβ and γ.

        Examples:
            >>> est = LearningCoefficient("llc", 2.5, 0.5, diagnostics={"nbeta": 9.0, "gamma": 1.0})
            >>> est.columns()
            {'llc': 2.5, 'llc_stderr': 0.5, 'llc_verdict': 'ok', 'llc_nbeta': 9.0, 'llc_gamma': 1.0}
        """
        name = name or self.name
        row = super().columns(name)
        for part in ("basin", "drop"):
            if self.diagnostics.get(part) is not None:
                row |= {f"{name}_{part}{end}": self.diagnostics[f"{part}{end}"] for end in ("", "_stderr")}
        if "at_minimum" in self.diagnostics:
            row[f"{name}_at_minimum"] = self.at_minimum
        return row | {f"{name}_{key}": self.diagnostics[key] for key in ("nbeta", "gamma") if key in self.diagnostics}

    def __str__(self) -> str:
        if self.at_minimum != "no" or self.diagnostics.get("basin") is None:
            return super().__str__()
        return f"{super().__str__()}: {self.note}" if self.note else super().__str__()


def minimum_checks(value: float, diagnostics: Mapping[str, Any]) -> tuple[Check, ...]:
    """What is looked at before w* is called a minimum at this resolution; none where nothing is known."""
    return tuple(_minimum_checks(value, diagnostics))


def _minimum_checks(value: float, diagnostics: Mapping[str, Any]) -> Iterator[Check]:
    drop, least = diagnostics.get("drop"), diagnostics.get("smallest_eigenvalue")
    if drop is not None:
        shown = f"{drop:.3g} nats" + (f", {drop / value:.1%} of λ̂" if value > 0 else "")
        yield Check(
            "drop from w* to ŵ", shown, f"at most {MAX_DROP_SHARE:.0%} of λ̂",
            drop <= max(0.0, MAX_DROP_SHARE * value) + diagnostics["drop_stderr"],
            "train longer, lower nbeta, or read basin",
            reason=f"not at a minimum: w* lies {shown} above the lowest point nearby",
        )  # fmt: skip
    if least is not None:
        gamma = diagnostics["gamma"]
        downward = max(0.0, -diagnostics["nbeta"] * least) / gamma
        yield Check(
            "downward curvature at w*, −nβσ/γ", f"{downward:.3g}", f"at most {MAX_DOWNWARD_CURVATURE:g}",
            downward <= MAX_DOWNWARD_CURVATURE, "train longer, lower nbeta, or raise gamma",
            reason=f"a saddle: the Hessian has the eigenvalue {least:.3g} at w*, which gamma={gamma:.3g} does not "
            f"outweigh",
        )  # fmt: skip


def at_minimum(value: float, diagnostics: Mapping[str, Any]) -> AtMinimum:
    """Whether w* is a minimum at this resolution, as far as drop and curvature tell.

    Examples:
        >>> seen = {"basin": 10.2, "drop": 0.2, "drop_stderr": 0.01, "nbeta": 9.0, "gamma": 1.0}
        >>> at_minimum(10.0, seen), at_minimum(1.0, seen), at_minimum(10.0, {})
        ('yes', 'no', 'unknown')
    """
    checks = minimum_checks(value, diagnostics)
    if not all(check.passed for check in checks):
        return "no"
    certain = diagnostics.get("drop") is not None and diagnostics["drop_stderr"] <= MAX_DROP_ERROR * max(
        value, diagnostics["basin"]
    )
    return "yes" if certain else "unknown"
