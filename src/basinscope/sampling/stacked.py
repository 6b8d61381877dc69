"""Chains of several networks at once, so that hundreds of networks are sampled as one batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..errors import InputError
from ..landscape import Landscape
from .chains import ChainLosses


class StackedLosses(ChainLosses):
    """Excess losses of several networks of one architecture on the same data: `chains` rows for each, in their order.

    Row r belongs to network m = r // chains, and its displacement is from that network's own w*.

    Args:
        lands: the landscapes; they differ in their parameters alone.
        chains: chains of each.

    Attributes:
        base: l_i(w*) of every network, (M, n).

    Examples:
        >>> import basinscope as bs
        >>> x = torch.ones(4, 1)
        >>> nets = [bs.Landscape(torch.nn.Linear(1, 1, bias=False), "mse", (x, x)).at({"weight": torch.tensor([[w]])})
        ...         for w in (1.0, 3.0)]
        >>> StackedLosses(nets, chains=2).excess(torch.tensor([[0.0], [1.0], [0.0], [-2.0]])).tolist()
        [0.0, 0.5, 0.0, -2.0]
    """

    def __init__(self, lands: Sequence[Landscape], chains: int) -> None:
        if not lands:
            raise InputError("there is no network to sample — pass at least one landscape")
        super().__init__(lands[0])
        shapes = {name: tensor.shape for name, tensor in lands[0].parameters.items()}
        for number, land in enumerate(lands):
            if land.n != self.land.n or {name: each.shape for name, each in land.parameters.items()} != shapes:
                raise InputError(
                    f"networks must have one architecture and the same data: number {number} differs from the first"
                )
        points = torch.stack([land.flatten(land.parameters) for land in lands])
        self._offsets = (points - self.origin).repeat_interleave(chains, 0)
        self.base = torch.stack([land.per_sample() for land in lands])
        self._owner = torch.arange(len(lands), device=self.origin.device).repeat_interleave(chains)

    def _points(self, delta: Tensor) -> Tensor:
        return super()._points(delta + self._offsets)

    def _level(self, chosen: slice | Tensor) -> Tensor:
        if isinstance(chosen, slice):
            return self.base[self._owner, chosen]
        return self.base[self._owner[:, None], chosen]
