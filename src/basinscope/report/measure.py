"""measure: everything that can be said of one landscape, as a report."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..landscape import Landscape
from ..measures.measurement import measurement
from ..runs.provenance import provenance
from .report import Point, Report


def measure(
    land: Landscape,
    *,
    nbeta: float | None = None,
    gamma: float | None = None,
    weight_decay: float | None = None,
    sampler: str = "auto",
    rtol: float = 0.02,
    budget: float = 60.0,
    seed: int = 0,
    title: str = "",
    progress: bool = True,
) -> Report:
    """Measure a network: λ̂ by sampling, ½ soft rank beside it, spectrum, traces and criteria.

    Args:
        land: the landscape.
        nbeta: inverse temperature nβ of λ̂; n/log n unless given.
        gamma: localisation γ; d/‖w*‖² unless given.
        weight_decay: Λ of the predicted gap and the log-determinant; γ/(nβ) unless given.
        sampler: as for `llc`.
        rtol: wanted standard error relative to λ̂.
        budget: most sampling, in seconds; curvature gets as much again, WAIC and LOO a quarter.
        seed: of all random numbers.
        title: of the report.
        progress: show bars.

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
    settings: dict[str, Any] = {
        "nbeta": nbeta,
        "gamma": gamma,
        "weight_decay": weight_decay,
        "sampler": sampler,
        "rtol": rtol,
        "budget": budget,
        "seed": seed,
    }
    result = measurement(land, **settings, progress=progress)
    return assembled([Point("w*", result)], settings, _call(settings), title or f"{result.subject.network} at w*")


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


def _call(settings: Mapping[str, Any]) -> str:
    defaults = {"sampler": "auto", "rtol": 0.02, "budget": 60.0}
    given = {name: value for name, value in settings.items() if value is not None and value != defaults.get(name)}
    return f"bs.measure(land, {', '.join(f'{name}={value!r}' for name, value in given.items())})"
