"""Everything that is measured of one landscape, in one go."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
import torch

from ..checks import positive
from ..curvature.spectra import MAX_HESSIAN_DIMENSION, choose
from ..errors import BasinscopeError
from ..estimates import Estimate
from ..landscape import Landscape
from ..progress import Report, part, tracked
from ..samples import digest
from ..sampling.calibration import resolution
from ..sampling.clock import Schedule
from ..sampling.cost import cost
from .criteria import criteria
from .gap import gap
from .held_out import accuracy, landscape_on, measured_gap
from .llc import llc
from .log_det import log_det
from .measured import ChainTraces, LandscapeFacts, Measurement, SpectrumCurve
from .posterior import Posterior, landscape_of
from .remedies import followable
from .settings import Sampling, checked, takes_settings
from .soft_rank import Matrix, soft_rank
from .spectrum import Spectrum, spectrum
from .trace import trace
from .wbic import from_llc, is_watanabe

_PRODUCTS = 600  # matrix–vector products that the curvature of a large network takes
_PRODUCT = 2.5  # gradients that one of them costs
_FEWEST = 512  # samples on which curvature is measured at least
_SPREAD = 30.0  # of the γ over which the quadratic part is drawn, to either side
_CURVE = 31
_CRITERIA = ("waic", "loo", "tic", "aic", "bic", "fluctuation")
_SHARE = 0.25  # of the budget, for the draws behind WAIC and LOO, which are at β = 1 and mix slowly
_SAMPLING, _CURVED, _TRACED, _DRAWN = 0.5, 0.65, 0.7, 0.8  # of the progress bar, where each part ends
_POLE = 3.0  # times a negative eigenvalue: closer to it σ/(σ + Λ) is all about that one direction


@takes_settings
def measurement(
    land: Landscape | Posterior,
    *,
    weight_decay: float | None = None,
    held_out: Any = None,
    brief: bool = False,
    progress: bool = True,
    **settings: Unpack[Sampling],
) -> Measurement:
    """λ̂ by sampling, its quadratic part by curvature, and every other view of the same basin.

    A part that refuses the landscape becomes an estimate that failed, with the reason; only λ̂ itself, without which
    there is nothing to report, raises its error. Where the Hessian has negative eigenvalues beyond −γ/(nβ) its soft
    rank does not exist, and the Fisher matrix, which is the Hessian's positive part at a good fit, takes its place.

    Args:
        land: the landscape, or its `posterior`.
        weight_decay: Λ of the predicted gap and the log-determinant; γ/(nβ) unless given.
        held_out: data that the network was not trained on, or a landscape of them: the gap is measured there beside
            the predicted one, which then takes its ratio of mistakes from them.
        brief: λ̂, its quadratic part and the trace only: what is followed along many checkpoints.
        progress: show bars.
        settings: those of `posterior`, as for `llc`; curvature gets as much again as `budget`, and looks at part of the
            data where all of them would take longer; the draws behind WAIC and LOO get a quarter of it.

    Examples:
        >>> import torch, basinscope as bs
        >>> x = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
        >>> net = torch.nn.Linear(3, 1, bias=False)
        >>> _ = torch.nn.init.ones_(net.weight)
        >>> result = measurement(bs.Landscape(net, "mse", (x, x.sum(1, keepdim=True))), budget=5, brief=True)
        >>> abs(result.llc.value - result.quadratic.value) < 0.15  # the basin is quadratic
        True
    """
    if weight_decay is not None:
        positive("weight_decay", weight_decay)
    source, land = land, landscape_of(land)
    parts = _Parts()
    chosen = source.settings if isinstance(source, Posterior) else checked(settings)[2]
    budget, seed = chosen.budget, chosen.seed
    others: dict[str, Estimate] = {}
    with tracked("measuring", progress) as report:
        with part(report, 0.0, _SAMPLING):
            sampled = parts.timed("llc", lambda: llc(source, progress=progress, **settings))
        coefficient = followable("llc", sampled)
        diagnostics = coefficient.diagnostics
        decay = diagnostics["gamma"] / diagnostics["nbeta"] if weight_decay is None else weight_decay
        report(_SAMPLING, f"{_so_far(coefficient)}, curvature")
        view = _affordable(land, budget)
        half, curve = parts.timed("quadratic", lambda: _quadratic(view, diagnostics, seed))
        report(_CURVED, f"{_so_far(coefficient)}, trace")
        others["hessian_trace"] = parts.attempt(
            "hessian_trace", lambda: trace(view, rtol=0.02, per_layer=True, seed=seed, progress=False)
        )
        values = None if brief else _rest(
            source, view, coefficient, decay, budget, held_out, seed, parts, others, report
        )  # fmt: skip
    remarks = [
        (is_watanabe(land.n, diagnostics["nbeta"]), "nβ = n/log n, Watanabe's temperature"),
        (diagnostics["gamma"] == resolution(land).gamma, "γ = d/‖w*‖², a localiser as wide as the weights are large"),
        (
            weight_decay is None and not brief,
            f"Λ = γ/(nβ) = {decay:.3g} for the predicted gap and the log-determinant",
        ),
        (
            view.n < land.n,
            f"curvature on {view.n:,} of {land.n:,} samples, evenly chosen: all of them would outlast the budget",
        ),
        (
            half.diagnostics.get("matrix") == "fisher",
            "the Fisher matrix stands in for the Hessian, which has negative eigenvalues beyond −γ/(nβ)",
        ),
    ]
    notes = [text for applies, text in remarks if applies]
    others = {name: followable(name, estimate) for name, estimate in others.items()}
    half = followable("half_soft_rank", half)
    return Measurement(
        subject_of(land), coefficient, half, curve, others, ChainTraces.of(coefficient),
        None if values is None else SpectrumCurve.of(values), notes, parts.seconds,
    )  # fmt: skip


def _rest(
    source: Landscape | Posterior,
    view: Landscape,
    coefficient: Estimate,
    decay: float,
    budget: float | Schedule,
    held_out: Any,
    seed: int,
    parts: _Parts,
    others: dict[str, Estimate],
    report: Report,
) -> Spectrum | None:
    """Spectrum, log-determinant and criteria, into `others`."""
    report(_TRACED, f"{_so_far(coefficient)}, spectrum")
    land = landscape_of(source)
    values: list[Spectrum] = []

    def ends() -> Estimate:
        values.append(spectrum(view, seed=seed, progress=False))
        return _largest(values[0])

    others["largest_eigenvalue"] = parts.attempt("spectrum", ends)
    share = view.n / land.n  # the gap carries 1/n of the data it is taken on
    other = None if held_out is None else landscape_on(land, held_out)
    beside = None if other is None else _affordable(other, budget)
    for name, compute in (
        ("log_det", lambda: log_det(view, weight_decay=decay, seed=seed, progress=False)),
        ("wbic", lambda: from_llc(land, coefficient)),
        ("gap", lambda: _scaled(gap(view, weight_decay=decay, held_out=beside, seed=seed, progress=False), share)),
    ):
        others[name] = parts.attempt(name, compute)
    if other is not None:
        others["measured_gap"] = parts.attempt("measured_gap", lambda: measured_gap(land, other))
    report(_DRAWN, f"{_so_far(coefficient)}, draws for WAIC and LOO")
    sampler = coefficient.diagnostics["sampler"]
    settings: Sampling = {
        "gamma": coefficient.diagnostics["gamma"],
        "sampler": sampler if sampler in ("hmc", "minibatch") else "auto",
        "budget": _SHARE * budget,
        "seed": seed,
    }
    bayes: Landscape | Posterior = land
    if isinstance(source, Posterior) and math.isclose(source.nbeta, land.n):  # its draws are at β = 1
        bayes, settings = source, {}
    with part(report, _DRAWN, 1.0):
        others |= parts.attempts(_CRITERIA, lambda: criteria(bayes, only=_CRITERIA, **settings))
    return values[0] if values else None


def _so_far(coefficient: Estimate) -> str:
    return f"λ̂ {coefficient.value:.4g} ± {coefficient.stderr:.2g}"


class _Parts:
    """Times parts of the measurement, and turns the refusal of one into an estimate that failed."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def timed(self, name: str, compute: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        try:
            return compute()
        finally:
            self.seconds[name] = time.perf_counter() - started

    def attempts(self, names: Sequence[str], compute: Callable[[], Mapping[str, Estimate]]) -> dict[str, Estimate]:
        """Several estimates that come together, or fail together."""
        try:
            return dict(self.timed("criteria", compute))
        except BasinscopeError as error:
            return {name: Estimate.failed(name, error) for name in names}

    def attempt(self, name: str, compute: Callable[[], Estimate]) -> Estimate:
        try:
            estimate: Estimate = self.timed(name, compute)
            return estimate
        except BasinscopeError as error:
            return Estimate.failed(name, error)


