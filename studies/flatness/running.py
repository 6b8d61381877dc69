"""How a unit is computed: trained as one population, then measured a data set and size at a time."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .fitting import cross_validated, fitted
from .measuring import measured
from .plan import Network, batches, cost, training

PHASES = ("train",)
Found = list[tuple[Network, list[Mapping[str, Any]]]]


def run_unit(
    jobs: Sequence[Network],
    wanted: Sequence[Network],
    folder: Path,
    seconds: float = math.inf,
    phase: str = "",
) -> Iterator[Found]:
    """Hand out the rows of the wanted jobs as they are found; fewer of them if `seconds` are too few.

    Args:
        jobs: all networks of the unit: the population does not depend on what is there already.
        wanted: those whose rows are missing.
        folder: for unfinished training, and for the weights.
        seconds: start nothing that would end later.
        phase: `train` to stop when the weights are there.
    """
    began = time.monotonic()
    if jobs[0].part == "folds":
        rows = cross_validated(jobs, folder, seconds)
        if rows is not None:
            yield [(job, [row]) for job, row in zip(jobs, rows, strict=True)]
        return
    fit = fitted(jobs, folder, seconds)
    if fit is None or phase == "train":
        return
    places = {job: number for number, job in enumerate(jobs)}
    speed = 1.0
    for own in batches(wanted):
        expected = sum(cost(job) - training(job) for job in own)
        started = time.monotonic()
        if started - began + speed * expected > seconds:
            return
        found = measured(own, fit, [places[job] for job in own])
        speed = (time.monotonic() - started) / max(1e-9, expected)
        yield [(job, [row]) for job, row in zip(own, found, strict=True)]
