"""Sweep: a study that calls one function for every point of a grid; what a YAML file declares."""

from __future__ import annotations

import inspect
import itertools
import types
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import field
from functools import partial
from typing import Any

from ..errors import InputError
from . import study as base
from .records import record
from .scratch import Scratch
from .settings import merged


class SweepSettings(base.Settings):
    """What a sweep runs over.

    Attributes:
        common: arguments that all jobs share.
        grid: lists of values; one job for each combination, the last name running fastest.
        jobs: further jobs, listed singly.
    """

    common: dict[str, Any] = field(default_factory=dict)
    grid: dict[str, list[Any]] = field(default_factory=dict)
    jobs: list[dict[str, Any]] = field(default_factory=list)


class Sweep(base.Study):
    """A study of one function's values.

    Args:
        name: of the study.
        function: takes the job's settings by keyword; returns a mapping from column to value, or a `Result`. Its
            annotations decide what values it accepts.
        settings: `common`, `grid` and `jobs`, as in `SweepSettings`.
        scales: changes to the settings by the name of a scale.
        title, version: of the study.

    Examples:
        >>> def area(width: int, height: int = 1):
        ...     return {"area": width * height}
        >>> sweep = Sweep("areas", area, {"grid": {"width": [1, 2], "height": [3, 4]}})
        >>> [job.config() for job in sweep.jobs(sweep.settings(**sweep.scales["smoke"]))][1]
        {'width': 1, 'height': 4}
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., base.Result | Mapping[str, Any]],
        settings: Mapping[str, Any] | None = None,
        *,
        scales: Mapping[str, Mapping[str, Any]] | None = None,
        title: str = "",
        version: int = 1,
    ) -> None:
        self.name, self.title, self.version = name, title, version
        self._function = function
        self._arguments = _arguments(function)
        base_settings = dict(settings or {})
        record(SweepSettings, base_settings, f"study {name!r}", "setting")
        changes = dict(scales or {})
        self.scales = {
            scale: merged(base_settings, changes.get(scale, {})) for scale in dict.fromkeys([*base.SCALES, *changes])
        }

    Settings = SweepSettings

    def jobs(self, settings: SweepSettings) -> Iterator[base.Job]:
        """The grid's points, then the jobs listed singly."""
        for name, values in settings.grid.items():
            if not values:
                raise InputError(f"study {self.name!r}: grid {name!r} has no values — give at least one, or remove it")
        if settings.grid or not settings.jobs:
            for point in itertools.product(*settings.grid.values()):
                yield self.job({**settings.common, **dict(zip(settings.grid, point, strict=True))})
        for single in settings.jobs:
            yield self.job({**settings.common, **single})

    def job(self, config: Mapping[str, Any]) -> base.Job:
        job: base.Job = record(self._arguments, config, f"study {self.name!r}", "argument")
        return job

    def run(self, job: base.Job, scratch: Scratch) -> base.Result | Mapping[str, Any]:
        return self._function(**vars(job))


def _arguments(function: Callable[..., Any]) -> type[base.Job]:
    """A function's arguments as a class of jobs."""
    namespace: dict[str, Any] = {"__annotations__": {}}
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise InputError(f"a sweep's function must name its arguments: {function} has *{name} or positional-only")
        namespace["__annotations__"][name] = Any if parameter.annotation is parameter.empty else parameter.annotation
        if parameter.default is not parameter.empty:
            namespace[name] = field(default_factory=partial(copy, parameter.default))
    return types.new_class("Arguments", (base.Job,), exec_body=lambda space: space.update(namespace))
