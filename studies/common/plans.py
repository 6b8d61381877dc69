"""What the plans of studies have in common: jobs as plain values, and which of them run together."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, Self, TypeVar

Each = TypeVar("Each")


class StudyPlan(Protocol):
    """What a study's module `plan` has.

    Attributes:
        NAME, VERSION: of the study; they are part of every result's address.
        SCALES: settings by the name of a scale.
        Plan: the dataclass of its settings.
    """

    NAME: str
    VERSION: int
    SCALES: dict[str, dict[str, Any]]

    @property
    def Plan(self) -> type: ...

    def jobs(self, plan: Any, /) -> Iterable[Any]:
        """All jobs of a plan, each a `PlainJob` with `part` and `seed`."""

    def job_of(self, config: Mapping[str, Any], /) -> Any:
        """The job of a config."""

    def together(self, job: Any, /) -> tuple[Any, ...] | None:
        """Jobs with the same key run as one population; None: alone."""

    def units(self, all_jobs: Iterable[Any], /) -> list[list[Any]]:
        """The jobs as they run."""

    def cost(self, job: Any, /) -> float:
        """Seconds that a job takes on an H200, roughly."""

    def label(self, unit: Sequence[Any], /) -> str:
        """The name of a unit or of a single job, a few words without blanks."""


@dataclass(frozen=True)
class PlainJob:
    """A job whose fields are plain values and tuples of them.

    Examples:
        >>> @dataclass(frozen=True)
        ... class Training(PlainJob):
        ...     widths: tuple[int, ...]
        >>> Training((8, 4)).config()
        {'widths': [8, 4]}
        >>> Training.of({"widths": [8, 4]})
        Training(widths=(8, 4))
    """

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """The job of a config."""
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in config.items()})

    def config(self) -> dict[str, Any]:
        """The job as plain values."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def grouped(jobs: Iterable[Each], key: Callable[[Each], Hashable | None]) -> list[list[Each]]:
    """Jobs with the same key side by side, in the order of their first ones; those with the key None alone.

    Examples:
        >>> grouped([3, 4, 1, 2, 5], lambda job: "odd" if job % 2 else None)
        [[3, 1, 5], [4], [2]]
    """
    found: dict[Hashable, list[Each]] = {}
    for job in jobs:
        own = key(job)
        found.setdefault(object() if own is None else own, []).append(job)
    return list(found.values())
