"""Basin and λ̂ as functions of the resolution, from one ladder of chains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Unpack

import numpy as np

from ..checks import positive, whole
from ..errors import InputError
from ..landscape import Landscape, check_landscape
from ..progress import tracked
from ..sampling.calibration import Resolution, resolution
from ..sampling.local import Sampler
from ..verdict import Verdict, worst_of
from .coefficient import MAX_DROP_SHARE, LearningCoefficient
from .llc import estimate_of
from .settings import Sampling, checked_of_ladders, takes_settings

Over = Literal["nbeta", "gamma"]


@dataclass(frozen=True)
class ResolutionCurve:
    """λ̂, basin and drop of one point at several resolutions.

    Attributes:
        over: what varies, `nbeta` or `gamma`.
        points: λ̂ at each resolution, from the finest to the coarsest; with its basin and its drop.
        finest: the finest nβ at which w* is a minimum, or the smallest γ: between two points, where the drop is a tenth
            of λ̂. None where it is a minimum at none of them; the finest of all where it is one there.
    """

    over: Over
    points: tuple[LearningCoefficient, ...]
    finest: float | None

    @property
    def verdict(self) -> Verdict:
        """The worst of all points."""
        return worst_of(self.points)

    def to_dataframe(self) -> Any:
        """A row for each resolution: nβ, γ, λ̂, basin and drop with standard errors, verdict, and `at_minimum`."""
        import pandas as pd

        return pd.DataFrame([row(point) for point in self.points])

    def plot(self) -> Any:
        """Basin and λ̂ over the resolution, with 90 % intervals, and where w* begins to be a minimum (needs
        matplotlib)."""
        from .resolution_figure import over_resolution

        return over_resolution(self)

    def __str__(self) -> str:
        name = "nβ" if self.over == "nbeta" else "γ"
        if self.finest is None:
            return f"λ̂ at {len(self.points)} {name}: w* is no minimum at any of them ({self.verdict})"
        return f"λ̂ at {len(self.points)} {name}: w* is a minimum from {name} = {self.finest:.3g} on ({self.verdict})"


def row(point: LearningCoefficient) -> dict[str, Any]:
    """λ̂ at one resolution as columns of a table."""
    return {
        "nbeta": point.diagnostics["nbeta"], "gamma": point.diagnostics["gamma"],
        "llc": point.value, "llc_stderr": point.stderr,
        "basin": point.basin.value, "basin_stderr": point.basin.stderr,
        "drop": point.drop.value, "drop_stderr": point.drop.stderr,
        "at_minimum": point.at_minimum, "verdict": point.verdict,
    }  # fmt: skip


@takes_settings
def resolution_curve(
    land: Landscape,
    *,
    over: Over = "nbeta",
    decades: float = 4.0,
    count: int = 9,
    progress: bool = True,
    **settings: Unpack[Sampling],
) -> ResolutionCurve:
    """Basin and λ̂ as functions of nβ, or of γ, from one ladder of chains, and where w* begins to be a minimum.

    Chains start at the finest resolution and go on to coarser ones: curvature is measured and steps are tuned once.

    Args:
        land: the landscape.
        over: `nbeta`, from the given nβ downwards, or `gamma`, from the given γ upwards: both lead to coarser
            resolutions.
        decades: how far.
        count: resolutions, evenly spaced in the logarithm.
        progress: show a bar when it takes over a second.
        settings: those of `posterior`, with `hmc` or `minibatch` as `sampler`: `nbeta` and `gamma` are the finest
            resolution, `rtol` is that of every resolution, and `budget` that of all together.

    Examples:
        >>> import torch, basinscope as bs
        >>> x = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
        >>> net = torch.nn.Linear(3, 1, bias=False)
        >>> _ = torch.nn.init.ones_(net.weight)
        >>> land = bs.Landscape(net, "mse", (x, x.sum(1, keepdim=True) + 0.2 * x[:, :1]))
        >>> curve = bs.resolution_curve(land, gamma=1.0, count=3, budget=3)
        >>> [point.at_minimum for point in curve.points]
        ['no', 'yes', 'yes']
    """
    check_landscape(land)
    if over not in ("nbeta", "gamma"):
        raise InputError(f"over must be 'nbeta' or 'gamma', got {over!r}")
    nbeta, gamma, chosen = checked_of_ladders(settings)
    whole("count", count, least=2)
    at = resolution(land, nbeta, gamma)
    factors = np.geomspace(1.0, 10.0 ** positive("decades", decades), count).tolist()
    ladder = [
        Resolution(at.nbeta / factor, at.gamma) if over == "nbeta" else Resolution(at.nbeta, at.gamma * factor)
        for factor in factors
    ]
    local = Sampler(land, replace(chosen, budget=chosen.budget / count))
    with tracked("resolutions", progress) as report:
        points = [estimate_of(local, outcome) for outcome in local.ladder(ladder, report)]
    return ResolutionCurve(over, tuple(points), finest(over, points))


def finest(over: Over, points: Sequence[LearningCoefficient]) -> float | None:
    """Where w* begins to be a minimum on the way from fine to coarse resolutions.

    The drop is a tenth of λ̂ = basin − drop where it is an eleventh of the basin; between two points it is taken to be
    a power of the resolution.
    """
    places = [point.diagnostics[over] for point in points]
    answers = [point.at_minimum == "yes" for point in points]
    if not any(answers):
        return None
    first = answers.index(True)
    if first == 0:
        return float(places[0])
    around = points[first - 1 : first + 1]
    shares = [(1 + 1 / MAX_DROP_SHARE) * point.drop.value / point.basin.value for point in around]
    if not all(math.isfinite(share) and share > 0 for share in shares) or not shares[0] > 1 >= shares[1]:
        return float(places[first])  # a saddle that the localiser comes to outweigh, and no slope
    way = math.log(shares[0]) / math.log(shares[0] / shares[1])
    return float(places[first - 1] * (places[first] / places[first - 1]) ** way)
