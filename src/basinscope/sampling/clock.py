"""The time a sampler has: read off a clock, counted in arithmetic, or given again as it once was.

Whatever a sampler decides by time it asks of one clock, once per block of steps. A clock of the wall writes down what
it answered, and the same answers given again lead to the same decisions, and so to the same bits.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from ..checks import positive
from ..errors import InputError

_DIGITS = 6  # of an answer


class Nominal(float):
    """A budget in nominal seconds, counted in arithmetic: the same seed gives the same bits whatever the machine does.

    Examples:
        >>> Nominal(60) / 4
        Nominal(15.0)
    """

    def __repr__(self) -> str:
        return f"Nominal({float(self)!r})"

    def __mul__(self, factor: float) -> Nominal:
        return Nominal(float(self) * factor)

    __rmul__ = __mul__

    def __truediv__(self, parts: float) -> Nominal:
        return Nominal(float(self) / parts)


@dataclass(frozen=True)
class Schedule:
    """What the clock of one run answered; as a budget, it repeats that run bit for bit.

    Attributes:
        seconds: the budget.
        answers: of the clock, in their order.

    Examples:
        >>> Schedule(60.0, ()) / 2
        Schedule(seconds=60.0, answers=())
        >>> Schedule.from_dict(Schedule(60.0, (0.1, 0.5)).to_dict())
        Schedule(seconds=60.0, answers=(0.1, 0.5))
    """

    seconds: float
    answers: tuple[float, ...]

    def __truediv__(self, parts: float) -> Schedule:
        """Itself: a part of a job is given back as what that part took."""
        return self

    __mul__ = __rmul__ = __truediv__

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self) | {"answers": list(self.answers)}

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Schedule:
        """From what `to_dict` gave."""
        return Schedule(positive("seconds", data["seconds"]), tuple(float(answer) for answer in data["answers"]))


class Clock(ABC):
    """The seconds of one job, which pass only within `running`.

    Attributes:
        seconds: that there are.
    """

    schedule: Schedule | None = None  # all answers so far, if they were measured

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    @contextmanager
    def running(self) -> Iterator[None]:
        """Within it, time passes."""
        yield

    def left(self) -> float:
        """Seconds until the budget is spent; below zero once it is."""
        return self.seconds - self.spent()

    def renew(self, seconds: float) -> None:
        """So many seconds from here on, for another job of the same sampler."""
        self.seconds = self.spent() + seconds

    @abstractmethod
    def spent(self) -> float:
        """Seconds so far."""

    @abstractmethod
    def spend(self, nominal: float) -> None:
        """Take note of work worth so many nominal seconds; a clock that measures them needs no telling."""

    @abstractmethod
    def price(self, work: Callable[[], Any], nominal: Callable[[], float]) -> float:
        """Seconds that `work` takes; `nominal` says how many by its arithmetic."""


class WallClock(Clock):
    """Seconds of this machine, every answer written down.

    Args:
        seconds: that there are.
        now: the time.
    """

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(seconds)
        self._total = seconds
        self._now = now
        self._past = 0.0
        self._since: float | None = None  # when it was started, if it runs
        self._answers: list[float] = []

    @property
    def schedule(self) -> Schedule:  # type: ignore[override]
        return Schedule(self._total, tuple(self._answers))

    @contextmanager
    def running(self) -> Iterator[None]:
        if self._since is not None:
            yield
            return
        self._since = self._now()
        try:
            yield
        finally:
            self._past += self._now() - self._since
            self._since = None

    def spent(self) -> float:
        return self._written(self._past + (0.0 if self._since is None else self._now() - self._since))

    def spend(self, nominal: float) -> None:
        pass

    def price(self, work: Callable[[], Any], nominal: Callable[[], float]) -> float:
        started = self._now()
        work()
        return self._written(self._now() - started)

    def _written(self, seconds: float) -> float:
        """The answer as the schedule holds it, which is the one to go by."""
        self._answers.append(float(f"{seconds:.{_DIGITS}g}"))
        return self._answers[-1]


class NominalClock(Clock):
    """Seconds that the arithmetic done so far is worth."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self._counted = 0.0

    def spent(self) -> float:
        return self._counted

    def spend(self, nominal: float) -> None:
        self._counted += nominal

    def price(self, work: Callable[[], Any], nominal: Callable[[], float]) -> float:
        return nominal()


class ReplayClock(Clock):
    """The answers of a schedule once more. After the last of them, nothing is left."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule.seconds)
        self.schedule = schedule
        self._remaining = iter(schedule.answers)

    def spent(self) -> float:
        return next(self._remaining, self.seconds)

    def spend(self, nominal: float) -> None:
        pass

    def price(self, work: Callable[[], Any], nominal: Callable[[], float]) -> float:
        work()  # which may leave something behind, as a first product does
        answer = next(self._remaining, None)
        if answer is None:
            raise InputError("the schedule ends before the run begins: it is of another landscape or other settings")
        return answer


def default_clock(seconds: float) -> Clock:
    """The clock of a budget that is a plain number: the wall's."""
    return WallClock(seconds)


def clock_of(budget: float | Schedule) -> Clock:
    """The clock that a budget asks for.

    Examples:
        >>> clock_of(Nominal(2.0)).left()
        2.0
    """
    if isinstance(budget, Schedule):
        return ReplayClock(budget)
    return NominalClock(float(budget)) if isinstance(budget, Nominal) else default_clock(budget)


def checked_budget(budget: float | Schedule) -> float | Schedule:
    """`budget`, if it is a positive number of seconds or a schedule."""
    if isinstance(budget, Schedule):
        return budget
    seconds = positive("budget", budget)
    return Nominal(seconds) if isinstance(budget, Nominal) else seconds
