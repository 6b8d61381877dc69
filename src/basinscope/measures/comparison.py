"""λ̂ of several networks at one resolution, and how it differs between them."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from ..errors import InputError
from ..estimates import Estimate
from ..frames import dataframe
from ..landscape import Landscape
from ..sampling.calibration import resolution
from ..verdict import Verdict, worst_of
from .llc import llc
from .settings import Sampling, checked, refuse_settings, takes_settings


@dataclass(frozen=True)
class Comparison:
    """Estimates of one quantity at one resolution, and what each of them has more than the first.

    Attributes:
        estimates: by the names of what was measured; the first is what the others are compared with.

    Examples:
        >>> comparison = Comparison({"sgd": Estimate("llc", 30.0, 0.4), "adam": Estimate("llc", 26.0, 0.3)})
        >>> print(comparison)
        sgd: llc = 30 ± 0.4 (ok)
        adam: llc = 26 ± 0.3 (ok)
        adam − sgd: -4 ± 0.5, 90 % interval -4.82 … -3.18 (ok): smaller
    """

    estimates: Mapping[str, Estimate]

    def __post_init__(self) -> None:
        if len(self.estimates) < 2:
            raise InputError(f"a comparison needs two estimates or more, got {list(self.estimates)}")
        _ = self.differences  # estimates of different resolutions are refused before anybody reads them

    @property
    def verdict(self) -> Verdict:
        """The worst of all estimates."""
        return worst_of(self.estimates.values())

    @property
    def differences(self) -> dict[str, Estimate]:
        """Each of the others less the first, by the others' names."""
        (_, reference), *others = self.estimates.items()
        return {name: estimate - reference for name, estimate in others}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A flat row for each estimate, with its difference from the first, and the resolution."""
        differences = self.differences
        return [
            {
                "name": name,
                **estimate.columns(),
                **(differences[name].columns("difference") if name in differences else {}),
                **{key: estimate.diagnostics[key] for key in ("nbeta", "gamma") if key in estimate.diagnostics},
            }
            for name, estimate in self.estimates.items()
        ]

    def to_dataframe(self) -> Any:
        """The rows as a pandas table; needs `basinscope[tables]`."""
        return dataframe(self.rows)

    def __str__(self) -> str:
        first = next(iter(self.estimates))
        lines = [f"{name}: {estimate}" for name, estimate in self.estimates.items()]
        for name, difference in self.differences.items():
            low, high = difference.interval(0.9)
            lines.append(
                f"{name} − {first}: {difference.value:.4g} ± {difference.stderr:.2g}, 90 % interval {low:.3g} … "
                f"{high:.3g} ({difference.verdict}): {relation(difference)}"
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def relation(difference: Estimate) -> str:
    """Whether a difference is more than chance: its 90 % interval leaves zero out.

    Examples:
        >>> relation(Estimate("llc difference", 1.0, 0.1)), relation(Estimate("llc difference", 0.1, 0.1))
        ('larger', 'not told apart')
    """
    low, high = difference.interval(0.9)
    return "larger" if low > 0 else "smaller" if high < 0 else "not told apart"


@takes_settings
def compare(
    *subjects: Landscape | Estimate,
    names: Sequence[str] | None = None,
    progress: bool = True,
    **settings: Unpack[Sampling],
) -> Comparison:
    """λ̂ of two or more networks at one resolution, with their differences from the first and the errors of these.

    λ̂ is a function of nβ and γ, whose defaults depend on the data and on the weights, so that two calls of `llc` need
    not measure the same thing. Here all landscapes are measured at the coarsest of their own resolutions: the smallest
    n/log n and the largest d/‖w*‖². Each gets random numbers of its own, so that the error of a difference is the root
    of the sum of both squares.

    Args:
        subjects: landscapes to be measured, or estimates that were measured at one resolution.
        names: of the subjects; the first, second and so on are called a, b, … unless given.
        progress: show bars.
        settings: of landscapes, those of `posterior`, as for `llc`: `nbeta` and `gamma` are the common resolution,
            `budget` is that of each, and `seed` that of the first; those of the others follow it.

    Examples:
        >>> import torch, basinscope as bs
        >>> x = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
        >>> net = torch.nn.Linear(3, 1, bias=False)
        >>> _ = torch.nn.init.ones_(net.weight)
        >>> whole = bs.Landscape(net, "mse", (x, x.sum(1, keepdim=True)))
        >>> fewer = bs.Landscape(net, "mse", (x * torch.tensor([1.0, 1.0, 0.0]), x[:, :2].sum(1, keepdim=True)))
        >>> comparison = bs.compare(whole, fewer, progress=False)
        >>> abs(comparison.differences["b"].value + 0.5) < 0.1  # one direction less counts
        True
    """
    if len(subjects) < 2:
        raise InputError(f"a comparison needs two landscapes or more, got {len(subjects)}")
    labels = [chr(ord("a") + place) for place in range(len(subjects))] if names is None else [*map(str, names)]
    if len(labels) != len(subjects) or len(set(labels)) != len(labels):
        raise InputError(f"names must be {len(subjects)} different texts, one for each subject, got {labels}")
    landscapes = [subject for subject in subjects if isinstance(subject, Landscape)]
    estimates = [subject for subject in subjects if isinstance(subject, Estimate)]
    if len(estimates) == len(subjects):
        refuse_settings(settings, "estimates that have their resolution")
    elif len(landscapes) == len(subjects):
        nbeta, gamma, chosen = checked(settings)
        resolutions = [resolution(land, nbeta, gamma) for land in landscapes]
        common: Sampling = {
            **settings,
            "nbeta": min(at.nbeta for at in resolutions),
            "gamma": max(at.gamma for at in resolutions),
        }
        seeded: list[Sampling] = [{**common, "seed": chosen.seed + place} for place in range(len(landscapes))]
        estimates = [llc(land, progress=progress, **one) for land, one in zip(landscapes, seeded, strict=True)]
    else:
        kinds = ", ".join(sorted({type(subject).__name__ for subject in subjects}))
        raise InputError(f"compare takes landscapes or estimates, not both or others, got {kinds} — take report['llc']")
    return Comparison(dict(zip(labels, estimates, strict=True)))
