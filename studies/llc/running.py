"""How a job is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from . import atlas, beyond, costs, entropy, resolution, truth

Row = dict[str, Any]


def run_unit(jobs: Sequence[Any], folder: Path) -> list[list[Row]]:
    """The rows of every job of a unit; `folder` keeps partial work."""
    part = jobs[0].part
    if part == "entropy":
        return entropy.run(jobs, folder)
    if part == "beyond":
        return [beyond.run(job, folder / job.view) for job in jobs]
    makers: dict[str, Callable[[Any], list[Row]]] = {
        "truth": truth.run, "resolution": resolution.run, "atlas": atlas.run, "cost": costs.run,
    }  # fmt: skip
    single = makers[part]
    return [single(job) for job in jobs]
