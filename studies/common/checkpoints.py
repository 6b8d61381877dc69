"""A training that leaves checkpoints at steps spaced by logarithm, in pieces that can stop and go on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from basinscope.runs.scratch import Scratch, Unfinished
from basinscope.training import Every, train

FEW = 5.0  # seconds below which nothing new is begun
_PIECE = 6  # checkpoints between two looks at the time, at each of which the loss on all data is taken


def moments(steps: int, count: int) -> tuple[int, ...]:
    """Steps at equal ratios from 1 on, those that round to the same left out.

    Examples:
        >>> moments(1000, 4)
        (1, 10, 100, 1000)
    """
    return tuple(dict.fromkeys(int(step) for step in np.geomspace(1, steps, count).round()))


def checkpoints(
    net: nn.Module, data: tuple[Tensor, Tensor], loss: str, when: Sequence[int], *, rate: float, batch: int, seed: int,
    scratch: Scratch,
) -> Path:  # fmt: skip
    """A folder with checkpoints at these steps; goes on where it was left.

    Adam with a rate that does not change, so that a checkpoint does not depend on when the training is to end.
    """
    folder, work = scratch.folder / "checkpoints", scratch.folder / "training"
    folder.mkdir(exist_ok=True)
    for piece in [when[start : start + _PIECE] for start in range(0, len(when), _PIECE)]:
        if all((folder / f"step-{step:08d}.safetensors").exists() for step in piece):
            continue
        if scratch.seconds_left < FEW:
            raise Unfinished
        train(
            net, data, lambda net: torch.optim.Adam(net.parameters(), lr=rate), loss=loss, steps=piece[-1],
            batch_size=batch, seed=seed, folder=work, record=Every(steps=10**9), save=Every(steps=10**9),
            keep=Every(at=piece), progress=False,
        )  # fmt: skip
        for file in work.glob("step-*.safetensors"):
            file.rename(folder / file.name)
    return folder
