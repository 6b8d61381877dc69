"""Functions whose derivatives torch gets wrong, made of others whose derivatives it gets right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


def _prelu(input: Tensor, weight: Tensor) -> Tensor:
    """x where x > 0, else a x: batched over samples and roots at once, torch mixes them up in the gradient in a."""
    if weight.numel() > 1:
        weight = weight.view(-1, *[1] * (input.ndim - 2))
    return torch.where(input > 0, input, weight * input)


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """v g/‖v‖: torch's second derivative of its fused form is not even symmetric."""
    return v * (g / torch.norm_except_dim(v, 2, dim))


_REPLACEMENTS: dict[Any, Callable[..., Tensor]] = {
    torch.prelu: _prelu,
    torch.Tensor.prelu: _prelu,
    torch._weight_norm: _weight_norm,
}


class Mended(TorchFunctionMode):
    """A mode that replaces those functions; `used` says whether any of them was called.

    Examples:
        >>> with Mended() as mode:
        ...     torch.nn.PReLU()(torch.tensor([-4.0, 4.0])).tolist()
        [-1.0, 4.0]
        >>> mode.used
        True
    """

    used = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        replacement = _REPLACEMENTS.get(func)
        self.used |= replacement is not None
        return (replacement or func)(*args, **(kwargs or {}))
