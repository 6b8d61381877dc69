"""The development of a training from its checkpoints, in pieces that can stop and go on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import basinscope as bs
from basinscope.estimates import plain
from basinscope.files import write_whole
from basinscope.measures.checkpoint_series import series_of
from basinscope.measures.trajectory import outputs_on_fixed_inputs
from basinscope.report.development import Development, assembled, measured_of
from basinscope.runs.scratch import Scratch, Unfinished
from basinscope.sampling.calibration import resolution
from studies.common.checkpoints import FEW
from studies.common.measuring import device

from .tasks import Task


def developed(
    task: Task, folder: Path, sequences: int, kinds: Sequence[str], every: int, how: dict[str, Any], scratch: Scratch
) -> Development:
    """The development of the checkpoints of a folder, on the first sequences; goes on where it was left.

    The last checkpoint has a λ̂ of every part, and counted from there every so many do.
    """
    data = task.x[:sequences].to(device()), task.y[:sequences].to(device())
    series = series_of(folder, model=task.network.to(device()), loss=task.loss, data=data)
    at = resolution(series.load(len(series) - 1), how.get("nbeta"), how.get("gamma"))
    how = {**how, "nbeta": at.nbeta, "gamma": at.gamma}
    rows, outputs = [], []
    missing: dict[str, str] = {}
    for place, step in enumerate(series.steps):
        land = series.load(place)
        outputs.append(outputs_on_fixed_inputs(land))
        file = scratch.folder / f"row-{step:08d}.json"
        wanted = kinds if (len(series) - 1 - place) % every == 0 else ()
        row, absent = _kept(file, partial(measured_of, land, series.names[place], step, how, wanted), scratch)
        rows.append(row)
        missing |= absent
    return assembled(series.steps, rows, outputs, how, missing)


def _kept(file: Path, measure: Callable[[], Any], scratch: Scratch) -> tuple[dict[str, Any], dict[str, str]]:
    if not file.exists():
        if scratch.seconds_left < FEW:
            raise Unfinished
        row, missing = measure()
        write_whole(file, json.dumps(plain({"row": row, "missing": missing}), allow_nan=False).encode())
    stored = json.loads(file.read_text())
    return stored["row"], stored["missing"]


def digest(task: Task) -> str:
    """Of the data, which for text depend on the packages that are installed."""
    return hashlib.sha256(task.x.numpy().tobytes()).hexdigest()[:16]


def budget(nominal: float) -> bs.Nominal:
    """Nominal seconds, so that every machine draws alike."""
    return bs.Nominal(nominal)
