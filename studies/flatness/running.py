"""How a population is computed: trained as a whole, then measured a data set and size at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from basinscope.runs.scratch import Scratch, Unfinished
from basinscope.runs.study import Result

from .fitting import cross_validated, fitted
from .jobs import Network, batches, cost, training
from .measuring import measured


def run_population(jobs: Sequence[Network], scratch: Scratch) -> Iterator[Mapping[int, Result]]:
    """Hand out the results of the wanted jobs as they come, by their places; `Unfinished` when the time is up.

    Unfinished training and the weights are kept, and networks measured before are not measured again.
    """
    if jobs[0].part == "folds":
        rows = cross_validated(jobs, scratch.folder, scratch.seconds_left)
        yield {place: Result([row]) for place, row in enumerate(rows)}
        return
    fit = fitted(jobs, scratch.folder, scratch.seconds_left)
    speed = 1.0
    for places in batches(jobs, scratch.wanted):
        networks = [jobs[place] for place in places]
        expected = sum(cost(job) - training(job) for job in networks)
        if speed * expected > scratch.seconds_left:
            raise Unfinished
        started = time.monotonic()
        rows = measured(networks, fit, places)
        speed = (time.monotonic() - started) / max(1e-9, expected)
        yield {place: Result([row]) for place, row in zip(places, rows, strict=True)}
