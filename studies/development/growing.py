"""A training with checkpoints and its development, in pieces that can stop and go on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import basinscope as bs
from basinscope.estimates import plain
from basinscope.files import write_whole
from basinscope.measures.checkpoint_series import series_of
from basinscope.measures.trajectory import outputs_on_fixed_inputs
from basinscope.report.development import Development, assembled, measured_of
from basinscope.runs.scratch import Scratch, Unfinished
from basinscope.sampling.calibration import resolution
from basinscope.training import Every, train
from studies.common.measuring import device

from .tasks import Task

_FEW = 5.0  # seconds below which nothing new is begun
_PIECE = 6  # checkpoints between two looks at the time, at each of which the loss on all data is taken


def moments(steps: int, count: int) -> tuple[int, ...]:
    """Steps at equal ratios from 1 on, those that round to the same left out.

    Examples:
        >>> moments(1000, 4)
        (1, 10, 100, 1000)
    """
    return tuple(dict.fromkeys(int(step) for step in np.geomspace(1, steps, count).round()))


def trained(task: Task, when: Sequence[int], rate: float, batch: int, seed: int, scratch: Scratch) -> Path:
    """A folder with checkpoints at these steps; goes on where it was left.

    Adam with a rate that does not change, so that a checkpoint does not depend on when the training is to end.
    """
    folder, work = scratch.folder / "checkpoints", scratch.folder / "training"
    folder.mkdir(exist_ok=True)
    net = task.network.to(device())
    for piece in _pieces(when):
        if all((folder / f"step-{step:08d}.safetensors").exists() for step in piece):
            continue
        if scratch.seconds_left < _FEW:
            raise Unfinished
        train(
            net, (task.x, task.y), lambda net: torch.optim.Adam(net.parameters(), lr=rate), loss=task.loss,
            steps=piece[-1], batch_size=batch, seed=seed, folder=work, record=Every(steps=10**9),
            save=Every(steps=10**9), keep=Every(at=piece), progress=False,
        )  # fmt: skip
        for file in work.glob("step-*.safetensors"):
            file.rename(folder / file.name)
    return folder


def _pieces(when: Sequence[int]) -> list[Sequence[int]]:
    """The steps, a few at a time: a training may stop between two pieces."""
    return [when[start : start + _PIECE] for start in range(0, len(when), _PIECE)]


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
        if scratch.seconds_left < _FEW:
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
