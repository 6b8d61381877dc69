"""λ̂ of all heads of a transformer, or of all parts of another kind, at one resolution."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Unpack, cast

import torch

from ..errors import InputError
from ..frames import dataframe
from ..landscape import Landscape, check_landscape, watanabe_nbeta
from ..language.model import LanguageModel
from ..parts import Part
from ..progress import Report, part, tracked
from ..sampling.calibration import Resolution
from ..sampling.lean.side_by_side import walked_side_by_side
from ..sampling.local import Sampler
from ..verdict import Verdict, worst_of
from .coefficient import LearningCoefficient
from .lean import estimate_of
from .llc import llc
from .settings import Sampling, checked, takes_settings


@dataclass(frozen=True)
class LlcByPart(Mapping[str, LearningCoefficient]):
    """λ̂ of parts of a network by their names, at one resolution (nβ, γ).

    Attributes:
        parts: in the order of the network's computation.
        estimates: of each.
    """

    parts: tuple[Part, ...]
    estimates: tuple[LearningCoefficient, ...]

    def __getitem__(self, name: str) -> LearningCoefficient:
        for each, estimate in zip(self.parts, self.estimates, strict=True):
            if each.name == name:
                return estimate
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (each.name for each in self.parts)

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def verdict(self) -> Verdict:
        """The worst of all parts."""
        return worst_of(self.estimates)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each part: its name, kind, layer, number and size, and λ̂ with its error, basin and verdict."""
        return [
            {
                "part": each.name, "kind": each.kind, "layer": each.layer, "number": each.number,
                "parameters": each.parameters, **estimate.columns("llc"),
            }
            for each, estimate in zip(self.parts, self.estimates, strict=True)
        ]  # fmt: skip

    def to_dataframe(self) -> Any:
        """The rows as a pandas table."""
        return dataframe(self.rows)

    def plot(self) -> Any:
        """Heads and groups as a map, layers by numbers; other parts with 90 % intervals (needs matplotlib)."""
        from .llc_by_part_figure import by_part

        return by_part(self)

    def __repr__(self) -> str:
        low, high = (pick(self.estimates, key=lambda estimate: estimate.value) for pick in (min, max))
        return f"LlcByPart({len(self)} parts, λ̂ from {low.value:.3g} to {high.value:.3g}, {self.verdict})"


@takes_settings
def llc_by_part(
    land: Landscape | LanguageModel, kind: str = "head", *, progress: bool = True, **settings: Unpack[Sampling]
) -> LlcByPart:
    """λ̂ of every head of a transformer, or of every part of another kind: each alone moves, all else is held at w*.

    All parts are measured at one (nβ, γ), so that they can be compared. Where parts are small enough for Hamiltonian
    Monte Carlo on all data, each is sampled by it, one after another. Else, and with `sampler="lean"`, those of a layer
    that are alike walk side by side in one program: batches, losses at w*, tuning and all that the network computes
    before that layer are common, and γ is the finest that chains of all of them can reach. Of a `LanguageModel` parts
    are walked one after another, in place, each at the γ that it can reach.

    Args:
        land: the landscape of a transformer.
        kind: of the parts, as for `Landscape.parts`.
        progress: show a bar.
        settings: those of `posterior`; `budget` is for all parts.

    Examples:
        >>> import torch, basinscope as bs
        >>> torch.manual_seed(0)
        <torch._C.Generator object at ...>
        >>> net = bs.zoo.models.transformer(8, 6, layers=1, width=4, heads=2)
        >>> tokens = torch.randint(8, (50, 7))
        >>> land = bs.Landscape(net, "cross_entropy", (tokens[:, :-1], tokens[:, 1:]))
        >>> heads = bs.llc_by_part(land, budget=bs.Nominal(1), draws=32, gamma=50.0, progress=False)
        >>> list(heads), heads["layer 0 head 1"].diagnostics["dimension"]
        (['layer 0 head 0', 'layer 0 head 1'], 38)
    """
    if not isinstance(land, LanguageModel):
        check_landscape(land)
    parts = land.parts(kind)
    if not parts:
        kinds = sorted({each.kind for each in land.parts()})
        raise InputError(
            f"the network has no part of kind {kind!r}: it has {', '.join(kinds) or 'none that are known'}"
        )
    with tracked(f"llc of {len(parts)} parts", progress) as report:
        if isinstance(land, LanguageModel):
            return LlcByPart(parts, tuple(_one_by_one(land, parts, settings, report)))
        together = _side_by_side if _walks_lean(land, parts, settings) else _one_by_one
        return LlcByPart(parts, tuple(together(land, parts, settings, report)))


def _side_by_side(
    land: Landscape, parts: tuple[Part, ...], settings: Mapping[str, Any], report: Report
) -> Iterator[LearningCoefficient]:
    nbeta, gamma, chosen = checked(settings)
    at = Resolution(nbeta or watanabe_nbeta(land.n), gamma or _gamma(land, parts))
    walks = walked_side_by_side(land, parts, chosen, at, report)
    for each, walk in zip(parts, walks, strict=True):
        yield estimate_of(land.restrict(each.name), walk, chosen.rtol, gamma is not None)


def _one_by_one(
    land: Landscape | LanguageModel, parts: tuple[Part, ...], settings: Mapping[str, Any], report: Report
) -> Iterator[LearningCoefficient]:
    _, _, chosen = checked(settings)
    given = {"gamma": _gamma(land, parts), **settings, "budget": chosen.budget / len(parts)}
    for number, each in enumerate(parts):
        with part(report, number / len(parts), (number + 1) / len(parts)):
            yield llc(land.restrict(each.name), progress=False, **given)


def _walks_lean(land: Landscape, parts: tuple[Part, ...], settings: Mapping[str, Any]) -> bool:
    """Whether parts walk side by side: if asked for, or under `auto` where the engine would take minibatches."""
    _, _, chosen = checked(settings)
    if chosen.sampler != "auto":
        return chosen.sampler == "lean"
    largest = max(parts, key=lambda each: each.parameters)
    each = replace(chosen, budget=chosen.budget / len(parts))
    return Sampler(land.restrict(largest.name), each).plan().sampler != "hmc"


def _gamma(land: Landscape | LanguageModel, parts: tuple[Part, ...]) -> float:
    """d/‖w*‖² of all parts together."""
    together = cast(Landscape, land).restrict(*(each.name for each in parts))
    square = sum(float(value.detach().square().sum(dtype=torch.float64)) for value in together.parameters.values())
    return together.dimension / square if square > 0 else 1.0
