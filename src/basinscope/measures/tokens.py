"""Losses token by token, as an observable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ..errors import InputError
from ..landscape import Landscape, check_landscape, math_attention
from ..losses import class_dimension, logits


def token_losses(land: Landscape, data: Any = None) -> Callable[[Mapping[str, Tensor]], Tensor]:
    """−log p(token | those before it) at every position of every sequence, as a function of the parameters.

    Its sum over positions is the loss of a sample. Pass it where an observable or queries are wanted: `influence` then
    has a column, `covariance` a row or column, for each token. Positions whose label is −100 have a loss of 0.

    Args:
        land: a landscape with the loss `cross_entropy` and labels (n, T).
        data: other sequences than its own.

    Returns:
        A function from a dict of parameters to a tensor (n, T).

    Examples:
        >>> import torch, basinscope as bs
        >>> net = bs.zoo.models.transformer(8, 6, layers=1, width=4, heads=2)
        >>> tokens = torch.randint(8, (10, 7))
        >>> land = bs.Landscape(net, "cross_entropy", (tokens[:, :-1], tokens[:, 1:]))
        >>> rows = bs.token_losses(land)(land.parameters)
        >>> rows.shape, bool(torch.allclose(rows.sum(1), land.per_sample().float(), rtol=1e-4))
        (torch.Size([10, 6]), True)
    """
    check_landscape(land)
    other = land if data is None else land.on(data)
    if land.loss.family != "categorical" or getattr(other.samples.target, "ndim", 0) != 2:
        raise InputError(
            f"token losses are those of loss='cross_entropy' with labels of shape (n, T), got {land.loss.name} — write "
            f"a function of the parameters that returns the losses you want"
        )

    def losses(parameters: Mapping[str, Tensor]) -> Tensor:
        rows = []
        with math_attention():
            for batch in other.batches(256):
                scores, target = logits(other.outputs(parameters, batch.inputs)), batch.target
                axis = -1 if scores.shape[:-1] == target.shape else class_dimension(scores, target)
                rows.append(functional.cross_entropy(scores.movedim(axis, 1), target.long(), reduction="none"))
        return torch.cat(rows)

    return losses
