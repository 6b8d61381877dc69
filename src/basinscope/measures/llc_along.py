"""λ̂ along a training: one resolution, one seed and one noise, so that differences have small errors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from ..checks import positive
from ..errors import InputError
from ..estimates import Estimate
from ..losses import PerSample
from ..progress import Report, tracked
from ..sampling.calibration import Resolution, resolution
from ..sampling.local import Outcome, Sampler
from ..verdict import Verdict, worst_of
from .checkpoint_series import Points, series_of
from .coefficient import MAX_DROP_SHARE, LearningCoefficient
from .llc import estimate_of
from .resolution_curve import row
from .settings import Sampling, checked_of_ladders, takes_settings

_FEWEST_CHAINS = 5  # whose means tell how two runs go together


@dataclass(frozen=True)
class LlcAlong:
    """λ̂ of the checkpoints of a training, read twice.

    Attributes:
        names: of the checkpoints.
        fine: λ̂ at n/log n, or the nβ that was given: its `basin` says what the weights are about to become.
        common: λ̂ at the finest nβ at which every checkpoint is a minimum: what the weights are now. Empty where there
            is no such nβ, or where it was not wanted.
        chain_means: the mean of nβ(L − L(w*)) of every chain by reading and checkpoint, for their correlations.
    """

    names: tuple[str, ...]
    fine: tuple[LearningCoefficient, ...]
    common: tuple[LearningCoefficient, ...]
    chain_means: Mapping[str, Sequence[NDArray[np.float64]]]

    @property
    def verdict(self) -> Verdict:
        """The worst of all readings."""
        return worst_of((*self.fine, *self.common))

    def to_dataframe(self) -> Any:
        """A row for each checkpoint and reading: nβ, γ, λ̂, basin and drop with errors, verdict and `at_minimum`."""
        import pandas as pd

        return pd.DataFrame(
            [
                {"checkpoint": name, "reading": reading, **row(point)}
                for reading, points in (("fine", self.fine), ("common", self.common))
                for name, point in zip(self.names, points, strict=False)
            ]
        )

    def differences(self, reading: str = "fine") -> list[Estimate]:
        """What every checkpoint has more than the one before: of `basin` for the reading `fine`, of λ̂ for `common`.

        Chains with the same noise go up and down together. With the correlation ρ of their means, a standard error
        below that which chance makes of it, the difference has the variance s² + s'² − 2ρss'.
        """
        if reading not in ("fine", "common"):
            raise InputError(f"reading must be 'fine' or 'common', got {reading!r}")
        points = [point.basin for point in self.fine] if reading == "fine" else list(self.common)
        means = self.chain_means[reading]
        return [
            _difference(points[place], points[place + 1], _correlation(means[place], means[place + 1]))
            for place in range(len(points) - 1)
        ]

    def plot(self) -> Any:
        """Both readings over the checkpoints, with 90 % intervals (needs matplotlib)."""
        from .resolution_figure import along_training

        return along_training(self)

    def __str__(self) -> str:
        if not self.common:
            return f"λ̂ along {len(self.names)} checkpoints ({self.verdict}), at no nβ are all of them minima"
        (sharp, blunt), (first, last) = (self.fine[0], self.common[0]), (self.fine[-1], self.common[-1])
        return (
            f"λ̂ along {len(self.names)} checkpoints ({self.verdict}): basin from {sharp.basin.value:.4g} to "
            f"{first.basin.value:.4g} at nβ = {sharp.diagnostics['nbeta']:.4g}; λ̂ from {blunt.value:.4g} to "
            f"{last.value:.4g} at nβ = {blunt.diagnostics['nbeta']:.3g}"
        )


@takes_settings
def llc_along(
    checkpoints: Points,
    *,
    model: nn.Module | None = None,
    loss: str | PerSample = "cross_entropy",
    data: Any = None,
    common: float | bool = True,
    progress: bool = True,
    **settings: Unpack[Sampling],
) -> LlcAlong:
    """λ̂ of the checkpoints of one training, at one resolution, with one seed, each from its neighbour's chains.

    A network in training is no minimum at n/log n. So it is read twice: the basin there is what it is about to become,
    and λ̂ at the finest nβ at which the drop is under a tenth of λ̂ at every checkpoint, by the gradient and the
    curvature there, is what it is now. The curvature of all checkpoints is held at once: for large networks 64 vectors
    each.

    Args:
        checkpoints: landscapes on the same data, in order, or a mapping of names to these; or a folder of weights,
            which needs the next three; or a folder of saved Hugging Face models, which needs `data` alone.
        model: the network that the weights of a folder are for.
        loss, data: as for `Landscape`.
        common: nβ of the common reading; chosen unless given, and left out if False.
        progress: show a bar when it takes over a second.
        settings: those of `posterior`, with `hmc` or `minibatch` as `sampler`: `nbeta` is that of the fine reading,
            `gamma` that of both (d/‖w*‖² of the last checkpoint unless given), `rtol` and `budget` those of each one.

    Examples:
        >>> import torch, basinscope as bs
        >>> x = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
        >>> y, lands = x.sum(1, keepdim=True), []
        >>> for weight in (0.8, 0.9, 1.0):
        ...     net = torch.nn.Linear(3, 1, bias=False)
        ...     _ = torch.nn.init.constant_(net.weight, weight)
        ...     lands.append(bs.Landscape(net, "mse", (x, y)))
        >>> run = bs.llc_along(lands, gamma=1.0, budget=0.5)
        >>> [point.at_minimum for point in run.fine], [point.at_minimum for point in run.common]
        (['no', 'no', 'yes'], ['yes', 'yes', 'yes'])
    """
    nbeta, gamma, chosen = checked_of_ladders(settings)
    series = series_of(checkpoints, model=model, loss=loss, data=data)
    lands = dict(zip(series.names, series, strict=True))
    last = list(lands.values())[-1]
    sharp = Resolution(resolution(last, nbeta).nbeta, resolution(last, gamma=gamma).gamma)
    samplers = [Sampler(land, chosen) for land in lands.values()]
    with tracked("along training", progress) as report:
        fine = _readings(samplers, sharp, 0, report)
        coarse = _common(samplers, sharp) if common is True else common or None
        blunt: list[tuple[LearningCoefficient, NDArray[np.float64]]] = []
        if coarse is not None:
            where = Resolution(positive("common", coarse), sharp.gamma)
            blunt = _readings(samplers, where, 1, report)
    return LlcAlong(
        tuple(lands), tuple(point for point, _ in fine), tuple(point for point, _ in blunt),
        {"fine": [means for _, means in fine], "common": [means for _, means in blunt]},
    )  # fmt: skip


def _common(samplers: Sequence[Sampler], sharp: Resolution) -> float | None:
    """The finest nβ at which every checkpoint is a minimum, by the gradient and the curvature there."""
    each = [measured.quadratic.finest(sharp, MAX_DROP_SHARE) for measured in samplers]
    return None if None in each else min(nbeta for nbeta in each if nbeta is not None)


def _readings(
    samplers: Sequence[Sampler], at: Resolution, number: int, report: Report
) -> list[tuple[LearningCoefficient, NDArray[np.float64]]]:
    """λ̂ of every checkpoint with the means of its chains, each from the chains of the one before."""
    readings = []
    before: Outcome | None = None
    for place, measured in enumerate(samplers):
        report((number + place / len(samplers)) / 2, f"nβ = {at.nbeta:.4g}, {place + 1} of {len(samplers)}")
        if before is not None:
            start = moved(before, samplers[place - 1].losses.origin - measured.losses.origin)
            outcome = measured.run(at, lambda share, text: None, start, number)
        else:
            outcome = measured.run(at, lambda share, text: None, number=number)
        readings.append((estimate_of(measured, outcome), _chain_means(outcome)))
        before = outcome if math.isfinite(outcome.excess) else None
    return readings


def moved(outcome: Outcome, shift: Tensor) -> Outcome:
    """The same chains seen from another w*: their displacements w − w* are longer by `shift`."""
    runs = []
    for run in outcome.runs:
        step = run.target.whitening.inverse()(shift[None])
        runs.append(replace(run, position=run.position + step))
    return replace(outcome, runs=runs)


def _chain_means(outcome: Outcome) -> NDArray[np.float64]:
    """The mean of nβ(L − L(w*)) of each chain, without burn-in; not a number where it died."""
    run = outcome.main
    parts = [run.trace.values(name, discard=run.discard) for name in ("excess", "tilt")]
    means = outcome.at.nbeta * (parts[0] + parts[1]).mean(1)
    return np.asarray(np.where(run.alive, means, np.nan))


def _correlation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """The correlation of the means of chains with the same noise, a standard error below what is seen; at least 0."""
    both = np.isfinite(one) & np.isfinite(other) if len(one) == len(other) else np.zeros(0, bool)
    count = int(both.sum())
    if count < _FEWEST_CHAINS or one[both].std() == 0 or other[both].std() == 0:
        return 0.0
    observed = min(float(np.corrcoef(one[both], other[both])[0, 1]), 1 - 1e-12)
    return max(0.0, math.tanh(math.atanh(observed) - 1 / math.sqrt(count - 3)))


def _difference(before: Estimate, after: Estimate, correlation: float) -> Estimate:
    square = before.stderr**2 + after.stderr**2 - 2 * correlation * before.stderr * after.stderr
    checks = (*before.checks, *after.checks)
    return Estimate(
        f"{after.name}_difference", after.value - before.value, math.sqrt(square), checks,
        {"correlation": correlation}, min(before.freedom, after.freedom),
    )  # fmt: skip
