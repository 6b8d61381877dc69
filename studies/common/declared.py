"""A plan of plain dataclasses as the study that `basinscope study` wants."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, get_type_hints

from basinscope.runs.scratch import Scratch
from basinscope.runs.study import Result, Settings, Study

from .plans import StudyPlan

if TYPE_CHECKING:
    pass


class PlannedStudy(Study):
    """A study whose name, version, settings, scales, jobs, populations and costs are those of its plan.

    Subclasses name the plan, as in `class Flatness(PlannedStudy, plan=plan)`, and have `Job` and `rows`.

    Examples:
        >>> from studies.flatness import plan
        >>> class Flatness(PlannedStudy, plan=plan):
        ...     title = "Flatness"
        >>> Flatness().name
        'flatness'
    """

    plan: ClassVar[StudyPlan]

    def __init_subclass__(cls, plan: StudyPlan) -> None:
        super().__init_subclass__()
        cls.plan, cls.name, cls.version, cls.scales = plan, plan.NAME, plan.VERSION, plan.SCALES
        cls.Settings = model_of(plan.Plan, f"{cls.__name__}Settings", Settings)

    def rows(self, unit: Sequence[Any], folder: Path) -> Sequence[Sequence[Mapping[str, Any]]]:
        """The rows of every job of a unit, jobs being the plan's; `folder` keeps partial work."""
        raise NotImplementedError

    def jobs(self, settings: Any) -> Iterator[Any]:
        for job in self.plan.jobs(self.plan.Plan(**vars(settings))):
            yield self.job(job.config())

    def group_key(self, job: Any) -> Any:
        return self.plan.together(self.plan.job_of(job.config()))

    def cost(self, job: Any) -> float:
        return self.plan.cost(self.plan.job_of(job.config()))

    def run(self, job: Any, scratch: Scratch) -> Result:
        return self.run_group([job], scratch)[0]

    def run_group(self, jobs: Sequence[Any], scratch: Scratch) -> Sequence[Result]:
        return [Result(rows) for rows in self.rows([self.plan.job_of(job.config()) for job in jobs], scratch.folder)]


def model_of(kind: type, name: str, parent: type) -> Any:
    """A record with the fields of a dataclass, so that a plan is written down once.

    Examples:
        >>> from dataclasses import dataclass
        >>> from basinscope.runs.study import Job
        >>> @dataclass
        ... class Training:
        ...     width: int = 8
        >>> model_of(Training, "TrainingJob", Job)().config()
        {'width': 8}
    """
    hints = get_type_hints(kind)
    own: dict[str, Any] = {each.name: each.default for each in fields(kind) if each.default is not MISSING}
    own |= {"__annotations__": {each.name: hints[each.name] for each in fields(kind)}, "__doc__": kind.__doc__}
    return types.new_class(name, (parent,), exec_body=lambda space: space.update(own))
