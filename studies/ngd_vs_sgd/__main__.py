"""`python -m studies.ngd_vs_sgd`: the study's jobs where pydantic is not installed; see `stretches`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from studies.common.stretches import Plain, Rows, Stretch

from . import plan
from .running import run_unit


def _run(stretch: Stretch) -> Iterator[list[tuple[plan.Training, Rows]]]:
    yield list(zip(stretch.jobs, run_unit(stretch.jobs, stretch.folder), strict=True))


PLAIN = Plain(plan, _run)
main, planned, key_of = PLAIN.main, PLAIN.planned, PLAIN.key

if __name__ == "__main__":
    sys.exit(main())
