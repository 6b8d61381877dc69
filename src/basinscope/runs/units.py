"""From jobs to units of work: single jobs, or populations of jobs that share an architecture."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from ..errors import InputError
from .identity import checksum
from .study import Study


@dataclass(frozen=True)
class Planned:
    """A job with the address of its result."""

    key: str
    config: Mapping[str, Any]
    job: Any

    @property
    def label(self) -> str:
        """The job's settings in one line."""
        return " ".join(f"{name}={value}" for name, value in self.config.items())


@dataclass(frozen=True)
class Unit:
    """What a worker is handed: the members of a population, and which of their results are wanted.

    Attributes:
        keys, configs: of all members, wanted or not: a population always runs as a whole, so that its bits do not
            depend on what was there already.
        wanted: keys of the results to store.
        cost: relative time.
        until: when it should have ended, as `time.time()` has it: on any machine, however long it waits there.
    """

    keys: tuple[str, ...]
    configs: tuple[Mapping[str, Any], ...]
    wanted: frozenset[str]
    cost: float = 1.0
    until: float = math.inf

    @property
    def key(self) -> str:
        """An address of the unit itself."""
        return self.keys[0] if len(self.keys) == 1 else checksum("".join(self.keys).encode())[:40]

    def plain(self) -> dict[str, Any]:
        """The unit as plain values, as they travel to a worker."""
        return {
            "keys": list(self.keys),
            "configs": [dict(config) for config in self.configs],
            "wanted": sorted(self.wanted),
            "until": self.until,
        }

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Unit:
        return cls(tuple(data["keys"]), tuple(data["configs"]), frozenset(data["wanted"]), until=float(data["until"]))


def planned(study: Study, settings: Any) -> list[Planned]:
    """All jobs of a study, in the order of its table.

    Examples:
        >>> from basinscope.runs.sweep import Sweep
        >>> sweep = Sweep("areas", lambda width: {"area": width**2}, {"grid": {"width": [1, 2]}})
        >>> [plan.label for plan in planned(sweep, sweep.settings(**sweep.scales["smoke"]))]
        ['width=1', 'width=2']
    """
    by_key: dict[str, Planned] = {}
    for job in study.jobs(settings):
        config = job.config()
        plan = Planned(study.key(config), config, job)
        if plan.key in by_key:
            raise InputError(
                f"study {study.name!r} lists a job twice: {plan.label} — give one another seed, or drop it"
            )
        by_key[plan.key] = plan
    if not by_key:
        raise InputError(f"study {study.name!r} has no jobs at these settings — check its lists for an empty one")
    return list(by_key.values())


def selected(jobs: Sequence[Planned], only: str) -> set[str]:
    """Keys of the jobs whose settings match every word of `only`, a pattern each; of all without a word.

    Examples:
        >>> jobs = [Planned(str(seed), {"part": "sizes", "seed": seed}, None) for seed in (1, 10, 2)]
        >>> sorted(selected(jobs, "part=siz* seed=1*"))
        ['1', '10']
    """

    def fits(plan: Planned, word: str) -> bool:
        return any(fnmatchcase(f"{name}={value}", word) for name, value in plan.config.items())

    keys = {plan.key for plan in jobs if all(fits(plan, word) for word in only.split())}
    if not keys:
        raise InputError(f"no job matches {only!r} — expected words such as those of the first job: {jobs[0].label}")
    return keys


def units(study: Study, jobs: Iterable[Planned], done: Callable[[str], bool]) -> list[Unit]:
    """Units that hold a job not done yet, the costliest first.

    Populations are formed from all jobs, done or not, in their order: resumed work has the members it had before.
    """
    groups: dict[Any, list[Planned]] = {}
    for plan in jobs:
        shared = study.group_key(plan.job)
        groups.setdefault(("alone", plan.key) if shared is None else ("shared", shared), []).append(plan)
    candidates = [_unit(study, members, done) for members in groups.values()]
    return sorted((unit for unit in candidates if unit.wanted), key=lambda unit: -unit.cost)


def _unit(study: Study, members: list[Planned], done: Callable[[str], bool]) -> Unit:
    cost = sum(study.cost(plan.job) for plan in members)
    if not cost > 0:
        raise InputError(f"cost of {members[0].label} must be positive, got {cost} — see cost() of {study.name!r}")
    return Unit(
        tuple(plan.key for plan in members),
        tuple(plan.config for plan in members),
        frozenset(plan.key for plan in members if not done(plan.key)),
        cost,
    )
