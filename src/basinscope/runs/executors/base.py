"""What all executors have in common."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ...errors import InputError
from ..store import Store
from ..study import Study
from ..units import Unit
from ..work import JobOutcome


@dataclass(frozen=True)
class RunPlan:
    """What is run, for whom, and until when.

    Attributes:
        study: the study.
        reference: how another process finds it; None when it cannot.
        store: where results go.
        seconds_left: for which units may still be started.
        expected: how many seconds a unit will take, by those that ended; 0 before any did.
    """

    study: Study
    reference: str | None
    store: Store
    seconds_left: Callable[[], float] = lambda: math.inf
    expected: Callable[[Unit], float] = lambda unit: 0.0

    def more(self) -> bool:
        """Whether units may still be started."""
        return self.seconds_left() > 0

    def next(self, waiting: deque[Unit]) -> Unit | None:
        """Take the first unit that would end in time, or that stops in time by itself; None where there is none."""
        seconds = self.seconds_left()
        for place, unit in enumerate(waiting if seconds > 0 else ()):
            if self.study.stops_in_time or self.expected(unit) <= seconds:
                del waiting[place]
                return replace(unit, until=time.time() + seconds)
        return None

    def shared(self) -> tuple[str, str]:
        """Reference and store for another process; InputError where it could not find them."""
        if self.reference is None:
            raise InputError(
                f"study {self.study.name!r} cannot be found by other processes — define it at the top level of a "
                f"module, or run it in this process"
            )
        if self.store.files.private:
            raise InputError(
                f"store {self.store.url!r} is not seen by other processes — use a folder or object storage, or run in "
                f"this process"
            )
        return self.reference, self.store.url


class Executor(Protocol):
    """Runs units in any order and reports each as it ends."""

    name: str

    @property
    def workers(self) -> int:
        """How many units run at once."""
        ...

    def run(self, plan: RunPlan, units: Sequence[Unit]) -> Generator[list[JobOutcome]]:
        """Run units that end in time; yields the outcomes of each as they come. Closing the iterator stops everything.

        A unit whose time ran out has no outcome for what is unfinished.
        """
        ...


def given_up(plan: RunPlan, unit: Unit, error: str, words: str = "") -> list[JobOutcome]:
    """The outcomes of a unit that is not tried again: why, in a line, and the last words of its worker."""
    for key, config in zip(unit.keys, unit.configs, strict=True):
        if key in unit.wanted:
            plan.store.fail(key, plan.study.name, config, error, f"{error}\n{words}".strip())
    return [JobOutcome(key, None, error) for key in unit.keys if key in unit.wanted]
