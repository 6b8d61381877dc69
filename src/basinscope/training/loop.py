"""One training loop: the same network, data, optimizer and seed end in the same bits, interrupted, branched or not."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from ..checks import positive, whole
from ..errors import InputError
from ..losses import PerSample
from ..progress import tracked
from .checkpoint import load_checkpoint
from .hooks import Every, Measure, Row, StopRule
from .runs import Run
from .trainer import Trainer

FILE_NAME = "checkpoint.safetensors"

Build = Callable[[nn.Module], Optimizer]


def train(
    model: nn.Module,
    data: Any,
    optimizer: Build,
    *,
    loss: str | PerSample = "cross_entropy",
    sigma: float | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    batch_size: int = 128,
    seed: int = 0,
    validation: Any = None,
    record: Every | None = None,
    measures: Sequence[Measure] = (),
    stop: Sequence[StopRule] = (),
    log: Sequence[Callable[[Row], Any]] = (),
    folder: str | Path | None = None,
    save: Every | None = None,
    keep: Every | None = None,
    start: str | Path | None = None,
    carry: bool = False,
    progress: bool = True,
) -> Run:
    """Minimize the mean loss L_n = (1/n) Σ_i l_i over batches, measuring on the way.

    The order of the samples is a function of the seed and the epoch; torch's generators are set from the seed and put
    back afterwards, and no measurement touches them. With a `folder`, the run is written there after every epoch, each
    time as a whole: called again after an interruption of any kind, `train` goes on from there and ends in the same
    weights and the same rows as a run left alone. Called again with more epochs, it trains on.

    A run whose loss is no longer finite, or a million times what it was at first (and above a million), is over: its
    outcome is `diverged`, and no number is recorded from that step on.

    Args:
        model: the network; a copy of it is trained.
        data: `(x, y)` arrays, a `Dataset` or an iterable of batches, as for a `Landscape`.
        optimizer: makes the optimizer for the copy, such as `lambda net: torch.optim.SGD(net.parameters(), lr=0.1)`.
            If it has a method `observe(batch)`, every batch is shown to it. Its closure draws a new batch at each call.
        loss: per-sample loss, by name or as a callable, as for a `Landscape`.
        sigma: standard deviation of the Gaussian loss.
        epochs: passes through the data.
        steps: optimizer steps; with `epochs` too, training ends at whichever is reached first.
        batch_size: samples in a batch; the last of an epoch may be smaller.
        seed: of the order of the samples, and of dropout.
        validation: data on which `validation_loss` is evaluated.
        record: when a row with the losses is written; before the first step and after every epoch unless given.
        measures: measurements, each at its own time.
        stop: rules that may end the run after a row, such as `EarlyStop` and `Below`.
        log: called with every row as it is written, such as `integrations.tensorboard.Log`.
        folder: where the run is written to.
        save: how often it is written, every epoch unless given.
        keep: how often a checkpoint `step-….safetensors` is put beside it for good, to branch from.
        start: a checkpoint to branch from: weights, position in the data, generators and rows are taken from it.
            `epochs` and `steps` count from there.
        carry: also take over the state of its optimizer (momentum and the like), though not its settings.
        progress: show a bar.

    Returns:
        The run. `run.model` is the trained network, `run.history` the table of what was recorded.

    Examples:
        >>> import torch, basinscope as bs
        >>> x = torch.linspace(-1, 1, 20)[:, None]
        >>> run = train(torch.nn.Linear(1, 1), (x, 2 * x + 1), lambda net: torch.optim.SGD(net.parameters(), lr=0.5),
        ...             loss="mse", epochs=50, batch_size=10)
        >>> run.outcome, round(run.model.weight.item(), 3), round(run.model.bias.item(), 3)
        ('finished', 2.0, 1.0)
    """
    if epochs is None and steps is None:
        raise InputError("training needs an end: pass epochs or steps")
    if epochs is not None:
        positive("epochs", epochs)
    if steps is not None:
        whole("steps", steps, least=1)
    if (save is not None or keep is not None) and folder is None:
        raise InputError("save and keep need a folder to write to: pass folder")
    if carry and start is None:
        raise InputError("carry takes over the optimizer of a checkpoint: pass start")
    home = None if folder is None else Path(folder)
    network = copy.deepcopy(model)
    with _seeded(network, seed):
        trainer = Trainer(
            network, data, _optimizer_of(network, optimizer), loss=loss, sigma=sigma, batch_size=batch_size, seed=seed,
            validation=validation, record=Every(epochs=1, start=True) if record is None else record, measures=measures,
            stop=stop, file=None if home is None else home / FILE_NAME, save=Every(epochs=1) if save is None else save,
            keep=keep, log=log,
        )  # fmt: skip
        if home is not None and (home / FILE_NAME).is_file():
            trainer.resume(load_checkpoint(home / FILE_NAME), home / FILE_NAME)
        elif start is not None:
            trainer.branch(load_checkpoint(Path(start)), Path(start), carry)
        with tracked("Training", progress) as report:
            return trainer.run(epochs, steps, report)


def _optimizer_of(network: nn.Module, build: Build) -> Optimizer:
    """The optimizer that `build` makes for a network, checked to train that network and no other."""
    if isinstance(build, Optimizer) or not callable(build):
        raise InputError(
            f"optimizer must be a function that makes one for the copied network, got {type(build).__name__} — pass "
            f"lambda net: torch.optim.SGD(net.parameters(), lr=0.1)"
        )
    optimizer = build(network)
    if not isinstance(optimizer, Optimizer):
        raise InputError(f"optimizer must return a torch.optim.Optimizer, got {type(optimizer).__name__}")
    parameters = {id(parameter) for parameter in network.parameters()}
    if any(id(parameter) not in parameters for group in optimizer.param_groups for parameter in group["params"]):
        raise InputError(
            "the optimizer holds parameters of another network than the copy that is trained — build it from its "
            "argument, as in lambda net: torch.optim.SGD(net.parameters(), lr=0.1)"
        )
    return optimizer


@contextmanager
def _seeded(network: nn.Module, seed: int) -> Iterator[None]:
    """torch's generators seeded for this run, and given back as they were; convolutions that repeat themselves."""
    devices = sorted({p.device.index for p in network.parameters() if p.device.type == "cuda"})
    cudnn = torch.backends.cudnn
    before = cudnn.deterministic, cudnn.benchmark
    with torch.random.fork_rng(devices):
        cudnn.deterministic, cudnn.benchmark = True, False
        try:
            torch.manual_seed(whole("seed", seed, least=0))
            yield
        finally:
            cudnn.deterministic, cudnn.benchmark = before


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
