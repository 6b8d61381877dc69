"""In this process, one unit after another."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from ..units import Unit
from ..work import Outcome, work
from .base import Plan


class Inline:
    """Runs everything in the calling process: simplest to debug, and right for one GPU and large populations."""

    name = "this process"
    workers = 1

    def run(self, plan: Plan, units: Sequence[Unit]) -> Generator[list[Outcome]]:
        """Run units while `plan.more()`; yields the outcomes of each."""
        for unit in units:
            if not plan.more():
                return
            yield work(plan.study, unit, plan.store)
