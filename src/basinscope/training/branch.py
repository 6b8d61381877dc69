"""Several runs from one checkpoint, which differ in the optimizer alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from ..errors import InputError
from .loop import Build, train
from .runs import Run


def branch(
    checkpoint: str | Path,
    model: nn.Module,
    data: Any,
    optimizers: Mapping[str, Build],
    *,
    folder: str | Path | None = None,
    **options: Any,
) -> dict[str, Run]:
    """Train on from a checkpoint with each of several optimizers: same weights, same order of batches, same generators.

    Args:
        checkpoint: written by `train`, such as `run.checkpoint` or one of those from its argument `keep`.
        model: a network of the same architecture; its weights do not matter.
        data: the data of the run that the checkpoint is of.
        optimizers: for the name of each branch, the function that makes its optimizer.
        folder: where the branches are kept, each in a folder of its own name.
        options: as for `train`; `epochs` and `steps` count from the checkpoint.

    Returns:
        The runs by name. `histories` puts them into one table; rows up to `run.origin` are those of the trunk.

    Examples:
        >>> import tempfile, torch
        >>> from basinscope.training import train, branch
        >>> x = torch.linspace(-1, 1, 20)[:, None]
        >>> data, net = (x, 2 * x), torch.nn.Linear(1, 1)
        >>> rates = {"same": 0.1, "raised": 0.5}
        >>> build = {name: lambda net, lr=lr: torch.optim.SGD(net.parameters(), lr=lr) for name, lr in rates.items()}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     trunk = train(net, data, build["same"], loss="mse", epochs=3, folder=folder)
        ...     runs = branch(trunk.checkpoint, net, data, build, loss="mse", epochs=2)
        >>> [(name, run.origin, run.step) for name, run in runs.items()]
        [('same', 3, 5), ('raised', 3, 5)]
    """
    if not optimizers:
        raise InputError("no branches: expected at least one name and optimizer")
    if "start" in options:
        raise InputError("start is the checkpoint itself: pass it as the first argument only")
    bad = [name for name in optimizers if folder is not None and (not name or Path(name).name != name)]
    if bad:
        raise InputError(f"branches are kept in folders of their names: {bad[0]!r} is no name for a folder")
    return {
        name: train(
            model, data, build, start=checkpoint, folder=None if folder is None else Path(folder) / name, **options
        )
        for name, build in optimizers.items()
    }
