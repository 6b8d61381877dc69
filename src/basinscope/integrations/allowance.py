"""How much time a training allows for being measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from ..checks import positive
from ..training.hooks import Measure

_LEAST = 1.0  # seconds that a measurement with a budget is worth beginning with


class Allowance:
    """Keeps the time spent on measuring at a share of the time trained.

    Args:
        share: most of the one relative to the other; without limit unless given.
        clock: seconds.

    Examples:
        >>> import basinscope as bs
        >>> moment = iter([0.0, 100.0, 100.0, 104.0, 110.0])
        >>> allowance = Allowance(0.1, lambda: next(moment))
        >>> allowance.begin()
        >>> allowance.afforded(Measure(bs.llc, options={"budget": 60})).options["budget"]
        10.0
        >>> with allowance.measuring("llc"):
        ...     pass
        >>> str(allowance)
        'measuring took 4 s, 3.8 % of 106 s of training'
    """

    def __init__(self, share: float | None, clock: Callable[[], float]) -> None:
        self.share = None if share is None else positive("share", share)
        self.spent = 0.0
        self._clock = clock
        self._begun: float | None = None
        self._costs: dict[str, float] = {}

    def begin(self) -> None:
        """Start to count the time trained, unless that was done."""
        if self._begun is None:
            self._begun = self._clock()

    def afforded(self, measure: Measure) -> Measure | None:
        """The measurement with no larger a budget than there is time; None where it has to wait.

        One without a budget is made at once the first time, and then waits until there is as much time as it took last.
        """
        if self.share is None:
            return measure
        left = self.share * self._trained() - self.spent
        parameter = measure.parameters.get("budget")
        budget = measure.options.get("budget", None if parameter is None else parameter.default)
        if type(budget) in (int, float):
            limited = replace(measure, options={**measure.options, "budget": min(float(budget), left)})
            return limited if left >= min(_LEAST, budget) else None
        return measure if left >= self._costs.get(measure.name, 0.0) else None

    @contextmanager
    def measuring(self, name: str) -> Iterator[None]:
        """Count what is done inside as spent on this measurement."""
        begun = self._clock()
        try:
            yield
        finally:
            self._costs[name] = self._clock() - begun
            self.spent += self._costs[name]

    def _trained(self) -> float:
        return 0.0 if self._begun is None else self._clock() - self._begun - self.spent

    def __str__(self) -> str:
        trained = self._trained()
        share = f"{100 * self.spent / trained:.1f} %" if trained > 0 else "–"
        return f"measuring took {self.spent:.3g} s, {share} of {trained:.3g} s of training"