def _affordable(land: Landscape, budget: float | Schedule) -> Landscape:
    """As much of the data as curvature can look at within the budget, evenly chosen."""
    seconds = budget.seconds if isinstance(budget, Schedule) else budget
    products = max(_PRODUCTS, land.dimension if land.dimension <= MAX_HESSIAN_DIMENSION else 0)
    most = seconds / (products * _PRODUCT * cost(land).each)
    if most >= land.n:
        return land
    count = min(land.n, max(_FEWEST, int(most)))
    return land.subset(torch.linspace(0, land.n - 1, count).long())


def _quadratic(
    land: Landscape, diagnostics: Mapping[str, Any], seed: int
) -> tuple[Estimate, list[tuple[float, float]]]:
    """½ soft rank at the measured γ, and over a range of γ."""
    nbeta, gamma = diagnostics["nbeta"], diagnostics["gamma"]
    gammas = sorted({gamma, *map(float, gamma * np.geomspace(1 / _SPREAD, _SPREAD, _CURVE))})
    place = gammas.index(gamma)
    reasons = []
    for matrix in ("hessian", "fisher"):
        # All eigenvalues are kept once computed, so that small γ can be tried one by one; Lanczos runs are not.
        starts = range(place + 1) if choose(land, matrix) != "lanczos" else (0, place)
        for levels in (gammas[start:] for start in starts):
            try:
                ranks = _ranks(land, matrix, [level / nbeta for level in levels], seed)
            except BasinscopeError as error:
                reasons.append(str(error))
                continue
            halves = [_scaled(rank, 0.5, "half_soft_rank") for rank in ranks]
            curve = [
                (level, half.value)
                for level, half in zip(levels, halves, strict=True)
                if level == gamma or level / nbeta > _POLE * -(half.diagnostics.get("smallest") or 0.0)
            ]
            return halves[levels.index(gamma)], curve
    return Estimate.failed("half_soft_rank", reasons[0]), []


