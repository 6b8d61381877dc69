"""`python -m studies.llc`: the study's jobs where pydantic is not installed; `pack` shrinks CIFAR-10."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from studies.common.stretches import Plain, Rows, Stretch

from . import plan
from .running import run_unit


def _run(stretch: Stretch) -> Iterator[list[tuple[Any, Rows]]]:
    jobs = list(stretch.jobs)  # a population is trained as a whole, or the same seed would end elsewhere
    rows = run_unit(jobs, stretch.folder)
    yield [(job, found) for job, found in zip(jobs, rows, strict=True) if job in stretch.wanted]


PLAIN = Plain(plan, _run)


def _pack(given: argparse.Namespace) -> int:
    from .cases import pack

    print(f"wrote {pack(given.folder)}")
    return 0


def _more(commands: Any) -> None:
    sub = commands.add_parser("pack", help="write a part of CIFAR-10 as one small file")
    sub.set_defaults(command=_pack)
    sub.add_argument("folder", type=Path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit status."""
    return PLAIN.main(arguments, _more)


if __name__ == "__main__":
    sys.exit(main())
