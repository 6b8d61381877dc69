"""measure: everything that can be said of one landscape, as a report."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Unpack

from ..errors import InputError
from ..landscape import Landscape
from ..language.model import LanguageModel
from ..measures.language_measurement import language_measurement
from ..measures.measurement import measurement
from ..measures.posterior import Posterior
from ..measures.quick import SECONDS, quick_measurement
from ..measures.settings import DEFAULTS, Sampling, takes_settings
from ..runs.provenance import provenance
from .report import Point, Report

_LISTED = ("nbeta", "gamma", "sampler", "rtol", "budget", "seed")  # settings that a report always shows


@takes_settings
def measure(
    land: Landscape | LanguageModel | Posterior,
    *,
    weight_decay: float | None = None,
    held_out: Any = None,
    title: str = "",
    progress: bool = True,
    **settings: Unpack[Sampling],
) -> Report:
    """Measure a network: λ̂ by sampling, ½ soft rank beside it, spectrum, traces and criteria.

    Args:
        land: the landscape, or its `posterior`; of a `LanguageModel`, λ̂ of it and of its heads, and curvature where
            that is done within the budget.
        weight_decay: Λ of the predicted gap and the log-determinant; γ/(nβ) unless given.
        held_out: data that the network was not trained on, as (x, y), a data set or batches, or a `Landscape` of
            them; the gap between both losses is then measured beside the predicted one.
        title: of the report.
        progress: show bars.
        settings: those of `posterior`, as for `llc`; curvature gets as much again as `budget`, WAIC and LOO a quarter.

    Returns:
        A `Report`: shown as a table where it stands last in a notebook's cell, `report["llc"]` is the estimate,
        `report.to_html("report.html")` the page to send.

    Examples:
        >>> import torch, basinscope as bs
        >>> x = torch.randn(300, 2, generator=torch.Generator().manual_seed(0))
        >>> net = torch.nn.Linear(2, 1, bias=False)
        >>> _ = torch.nn.init.ones_(net.weight)
        >>> land = bs.Landscape(net, "mse", (x, x.sum(1, keepdim=True)))
        >>> report = bs.measure(land, budget=5, progress=False)
        >>> abs(report["llc"].value - 1.0) < 0.1
        True
    """
    if isinstance(land, LanguageModel):
        if weight_decay is not None or held_out is not None:
            raise InputError(
                "weight_decay and held_out need a copy of the network: leave them out for a language model"
            )
        result = language_measurement(land, progress=progress, **settings)
    else:
        result = measurement(land, weight_decay=weight_decay, held_out=held_out, progress=progress, **settings)
    asked: dict[str, Any] = {**DEFAULTS, **settings}
    if isinstance(land, Posterior):
        asked = {"nbeta": land.nbeta, "gamma": land.gamma, **asdict(land.settings)}
    listed = {name: value for name, value in asked.items() if name in _LISTED or value != DEFAULTS[name]}
    others = [] if weight_decay is None else [f"weight_decay={weight_decay!r}"]
    others += [] if held_out is None else ["held_out=…"]
    command = _call(listed, others, isinstance(land, Posterior))
    stated = {**listed, "weight_decay": weight_decay}
    return assembled([Point("w*", result)], stated, command, title or f"{result.subject.network} at w*")


def quick(
    land: Landscape,
    *,
    nbeta: float | None = None,
    gamma: float | None = None,
    budget: float = SECONDS,
    seed: int = 0,
    title: str = "",
    progress: bool = True,
) -> Report:
    """λ̂ of a network within ten seconds, whatever its size, with an honest verdict.

    Chains get as many samples as the time allows. Where even the least useful run of the engine takes longer, two
    plain SGLD chains run instead, and where these take longer too, λ̂ has failed and the report says what it would
    cost. What was given up is a check that has not passed; `measure` gives up nothing.

    Args:
        land: the landscape.
        nbeta: inverse temperature nβ; n/log n of all data unless given.
        gamma: localisation γ; d/‖w*‖² unless given.
        budget: seconds of sampling.
        seed: of all random numbers.
        title: of the report.
        progress: show a bar.

    Examples:
        >>> import torch, basinscope as bs
        >>> x = torch.randn(300, 2, generator=torch.Generator().manual_seed(0))
        >>> net = torch.nn.Linear(2, 1, bias=False)
        >>> _ = torch.nn.init.ones_(net.weight)
        >>> report = bs.quick(bs.Landscape(net, "mse", (x, x.sum(1, keepdim=True))), progress=False)
        >>> abs(report["llc"].value - 1.0) < 0.2
        True
    """
    result = quick_measurement(land, seconds=budget, nbeta=nbeta, gamma=gamma, seed=seed, progress=progress)
    settings = {"nbeta": nbeta, "gamma": gamma, "budget": budget, "seed": seed}
    given = "".join(f", {name}={value!r}" for name, value in settings.items() if value not in (None, SECONDS))
    return assembled(
        [Point("w*", result)], settings, f"bs.quick(land{given})", title or f"{result.subject.network} at w*"
    )


def assembled(
    points: Sequence[Point],
    settings: Mapping[str, Any],
    command: str,
    title: str,
    history: Sequence[Mapping[str, Any]] = (),
) -> Report:
    """A report of measured checkpoints, in their order."""
    origin = {name: value for name, value in provenance().items() if name not in ("host", "process")}
    return Report(title, time.time(), command, dict(settings), origin, list(points), list(history))


def _call(settings: Mapping[str, Any], others: Sequence[str], of_posterior: bool) -> str:
    """The call that makes the report: of a landscape with all settings, or of a posterior that has them."""
    shown = {name: value for name, value in settings.items() if name == "seed" or value != DEFAULTS[name]}
    given = ", ".join(["land", *(f"{name}={value!r}" for name, value in shown.items())])
    return f"bs.measure({', '.join([f'bs.posterior({given})' if of_posterior else given, *others])})"