def _ranks(land: Landscape, matrix: Matrix | str, levels: list[float], seed: int) -> list[Estimate]:
    return soft_rank(land, weight_decay=levels, matrix=matrix, seed=seed, progress=False)  # type: ignore[arg-type]


def _scaled(estimate: Estimate, factor: float, name: str = "") -> Estimate:
    return replace(
        estimate,
        name=name or estimate.name,
        value=factor * estimate.value,
        stderr=factor * estimate.stderr,
        bounds=None if estimate.bounds is None else (factor * estimate.bounds[0], factor * estimate.bounds[1]),
    )


def _largest(values: Spectrum) -> Estimate:
    return Estimate(
        "largest_eigenvalue",
        float(values.largest[0]),
        float(values.largest_residuals[0]),
        values.checks,
        {"smallest": float(values.smallest[0]) if len(values.smallest) else None, "products": values.products},
    )


def subject_of(land: Landscape, view: Landscape | None = None) -> LandscapeFacts:
    """What a landscape is: network, data and loss, with digests of weights and samples.

    Args:
        land: the landscape.
        view: part of it, on which loss and accuracy are taken where all of it would take long.
    """
    view = land if view is None else view
    return LandscapeFacts(
        network=type(land.module).__name__,
        parameters=land.dimension,
        layers=[[name, list(tensor.shape)] for name, tensor in land.parameters.items()],
        samples=land.n,
        loss=land.loss.name,
        loss_value=float(view.per_sample().mean()),
        dtype=str(land.dtype).removeprefix("torch."),
        device=str(land.device),
        weights_sha256=digest(land.parameters.values()),
        data_sha256=land.samples.digest(),
        accuracy=accuracy(view),
    )
