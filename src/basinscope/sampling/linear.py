"""Linear layers of many chains at once, with weight gradients laid out as the weights are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

LARGE = 2**14  # entries of a weight


class Slopes:
    """Where the gradients of weights belong, so that products can put them there at once.

    Args:
        weights: of all chains, (C, out, in) where they are of linear layers.
        places: tensors of the same names and shapes. A place that was never written holds anything.
    """

    def __init__(self, weights: Mapping[str, Tensor], places: Mapping[str, Tensor]) -> None:
        self._names = {weight.data_ptr(): name for name, weight in weights.items() if weight.numel()}
        self._places = places
        self.written: set[str] = set()

    def put(self, weight: Tensor, slope: Tensor, x: Tensor) -> bool:
        """Add slopeᵀx to the place of `weight`; False if it has none."""
        name = self._names.get(weight.data_ptr())
        if name is None or self._places[name].shape != weight.shape:
            return False
        if name in self.written:
            self._places[name].baddbmm_(slope.mT, x)
        else:
            torch.bmm(slope.mT, x, out=self._places[name])
            self.written.add(name)
        return True


class QuickLinear(TorchFunctionMode):
    """Within it, `vmap` over the weights of linear layers makes their gradients (C, out, in) in one piece of memory.

    Left to itself, it makes them (C, in, out) and turns them afterwards, which costs as much as half of the product.
    Layers smaller than `LARGE` are left alone: there the detour costs more.

    Args:
        slopes: where gradients go instead of being returned, for weights that have a place there.
    """

    def __init__(self, slopes: Slopes | None = None) -> None:
        super().__init__()
        self._slopes = slopes

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        if func is functional.linear and not kwargs and args[0].ndim > 1 and args[1].numel() >= LARGE:
            return _Linear.apply(*args, *[None] * (3 - len(args)), self._slopes)
        return func(*args, **(kwargs or {}))


class _Linear(torch.autograd.Function):
    """x Wᵀ + b, outside `vmap`; within it, `_BatchedLinear` takes its place."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None, slopes: Slopes | None) -> Tensor:
        return functional.linear(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs[:2])
        ctx.biased = inputs[2] is not None

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        rows = slope.flatten(0, -2)
        inner = slope @ weight if ctx.needs_input_grad[0] else None
        return inner, rows.mT @ x.flatten(0, -2), rows.sum(0) if ctx.biased else None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, x: Tensor, weight: Tensor, bias: Tensor | None, slopes: Slopes | None
    ) -> tuple[Tensor, int]:
        chains = info.batch_size
        rows, weight = (
            (tensor.expand(chains, *tensor.shape) if axis is None else tensor.movedim(axis, 0))
            for tensor, axis in zip((x, weight), in_dims[:2], strict=True)
        )
        if bias is not None:
            bias = bias.expand(chains, -1) if in_dims[2] is None else bias.movedim(in_dims[2], 0)
        batched = _BatchedLinear.apply(rows.flatten(1, -2), weight, bias, slopes)
        return batched.view(*rows.shape[:-1], -1), 0


class _BatchedLinear(torch.autograd.Function):
    """x_c W_cᵀ + b_c for rows x (C, m, in), weights (C, out, in) and biases (C, out)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, slopes: Slopes | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.slopes = slopes
        return torch.bmm(x, weight.mT) if bias is None else torch.baddbmm(bias[:, None], x, weight.mT)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        put = wanted[1] and ctx.slopes is not None and ctx.slopes.put(weight, slope, x)
        return (
            torch.bmm(slope, weight) if wanted[0] else None,
            torch.bmm(slope.mT, x) if wanted[1] and not put else None,
            slope.sum(1) if wanted[2] else None,
            None,
        )
