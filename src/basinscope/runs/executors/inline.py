"""The executor that runs in this process, one unit after another."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence

from ..units import Unit
from ..work import JobOutcome, work
from .base import RunPlan


class Inline:
    """Runs everything in the calling process: simplest to debug, and right for one GPU and large populations."""

    name = "this process"
    workers = 1

    def run(self, plan: RunPlan, units: Sequence[Unit]) -> Generator[list[JobOutcome]]:
        """Run units that end in time; yields the outcomes of each."""
        waiting = deque(units)
        while (unit := plan.next(waiting)) is not None:
            yield work(plan.study, unit, plan.store)
