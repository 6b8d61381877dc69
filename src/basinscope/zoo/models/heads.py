"""A transformer whose attention heads have parameters of their own, so that `restrict` can name one."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from .transformer import Attention, Transformer


class ByHead(nn.Module):
    """A weight as the heads' parts of it, stacked again for use."""

    def __init__(self, heads: int, blocks: int, columns: bool) -> None:
        super().__init__()
        self.heads, self.blocks, self.columns = heads, blocks, columns

    def forward(self, *parts: Tensor) -> Tensor:
        """The whole: part h of every block, heads in order."""
        rows = [part.unflatten(0, (self.blocks, -1)) for part in parts]
        whole = torch.stack(rows, 1).flatten(0, 2)
        return whole.T if self.columns else whole

    def right_inverse(self, whole: Tensor) -> Sequence[Tensor]:
        """The parts, head by head."""
        rows = (whole.T if self.columns else whole).unflatten(0, (self.blocks, self.heads, -1))
        return [rows[:, head].flatten(0, 1).contiguous() for head in range(self.heads)]


def split_heads(net: Transformer) -> Transformer:
    """A copy that computes the same, in which each head's queries, keys, values and output have their own parameters.

    `head_pattern(block, number)` names the parameters of one head, as `Landscape.restrict` takes it.

    Examples:
        >>> from basinscope.zoo.models import transformer
        >>> net = split_heads(transformer(8, 4, layers=1, width=4, heads=2))
        >>> sum(p.numel() for name, p in net.named_parameters() if name.endswith("original1"))
        38
    """
    split = copy.deepcopy(net)
    for module in split.modules():
        if isinstance(module, Attention):
            parametrize.register_parametrization(module.project, "weight", ByHead(module.heads, 3, columns=False))
            parametrize.register_parametrization(module.project, "bias", ByHead(module.heads, 3, columns=False))
            parametrize.register_parametrization(module.output, "weight", ByHead(module.heads, 1, columns=True))
    return split


def head_pattern(block: int, number: int) -> str:
    """The pattern of the parameters of one head of a network from `split_heads`.

    Examples:
        >>> head_pattern(1, 0)
        'blocks.1.attention.*.original0'
    """
    return f"blocks.{block}.attention.*.original{number}"
