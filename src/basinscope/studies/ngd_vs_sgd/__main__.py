"""`python -m basinscope.studies.ngd_vs_sgd`: the study's jobs where pydantic is not installed; see `stretches`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from ..stretches import Plain, Rows, Stretch
from . import plan
from .running import run_unit


def _run(stretch: Stretch) -> Iterator[list[tuple[plan.Training, Rows]]]:
    yield list(zip(stretch.jobs, run_unit(stretch.jobs, stretch.folder), strict=True))


def _label(unit: Sequence[plan.Training]) -> str:
    first = unit[0]
    return f"{first.part}-{first.data}-{first.network}-{first.optimizer}-seed{first.seed}"


PLAIN = Plain(
    plan.NAME, plan.VERSION, plan.Plan, plan.SCALES, plan.jobs, plan.units, plan.cost, _run, _label,
    lambda job: job.part,
)  # fmt: skip
main, planned, key_of = PLAIN.main, PLAIN.planned, PLAIN.key

if __name__ == "__main__":
    sys.exit(main())
