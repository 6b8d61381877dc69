"""λ from how the mean loss rises with temperature."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import positive
from ..errors import InputError
from ..estimates import Check, Estimate
from ..landscape import Landscape
from ..progress import Report, tracked
from ..sampling.calibration import resolution
from ..sampling.convergence import max_drift
from ..sampling.local import SEEDS, Settings
from ..sampling.tempered import TEMPERED_SAMPLERS, TemperedMean, tempered_means
from .checks import Balance, Movement, check_drift, check_mixing, check_precision, check_survival, check_virial

Array = NDArray[np.float64]

_LADDER = (0.5, 0.875, 1.25, 1.625, 2.0)  # temperatures 1/β in units of log n
MAX_STDERR_OF_PRECISE = 0.02  # relative standard error of a mean that is known, whatever R̂ of few draws says
MAX_DIVERGENT_SHARE = 0.001  # of the draws of NUTS
MIN_R_SQUARED = 0.9  # of the lines: below it they are none


class TemperatureRegression(Estimate):
    """The slope λ̂ as an estimate, with the lines it comes from in `diagnostics`, and their picture."""

    def plot(self) -> Any:
        """E[nL_n] against 1/β: a line for every data set, and their common slope (needs matplotlib)."""
        from .temperature_figure import figure

        return figure(self)


@dataclass(frozen=True)
class FittedLine:
    """A straight line y = intercept + slope·x by generalized least squares.

    Attributes:
        intercept, slope: the line.
        stderr: of the slope, from the covariance of y alone.
        residuals: y less the line.
    """

    intercept: float
    slope: float
    stderr: float
    residuals: Array


def temperature_regression(
    lands: Landscape | Sequence[Landscape],
    *,
    betas: Sequence[float] | None = None,
    gamma: float | None = None,
    sampler: str = "auto",
    chains: int | None = None,
    draws: int | None = None,
    rtol: float = 0.02,
    budget: float = 60.0,
    seed: int = 0,
    progress: bool = True,
) -> TemperatureRegression:
    """λ̂ as the slope of E_β[nL_n] against the temperature 1/β (Watanabe 2013; Murfet et al. 2020).

    Over the posterior ∝ exp(−nβ L_n(w) − (γ/2)‖w − w*‖²) with β of the order of 1/log n,

        E_β[nL_n(w)] = nL_n(w₀) + λ/β + O_p(√(1/β)).

    For every data set the means at several β are fitted by a line, by generalized least squares with the covariance of
    the draws (chains at different β are independent, so it is diagonal). Slopes are averaged over data sets with
    weights 1/(s² + τ²), s being a slope's own standard error and τ the spread of the true ones (DerSimonian and Laird);
    the O_p term makes them differ. L_n(w*) drops out: w* need not be the minimum.

    Args:
        lands: landscapes of one model on several data sets, or a single one, whose answer then lacks the error that
            other data would show.
        betas: inverse temperatures β, at least two; with 1/β from ½ log n to 2 log n unless given.
        gamma: localisation γ around each landscape's own w*; d/‖w*‖² unless given.
        sampler: as for `llc`, or `nuts` (nutpie; chains start at w*).
        chains, draws: of every run; chosen unless given. For `nuts`, warm-up takes as many draws again.
        rtol: wanted relative standard error of every mean excess loss.
        budget: most work in seconds, for all runs together; NUTS knows no budget.
        seed: of all random numbers.
        progress: show a bar.

    Returns:
        An `Estimate` with `plot()`; `diagnostics` holds R², the slope, intercept and points of every data set with R̂,
        effective draws and divergences, and the spread τ.

    Examples:
        >>> import torch, basinscope as bs
        >>> x = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
        >>> net = torch.nn.Linear(3, 1, bias=False)
        >>> _ = torch.nn.init.ones_(net.weight)
        >>> land = bs.Landscape(net, "mse", (x, x.sum(1, keepdim=True)))
        >>> est = temperature_regression([land, land.subset(range(250))], budget=2)
        >>> abs(est.value - 1.5) < 0.15, est.diagnostics["r_squared"] > 0.99
        (True, True)
    """
    listed = [lands] if isinstance(lands, Landscape) else list(lands)
    if not listed or not all(isinstance(land, Landscape) for land in listed):
        raise InputError(
            f"lands must be a Landscape or several, got {lands!r} — make them with bs.Landscape(model, ...)"
        )
    if sampler not in TEMPERED_SAMPLERS:
        raise InputError(f"unknown sampler {sampler!r}: expected one of {', '.join(TEMPERED_SAMPLERS)}")
    by_nuts = sampler == "nuts"
    ladders = [_ladder(land, betas) for land in listed]
    total = sum(map(len, ladders))
    sets: list[list[TemperedMean]] = []
    gammas = [resolution(land, gamma=gamma).gamma for land in listed]
    with tracked("temperature regression", progress) as report:
        for number, (land, ladder) in enumerate(zip(listed, ladders, strict=True)):
            settings = Settings(
                "hmc" if by_nuts else sampler, chains, draws, rtol=rtol, budget=budget / total,
                seed=seed + SEEDS * sum(map(len, ladders[:number])),
            )  # fmt: skip
            step = partial(_step, report, number, len(listed))
            sets.append(tempered_means(land, ladder, gammas[number], settings, step, by_nuts=by_nuts))
    return regression_of(sets, [land.n for land in listed], gammas, rtol)


def _step(report: Report, number: int, sets: int, fraction: float, text: str) -> None:
    """Progress at one data set as that of all."""
    report((number + fraction) / sets, f"data set {number + 1} of {sets}, {text}")


def regression_of(
    sets: Sequence[Sequence[TemperedMean]], sizes: Sequence[int], gammas: Sequence[float], rtol: float = 0.02
) -> TemperatureRegression:
    """The regression with its checks, from the means of every data set."""
    points = [mean for means in sets for mean in means]
    if not all(math.isfinite(point.mean) and math.isfinite(point.stderr) for point in points):
        diverged = sum(not math.isfinite(point.mean) for point in points)
        reason = f"diverged: {diverged} of {len(points)} runs have no mean — raise gamma, draws or budget"
        listed = {"points": [asdict(point) for point in points]}
        return TemperatureRegression.failed("temperature_regression", reason, listed)
    lines = [_fitted(means) for means in sets]
    slopes, errors = np.array([line.slope for line in lines]), np.array([line.stderr for line in lines])
    value, stderr, spread = pooled(slopes, errors)
    explained = _explained(sets, value)
    weights = 1 / (errors**2 + spread**2)
    weights = weights / weights.sum()
    drifts = np.array([_fitted(means, [mean.drift for mean in means]).slope for means in sets])
    diagnostics = {
        "r_squared": explained,
        "data_sets": len(sets),
        "n": list(sizes),
        "gamma": list(gammas),
        "slopes": slopes.tolist(),
        "slope_stderrs": errors.tolist(),
        "intercepts": [line.intercept for line in lines],
        "spread": spread,
        "drift": abs(float(weights @ drifts)),
        "monte_carlo_stderr": float(np.linalg.norm(weights * errors)),
        "rtol": rtol,
        "rhat": max(point.rhat for point in points),
        "divergences": sum(point.divergences for point in points),
        "sampler": points[0].sampler,
        "points": [{"data_set": number, **asdict(point)} for number, means in enumerate(sets) for point in means],
    }
    freedom = len(sets) - 1 if len(sets) > 1 else math.inf
    checks = tuple(temperature_checks(value, stderr, points, diagnostics))
    return TemperatureRegression("temperature_regression", value, stderr, checks, diagnostics, freedom=freedom)


def line_fit(x: Sequence[float] | Array, y: Sequence[float] | Array, covariance: Array) -> FittedLine:
    """y = a + bx by generalized least squares: (a, b) = (XᵀC⁻¹X)⁻¹XᵀC⁻¹y with X = [1, x].

    Examples:
        >>> import numpy as np
        >>> fit = line_fit([0, 1, 2], [1, 3, 5], np.eye(3))
        >>> round(fit.intercept, 6), round(fit.slope, 6), round(fit.stderr, 6)
        (1.0, 2.0, 0.707107)
    """
    design = np.stack([np.ones(len(x)), np.asarray(x, float)], axis=1)
    values = np.asarray(y, float)
    if len(np.unique(design[:, 1])) < 2:
        raise InputError(f"a line needs at least two different temperatures, got {list(x)}")
    root = np.linalg.cholesky(covariance)
    whitened, target = np.linalg.solve(root, design), np.linalg.solve(root, values)
    normal = np.linalg.inv(whitened.T @ whitened)
    intercept, slope = normal @ whitened.T @ target
    residuals = values - design @ np.array([intercept, slope])
    return FittedLine(float(intercept), float(slope), float(np.sqrt(normal[1, 1])), residuals)


def pooled(values: Array, stderrs: Array) -> tuple[float, float, float]:
    """The mean of several estimates of one number, its standard error, and the spread τ beyond their own errors.

    DerSimonian and Laird's random effects: weights 1/(s² + τ²), with τ² from Cochran's Q. The standard error is that
    of Hartung and Knapp, from the weighted scatter about the mean; a single estimate keeps its own.

    Examples:
        >>> import numpy as np
        >>> mean, stderr, spread = pooled(np.array([1.0, 3.0]), np.array([0.1, 0.1]))
        >>> round(mean, 3), round(stderr, 3), round(spread, 3)
        (2.0, 1.0, 1.411)
    """
    if len(values) == 1:
        return float(values[0]), float(stderrs[0]), 0.0
    precisions = 1 / np.maximum(stderrs, 1e-300) ** 2
    centre = (precisions * values).sum() / precisions.sum()
    excess = (precisions * (values - centre) ** 2).sum() - (len(values) - 1)
    spread = max(0.0, float(excess / (precisions.sum() - (precisions**2).sum() / precisions.sum())))
    weights = 1 / (np.maximum(stderrs, 1e-300) ** 2 + spread)
    weights = weights / weights.sum()
    mean = float((weights * values).sum())
    scatter = float((weights * (values - mean) ** 2).sum() / (len(values) - 1))
    return mean, math.sqrt(max(scatter, 1 / float(precisions.sum()))), math.sqrt(spread)


def _ladder(land: Landscape, betas: Sequence[float] | None) -> list[float]:
    if betas is None:
        if land.n < 3:
            raise InputError(f"temperatures of the order of log n need at least 3 samples, got n={land.n} — pass betas")
        return [1 / (step * math.log(land.n)) for step in _LADDER]
    ladder = [positive(f"betas[{i}]", beta) for i, beta in enumerate(betas)]
    if len(set(ladder)) < 2:
        raise InputError(f"betas must hold at least two different values for a slope, got {list(betas)}")
    return ladder


def _fitted(means: Sequence[TemperedMean], values: Sequence[float] | None = None) -> FittedLine:
    """The line through the means of one data set, or through other values at their temperatures with their weights."""
    return line_fit(
        [1 / mean.beta for mean in means],
        [mean.mean for mean in means] if values is None else values,
        np.diag([max(mean.stderr, 1e-12 * (1 + abs(mean.mean))) ** 2 for mean in means]),
    )


def _explained(sets: Sequence[Sequence[TemperedMean]], slope: float) -> float:
    """R² of the common slope: the part of the variance within data sets that it explains."""
    residual = total = 0.0
    for means in sets:
        x, y = np.array([1 / mean.beta for mean in means]), np.array([mean.mean for mean in means])
        y = y - y.mean()
        total += float((y**2).sum())
        residual += float(((y - slope * (x - x.mean())) ** 2).sum())
    return 1 - residual / total if total > 0 else math.nan


def temperature_checks(
    value: float, stderr: float, points: Sequence[TemperedMean], diagnostics: Mapping[str, Any]
) -> Iterator[Check]:
    """Whether the means are known, rise along a line, and come from more than one data set."""
    apart = [point for point in points if not _mixing(point).passed]
    where = f"at worst, in {len(apart)} of {len(points)} runs"
    yield Check(
        "slope", f"{value:.4g}", "positive", value > 0, "lower gamma, or use more data sets", "failure",
        f"no slope: E[nL_n] does not rise with temperature (λ̂ = {value:.3g})",
    )  # fmt: skip
    yield Check(
        "data sets", f"{diagnostics['data_sets']}", "several", diagnostics["data_sets"] > 1, "pass several",
        reason="one data set: the error that other data would show is not in the standard error",
    )  # fmt: skip
    yield _mixing(max(apart or points, key=lambda point: point.rhat), where)
    if math.isfinite(diagnostics["drift"]):
        most = max_drift(diagnostics["monte_carlo_stderr"], value, diagnostics["rtol"])
        yield check_drift(Movement(diagnostics["drift"], most, abs(value)), "λ̂", "the last half", "raise budget")
    if all(math.isfinite(point.virial) for point in points):  # NUTS looks at none
        yield _worst_balance(points)
    yield _divergence(diagnostics["divergences"], points, diagnostics["sampler"])
    yield Check(
        "R² of the lines", f"{diagnostics['r_squared']:.2f}", f"at least {MIN_R_SQUARED:g}",
        not diagnostics["r_squared"] < MIN_R_SQUARED, "use more data sets, or temperatures closer together",
        reason=f"not a line: R² = {diagnostics['r_squared']:.2f}",
    )  # fmt: skip
    yield check_precision(stderr, abs(value), "λ̂", "use more data sets")


def _mixing(point: TemperedMean, where: str = "between chains") -> Check:
    """Whether the chains of one run agree; many short ones need not by R̂, if their mean is precise."""
    precise = point.stderr < MAX_STDERR_OF_PRECISE * abs(point.mean)
    when = f"where the mean is known to {MAX_STDERR_OF_PRECISE:.0%}"
    return check_mixing(point.rhat, "raise budget or draws", precise=precise, when=when, where=where)


def _worst_balance(points: Sequence[TemperedMean]) -> Check:
    """The virial ratio of the run that is furthest from equilibrium."""

    def check(point: TemperedMean) -> Check:
        return check_virial(
            Balance(point.virial, point.virial_stderr), where=f", at β = {point.beta:.2g}", above="raise budget"
        )

    return check(max(points, key=lambda point: (not check(point).passed, abs(point.virial - 1))))


def _divergence(count: int, points: Sequence[TemperedMean], sampler: str) -> Check:
    """Chains that diverged; of NUTS, transitions."""
    if sampler != "nuts":
        return check_survival(count, sum(point.chains for point in points), "raise gamma")
    draws = sum(point.chains * point.draws for point in points)
    return Check(
        "divergent transitions", f"{count} of {draws}", f"at most {MAX_DIVERGENT_SHARE:.2%}",
        count <= MAX_DIVERGENT_SHARE * draws, "sample with the engine too",
        reason=f"divergences: {count} of {draws} transitions of NUTS",
    )  # fmt: skip
