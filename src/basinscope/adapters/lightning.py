"""The data and the loss of Lightning modules."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from ..errors import InputError
from ..losses import PerSample
from ..samples import Samples, read

_LOSS_NAMES = ("loss", "criterion", "loss_fn", "loss_function")


def module_loss(module: nn.Module) -> str:
    """The name of the loss that a module holds as `loss`, `criterion`, `loss_fn` or `loss_function`.

    Examples:
        >>> from torch import nn
        >>> net = nn.Linear(2, 2)
        >>> net.criterion = nn.CrossEntropyLoss()
        >>> module_loss(net)
        'cross_entropy'
    """
    for name in _LOSS_NAMES:
        loss = getattr(module, name, None)
        if isinstance(loss, nn.CrossEntropyLoss) and loss.weight is None and not loss.label_smoothing:
            return "cross_entropy"
        if isinstance(loss, nn.BCEWithLogitsLoss) and loss.weight is None and loss.pos_weight is None:
            return "bernoulli"
        if isinstance(loss, nn.MSELoss):
            return "mse"
    raise InputError(
        f"{type(module).__name__} holds no plain loss under {_LOSS_NAMES} — pass loss='cross_entropy' or a callable "
        f"(output, target) -> one negative log-likelihood per sample"
    )


def module_data(module: nn.Module, data: Any) -> Samples:
    """All training samples in the order of their numbers, from a data module, a loader or the module's own loader."""
    source = data
    if data is None:
        trainer = getattr(module, "_trainer", None)
        source = getattr(trainer, "datamodule", None) or getattr(trainer, "train_dataloader", None) or module
    if hasattr(source, "train_dataloader"):
        if hasattr(source, "prepare_data") and source is not module:
            source.setup("fit")
        source = _train_loader(source)
    if isinstance(source, DataLoader) and not isinstance(source.dataset, IterableDataset):
        source = DataLoader(
            source.dataset,
            batch_size=source.batch_size or 1,
            collate_fn=source.collate_fn,
            generator=torch.Generator(),  # not torch's own, which reading must not advance
        )
    return read(source)


def _train_loader(source: Any) -> Any:
    """The training data that a module or data module makes itself."""
    try:
        return source.train_dataloader()
    except Exception as error:
        raise InputError(
            f"{type(source).__name__} gives no training data ({error}) — pass data=, a loader or a data module"
        ) from error


def parts(module: nn.Module, data: Any, loss: str | PerSample | None) -> tuple[str | PerSample, Samples]:
    """Loss and data of a Lightning module."""
    if not isinstance(module, nn.Module):
        raise InputError(f"module must be a LightningModule, got {type(module).__name__}")
    return (module_loss(module) if loss is None else loss), module_data(module, data)
