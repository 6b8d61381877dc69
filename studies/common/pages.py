"""Sentences that the pages of several studies have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def data_and_scale(data: Iterable[str]) -> tuple[str, str]:
    """The names of the data sets, and what is to be said of the smoke scale where they are its own.

    Examples:
        >>> data_and_scale(["mnist", "svhn", "mnist"])
        ('mnist, svhn', '')
    """
    names = ", ".join(dict.fromkeys(data))
    small = " This is the smoke scale: it shows that the study runs, and settles nothing." if "digits" in names else ""
    return names, small


def run_again(origin: Mapping[str, Any]) -> str:
    """How a study's results are made again, and what they took.

    Examples:
        >>> run_again({"study": "volume-scaling", "jobs": 18, "results": 17, "seconds": 600.0})
        '`basinscope study run studies/volume_scaling --scale paper`; 17 jobs took 10 minutes, added up over processes \
of one core each. 1 of 18 jobs have no result and are left out.'
    """
    missing = origin["jobs"] - origin["results"]
    left_out = f" {missing} of {origin['jobs']} jobs have no result and are left out." if missing else ""
    return (
        f"`basinscope study run studies/{origin['study'].replace('-', '_')} --scale paper`; {origin['results']} jobs "
        f"took {origin['seconds'] / 60:.0f} minutes, added up over processes of one core each.{left_out}"
    )
