"""Plain stacks: networks that are linear layer, elementwise function, linear layer, … and nothing else.

Recognized by what a forward pass calls, not by the modules it sits in: skip connections, layers used twice, tied
weights and functions that mix units all show up as calls that do not belong to a stack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from ..landscape import Landscape, Parameters
from ..losses import logits
from ..samples import Samples
from .piecewise import AFFINE

# Functions of each entry by itself, as functions or as methods, if only one argument is a tensor.
_ELEMENTWISE = {
    "abs", "add", "add_", "alpha_dropout", "atan", "celu", "clamp", "clone", "contiguous", "cos", "div", "dropout",
    "elu", "erf", "exp", "gelu", "hardswish", "hardtanh", "leaky_relu", "leaky_relu_", "log_sigmoid",
    "mish", "mul", "mul_", "neg", "pow", "relu", "relu6", "relu_", "rsub", "__rsub__", "selu", "sigmoid", "sigmoid_",
    "silu", "sin", "softplus", "softsign", "square", "sub", "sub_", "tanh", "tanh_", "tanhshrink", "_threshold",
}  # fmt: skip
_RESHAPING = {"flatten", "reshape", "squeeze", "unsqueeze", "view"}
_ASKING = {"__get__", "__len__", "dim", "ndimension", "numel", "size"}  # of a tensor's shape, not of its entries
FEW = 4


@dataclass(frozen=True)
class Stage:
    """u = W a + b for a batch, and the elementwise functions on u before the next layer.

    `names` are those of weight and bias; None where absent or held fixed. `straight` says that all functions are known
    to be piecewise affine, `overwritten` that the first of them writes into u.
    """

    names: tuple[str | None, str | None]
    weight: Tensor
    bias: Tensor | None
    input: Tensor
    output: Tensor
    functions: list[Callable[[Tensor], Tensor]] = field(default_factory=list)
    straight: bool = True
    overwritten: bool = False

    def above(self, output: Tensor) -> Tensor:
        """The input of the next layer as a function of u."""
        value = output.clone() if self.overwritten else output
        for function in self.functions:
            value = function(value)
        return value


def stack_of(land: Landscape) -> list[Stage] | None:
    """The stages of a few samples if the outputs are a plain stack from the first layer with free parameters on.

    The samples go through the network once more with its parameters moved: the stages must arrive where it does, and
    with the same gradient, which a part of the network that is detached has not.

    Examples:
        >>> import torch, basinscope as bs
        >>> net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
        >>> found = stack_of(bs.Landscape(net, "mse", (torch.ones(4, 2), torch.ones(4, 1))))
        >>> [stage.names for stage in found]
        [('0.weight', '0.bias'), ('2.weight', '2.bias')]
    """
    few = land.take(torch.arange(min(land.n, FEW)))
    recorded = stages(land, few)
    if recorded is None:
        return None
    found, _ = recorded
    moved = {name: _moved(tensor).requires_grad_() for name, tensor in land.parameters.items()}
    with torch.enable_grad():
        value = found[0].input
        for stage in found:
            weight, bias = stage.names
            output = functional.linear(
                value,
                stage.weight if weight is None else moved[weight],
                stage.bias if bias is None else moved[bias],
            )
            value = stage.above(output)
        truth = logits(land.outputs(moved, few.inputs))
    pairs = [(value, truth), *zip(_slopes(value, moved), _slopes(truth, moved), strict=True)]
    slack = 1e3 * torch.finfo(land.dtype).eps
    return found if all((one - two).abs().max() <= slack * two.abs().max() for one, two in pairs) else None


def _slopes(value: Tensor, parameters: Parameters) -> list[Tensor]:
    """The gradients of a sum of outputs, each with a weight of its own; zero where nothing leads to a parameter."""
    weights = torch.linspace(1, 2, value.numel(), dtype=value.dtype, device=value.device).view(value.shape)
    free = list(parameters.values())
    if not value.requires_grad:
        return [torch.zeros_like(tensor) for tensor in free]
    return list(torch.autograd.grad((weights * value).sum(), free, materialize_grads=True))


def stages(land: Landscape, batch: Samples) -> tuple[list[Stage], Tensor] | None:
    """The stages of a batch, first to last, and the outputs; None if the network is no stack."""
    recorder = _Recorder(land.parameters, batch.n)
    with torch.no_grad(), recorder:
        output = logits(land.outputs(land.parameters, batch.inputs))
    return (recorder.stages, output) if recorder.stages and recorder.ends_with(output) else None


class _Recorder(TorchFunctionMode):
    """Takes a forward pass apart into stages, as long as it is a stack."""

    def __init__(self, parameters: Parameters, samples: int) -> None:
        super().__init__()
        self.stages: list[Stage] = []
        self._names = {id(tensor): name for name, tensor in parameters.items()}
        self._samples = samples
        self._plain = True
        self._made: dict[int, Tensor] = {}  # what depends on parameters: held, so that no other gets their identity
        self._end: Tensor | None = None  # the last of them, which alone may be used, and once

    def ends_with(self, output: Any) -> bool:
        return self._plain and output is self._end

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if not self._plain or not any(id(leaf) in self._made or id(leaf) in self._names for leaf in given):
            return func(*args, **kwargs)
        if func is functional.linear:
            return self._linear(*args, **kwargs)
        name = getattr(func, "__name__", "")
        writes = (name.endswith("_") and not name.endswith("__")) or kwargs.get("inplace")
        if writes and self._end is not None and self.stages[-1].output is self._end:
            self.stages[-1] = replace(self.stages[-1], output=self._end.clone(), overwritten=True)
        result = func(*args, **kwargs)
        if name in _ASKING and not any(isinstance(leaf, Tensor) for leaf in tree_leaves(result)):
            return result
        self._plain = self._single(given, args) and self._keeps(name, result)
        if self._plain:
            self.stages[-1].functions.append(_partial(func, args[1:], kwargs))
            if name not in AFFINE:
                self.stages[-1] = replace(self.stages[-1], straight=False)
            self._go_on(result)
        return result

    def _linear(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        output = functional.linear(input, weight, bias)
        names = self._names.pop(id(weight), None), self._names.pop(id(bias), None)  # a second use is none of a stack
        first = self._end is None and id(input) not in self._names
        self._plain = (
            (first or input is self._end)
            and id(weight) not in self._made
            and id(bias) not in self._made
            and weight is not bias
            and (input.ndim, weight.ndim, len(input)) == (2, 2, self._samples)
        )
        for used, name in zip((weight, bias), names, strict=True):
            if used is not None and name is not None:
                self._made[id(used)] = used
        self.stages.append(Stage(names, weight, bias, input, output))
        return self._go_on(output)

    def _single(self, given: list[Tensor], args: tuple[Any, ...]) -> bool:
        return len(given) == 1 and given[0] is self._end and len(args) > 0 and args[0] is self._end

    def _keeps(self, name: str, result: Any) -> bool:
        """Whether the function leaves every entry in its place."""
        if not isinstance(result, Tensor) or self._end is None or result.dtype != self._end.dtype:
            return False
        if name in _RESHAPING:
            return len(result) == self._samples and result.numel() == self._end.numel()
        return name in _ELEMENTWISE and result.shape == self._end.shape

    def _go_on(self, end: Tensor) -> Tensor:
        self._made[id(end)] = self._end = end
        return end


def _partial(func: Any, rest: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[[Tensor], Tensor]:
    return lambda u: func(u, *rest, **kwargs)


def _moved(tensor: Tensor) -> Tensor:
    """Another point nearby, without the cost of random numbers."""
    return tensor + 0.1 * tensor.flatten().roll(1).view_as(tensor) + 0.01
