"""λ from how the volume below a loss shrinks with the loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..checks import positive, whole
from ..errors import InputError
from ..estimates import Check, Estimate
from ..landscape import Landscape, check_landscape
from ..progress import tracked
from ..sampling.calibration import resolution
from ..sampling.chains import ChainLosses
from ..sampling.volume import Volumes, multilevel_splitting
from .checks import check_precision

Array = NDArray[np.float64]

_DECADES = 8.0  # from the typical loss down, unless told otherwise
_FITTED = 0.4  # part of the ladder, from its lower end, that the law is fitted to
MIN_BETTER_FIT = 9.0  # χ² by which another multiplicity must fit better to be worth a warning
MAX_CHI_SQUARED = 3.0  # χ² a point, beyond which the volumes follow no power law yet
MAX_MISSED = 1.001  # lowest level reached, in units of the one asked for
_MOST_MULTIPLICITY = 3
_OFFSET = 2.0  # e-folds by which c is expected to differ from the logarithm of the typical loss


class VolumeScaling(Estimate):
    """The exponent λ̂ as an estimate, with the volumes it comes from in `diagnostics`, and their picture."""

    def plot(self) -> Any:
        """log V against log ε with its error bars, the fitted law, and the local exponent (needs matplotlib)."""
        from .volume_figure import figure

        return figure(self)


@dataclass(frozen=True)
class Law:
    """log V(ε) = const + λ log ε + (θ − 1) log(c − log ε), fitted."""

    multiplicity: int
    value: float
    stderr: float
    offset: float  # c; NaN for θ = 1
    chi_squared: float
    points: int


def volume_scaling(
    land: Landscape,
    *,
    gamma: float | None = None,
    smallest: float | None = None,
    multiplicity: int = 1,
    particles: int = 512,
    groups: int = 16,
    seed: int = 0,
    progress: bool = True,
) -> VolumeScaling:
    """λ̂ from V(ε) = P(L_n(w* + δ) − L_n(w*) < ε), δ ~ N(0, I/γ), which is ∝ ε^λ (log 1/ε)^(θ−1) for small ε.

    Volumes come from multilevel splitting, with independent groups of particles for the error bars, and the law is
    fitted to the lower part of the ladder of levels by weighted least squares on its steps, which are independent. It
    is a road to λ for few parameters that shares nothing with the sampling of posteriors: that of Saghir, Raghavendra,
    Liu and Gunter (2024, https://arxiv.org/abs/2409.04913, Eq. 14–16), with the logarithm that Eq. 16 leaves out.

    The law is about a loss whose minimum is w*, without noise at the scale of ε: a noisy data set makes every singular
    model regular below ε ≈ 1/n.

    Args:
        land: the landscape, at a minimum.
        gamma: precision of the Gaussian; d/‖w*‖² unless given.
        smallest: ε to go down to; 10⁻⁸ of the loss's median under the Gaussian unless given.
        multiplicity: θ of the law. It cannot be told safely from volumes, which bend as much when ε is not yet small;
            where another θ fits clearly better, a warning says so.
        particles, groups: particles of each group, and independent groups.
        seed: of all random numbers.
        progress: show a bar.

    Returns:
        An `Estimate` with `plot()`; `diagnostics` holds levels, log-volumes, their standard errors and the fits.

    Examples:
        >>> import torch, basinscope as bs
        >>> x = torch.eye(2).repeat(3, 1)
        >>> net = torch.nn.Linear(2, 1, bias=False)
        >>> _ = torch.nn.init.zeros_(net.weight)
        >>> est = volume_scaling(bs.Landscape(net, "mse", (x, torch.zeros(6, 1))), gamma=1.0)
        >>> abs(est.value - 1) < 10 * est.stderr  # of 16 groups: Student's t with 15 degrees of freedom
        True
    """
    check_landscape(land)
    for name, value, least in (("particles", particles, 32), ("groups", groups, 4), ("seed", seed, 0)):
        whole(name, value, least)
    whole("multiplicity", multiplicity, 1)
    width = resolution(land, nbeta=1.0, gamma=gamma).gamma
    losses = ChainLosses(land)
    lowest = math.inf

    def excess(rows: Any) -> Any:
        nonlocal lowest
        values = losses.excess(rows)
        lowest = min(lowest, float(values.min()))
        return values

    with tracked("volumes", progress) as report:
        bottom = _bottom(excess, land, width, seed) if smallest is None else positive("smallest", smallest)
        volumes = multilevel_splitting(
            excess, losses.dimension, width, smallest=bottom, particles=particles, groups=groups, seed=seed,
            dtype=land.dtype, device=land.device, report=report,
        )  # fmt: skip
    return _estimate(volumes, land, width, bottom, lowest, multiplicity)


def fit_law(volumes: Volumes, multiplicity: int, share: float = _FITTED) -> Law:
    """The law with a given θ on the lower `share` of the ladder in log ε, by least squares on its steps.

    Steps log V(ε_k) − log V(ε_{k−1}) come from different particles, so that their errors are nearly independent. The
    offset c is expected near the logarithm of the typical loss, give or take two: an unbounded one would make any law
    straight.
    """
    logs = np.log(volumes.levels)
    steps = volumes.log_ratios[:, 1:]
    means = np.log(np.exp(steps).mean(0))
    errors = np.maximum(volumes.step_stderr[1:], 1e-6)
    low = logs[:-1] <= logs[-1] + share * (logs[0] - logs[-1]) + 1e-12
    if low.sum() < 3:
        raise InputError(
            f"a law needs at least 3 steps of the ladder, got {int(low.sum())} — lower smallest, or raise particles"
        )
    upper, lower, y, s = logs[:-1][low], logs[1:][low], means[low], errors[low]
    if multiplicity == 1:
        x = lower - upper
        weight = (x**2 / s**2).sum()
        slope = float((x * y / s**2).sum() / weight)
        chi = float((((y - slope * x) / s) ** 2).sum())
        return Law(1, slope, float(weight**-0.5), math.nan, chi, len(y))
    from scipy.optimize import least_squares  # slow to load, and seldom needed

    def residuals(parameters: Array) -> Array:
        slope, offset = parameters[0], upper[0] + math.exp(parameters[1])  # c > log ε everywhere
        correction = (multiplicity - 1) * (np.log(offset - lower) - np.log(offset - upper))
        return np.append((y - slope * (lower - upper) - correction) / s, (offset - logs[0]) / _OFFSET)

    fits = [least_squares(residuals, [0.5, start]) for start in (-1.0, 1.0, 2.5)]
    best = min(fits, key=lambda fit: fit.cost)
    covariance = np.linalg.pinv(best.jac.T @ best.jac)
    return Law(
        multiplicity,
        float(best.x[0]),
        float(np.sqrt(covariance[0, 0])),
        float(upper[0] + math.exp(best.x[1])),
        float(2 * best.cost),
        len(y),
    )


def _bottom(excess: Any, land: Landscape, gamma: float, seed: int) -> float:
    generator = torch.Generator(land.device).manual_seed(seed)
    rows = torch.empty(512, land.dimension, dtype=land.dtype, device=land.device).normal_(generator=generator)
    median = float(excess(gamma**-0.5 * rows).median())
    if not median > 0:
        raise InputError(
            f"w* is no minimum: half of all displacements by N(0, I/γ) with γ = {gamma:.3g} lower the loss — train "
            f"longer, or raise gamma"
        )
    return median * 10**-_DECADES


def _estimate(
    volumes: Volumes, land: Landscape, gamma: float, bottom: float, lowest: float, multiplicity: int
) -> VolumeScaling:
    if lowest < -bottom:
        reason = (
            f"not at a minimum: displacements lower the loss by up to {-lowest:.3g}, so V(ε) does not vanish with ε — "
            f"train longer, or raise smallest"
        )
        return VolumeScaling.failed("volume_scaling", reason, {"gamma": gamma})
    most = max(multiplicity, min(_MOST_MULTIPLICITY, land.dimension))
    fits = {theta: fit_law(volumes, theta) for theta in range(1, most + 1)}
    law = fits[multiplicity]
    spread = max(1.0, law.chi_squared / max(1, law.points - (1 if law.multiplicity == 1 else 2)))
    stderr = law.stderr * math.sqrt(spread)
    details = {
        "multiplicity": law.multiplicity,
        "offset": law.offset,
        "gamma": gamma,
        "levels": volumes.levels.tolist(),
        "log_volume": volumes.log_volume.tolist(),
        "log_volume_stderr": volumes.stderr.tolist(),
        "step_stderr": volumes.step_stderr.tolist(),
        "fits": {theta: (other.value, other.stderr, other.chi_squared) for theta, other in fits.items()},
        "fitted_points": law.points,
        "evaluations": volumes.evaluations,
        "dimension": land.dimension,
    }
    better = min(fits.values(), key=lambda other: other.chi_squared)
    checks = volume_checks(law, better, stderr, spread, float(volumes.levels[-1]), bottom)
    return VolumeScaling("volume_scaling", law.value, stderr, checks, details)


def volume_checks(
    law: Law, better: Law, stderr: float, spread: float, reached: float, bottom: float
) -> tuple[Check, ...]:
    """Whether the volumes go down far enough and follow the law there.

    Args:
        law: the fitted one.
        better: that of the multiplicity that fits best.
        stderr: of the exponent.
        spread: χ² a point.
        reached, bottom: the lowest level ε, and the one asked for.
    """
    gain = law.chi_squared - better.chi_squared
    return (
        Check(
            "lowest level ε", f"{reached / bottom:.4g} of the one asked for", f"at most {MAX_MISSED:g}",
            reached <= MAX_MISSED * bottom, "raise particles",
            reason=f"stopped: the lowest level is ε = {reached:.2g} instead of {bottom:.2g}",
        ),
        Check(
            "χ² gained by another θ", f"{gain:.2g}", f"at most {MIN_BETTER_FIT:g}", gain <= MIN_BETTER_FIT,
            "pass multiplicity if it is known, or lower smallest to see whether the law straightens",
            reason=f"bent: θ = {better.multiplicity} with λ̂ = {better.value:.3g} fits better than "
            f"θ = {law.multiplicity}",
        ),
        Check(
            "χ² a point", f"{spread:.1f}", f"at most {MAX_CHI_SQUARED:g}", spread <= MAX_CHI_SQUARED, "lower smallest",
            reason=f"not a power law yet: χ² per point is {spread:.1f}",
        ),
        check_precision(stderr, abs(law.value), "λ̂", "raise particles"),
    )  # fmt: skip
