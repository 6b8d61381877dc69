"""Every sampler on every landscape with every budget."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .entries import ENTRIES
from .problem import Problem

BUDGETS = (300, 1000, 3000)


@dataclass(frozen=True)
class Outcome:
    """λ̂ of one run beside λ_t."""

    sampler: str
    landscape: str
    gradients: int
    seed: int
    value: float
    reference: float
    seconds: float

    @property
    def error(self) -> float:
        """|λ̂ − λ_t|/λ_t; infinite where the sampler gave no number."""
        apart = abs(self.value - self.reference) / self.reference
        return apart if math.isfinite(apart) else math.inf

    @property
    def key(self) -> tuple[str, str, int, int]:
        return self.sampler, self.landscape, self.gradients, self.seed


def outcomes(
    problems: Iterable[Problem], names: Sequence[str], seeds: int, done: set[tuple[str, str, int, int]]
) -> Iterator[Outcome]:
    """Runs that are not done yet, one after the other."""
    for problem in problems:
        for name in names:
            for gradients in BUDGETS:
                for seed in range(seeds):
                    if (name, problem.case.name, gradients, seed) in done:
                        continue
                    started = time.perf_counter()
                    value = ENTRIES[name](problem, gradients, seed)
                    seconds = round(time.perf_counter() - started, 3)
                    yield Outcome(name, problem.case.name, gradients, seed, value, problem.reference, seconds)
