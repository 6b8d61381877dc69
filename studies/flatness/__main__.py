"""`python -m studies.flatness`: the study's jobs where pydantic is not installed; see `stretches`.

`pack` writes the 7 × 7 data sets in a small form; `run` reads it where $BASINSCOPE_PACKED names its folder.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from studies.common.stretches import Plain, Rows, Stretch

from . import plan
from .cases import pack
from .running import PHASES, run_unit


def _run(stretch: Stretch) -> Iterator[list[tuple[plan.Network, Rows]]]:
    for found in run_unit(stretch.jobs, stretch.wanted, stretch.folder, stretch.seconds, stretch.phase):
        yield list(found)


PLAIN = Plain(plan, _run, PHASES)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit status."""
    return PLAIN.main(arguments, _more)


def _more(commands: Any) -> None:
    sub = commands.add_parser("pack")
    sub.set_defaults(command=_pack)
    sub.add_argument("--out", type=Path, required=True, help="folder for the packed data sets")
    sub.add_argument("--data", nargs="+", default=list(plan.Plan().data), help="their names")


def _pack(given: argparse.Namespace) -> int:
    for path in pack(tuple(given.data), given.out):
        print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
