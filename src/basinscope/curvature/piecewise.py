"""Whether a network is piecewise affine in the weights of each layer, so that H and F have the same diagonal.

Then ∂²z/∂w_j² = 0 for every single weight and Tr H = Tr F exactly, at every w where the derivatives exist.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from ..landscape import Landscape
from .operators import residual

# Piecewise affine in all their tensor arguments together, as functions or as methods.
AFFINE = {
    "relu", "relu_", "leaky_relu", "leaky_relu_", "threshold", "threshold_", "hardtanh", "hardtanh_", "relu6", "clamp",
    "clamp_", "abs", "neg", "maximum", "minimum", "max", "min", "amax", "amin", "max_pool1d", "max_pool2d",
    "max_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", "avg_pool1d", "avg_pool2d",
    "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "sum", "mean", "add", "add_",
    "sub", "sub_", "__rsub__", "cat", "stack", "chunk", "split", "unbind", "flatten", "unflatten", "reshape", "view",
    "permute", "transpose", "movedim", "t", "squeeze", "unsqueeze", "expand", "repeat", "contiguous", "clone", "detach",
    "to", "float", "double", "__getitem__", "select", "narrow", "pad", "roll", "flip", "unfold", "interpolate",
    "dropout", "dropout1d", "dropout2d", "dropout3d", "zeros_like", "ones_like",
}  # fmt: skip
# Affine in what depends on earlier parameters, if only one argument does; the others are constants or parameters.
_PRODUCTS = {
    "linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "batch_norm",
    "embedding", "mul", "mul_", "matmul", "mm", "addmm",
}  # fmt: skip
MAX_SAMPLES = 4  # to look at


def piecewise_affine(land: Landscape) -> bool:
    """Whether every parameter tensor enters the outputs piecewise affinely when the others are held fixed.

    Decided by the functions that a forward pass calls on parameters and on what depends on them: each must be on a
    list of piecewise affine ones, and each parameter must be used once. What such a list cannot see (code outside of
    torch) is caught by a check on a few samples: the diagonal blocks of H − F, multiplied by random vectors, must be
    zero.

    Examples:
        >>> import torch, basinscope as bs
        >>> def network(activation):
        ...     return torch.nn.Sequential(torch.nn.Linear(2, 3), activation, torch.nn.Linear(3, 1))
        >>> data = torch.ones(4, 2), torch.ones(4, 1)
        >>> [piecewise_affine(bs.Landscape(network(a), "mse", data)) for a in (torch.nn.ReLU(), torch.nn.Tanh())]
        [True, False]
    """
    if land.loss.family == "custom":
        return False
    few = land.subset(slice(0, MAX_SAMPLES))
    watch = _Watch(land)
    with torch.no_grad(), watch:
        land.outputs(land.parameters, next(few.batches()).inputs)
    return watch.affine and _vanishing_blocks(few)


class _Watch(TorchFunctionMode):
    """Whether all functions that a forward pass applies to parameters, and to what follows from them, are affine."""

    def __init__(self, land: Landscape) -> None:
        super().__init__()
        self.affine = True
        self._free = {id(tensor) for tensor in land.parameters.values()}
        self._used: set[int] = set()
        self._dependent: dict[
            int, Tensor
        ] = {}  # on parameters; kept alive, so that no other tensor gets their identity

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        inputs = [id(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
        parameters = self._free.intersection(inputs)
        dependent = [tensor for tensor in inputs if tensor in self._dependent]
        if (parameters or dependent) and (outputs or name == "__setitem__"):
            self.affine &= self._allowed(name, inputs, len(dependent)) and not parameters & self._used
            self._used |= parameters
            self._dependent |= {id(leaf): leaf for leaf in outputs}
        return result

    def _allowed(self, name: str, inputs: list[int], dependent: int) -> bool:
        """Whether a function is affine in its inputs, of which that many depend on parameters."""
        if name in ("div", "div_"):
            return not any(tensor in self._dependent or tensor in self._free for tensor in inputs[1:])
        return name in AFFINE or (name in _PRODUCTS and dependent <= 1)


def _vanishing_blocks(land: Landscape) -> bool:
    """Whether the diagonal blocks of H − F are zero, to rounding errors, on a random vector each."""
    operator = residual(land)
    generator = torch.Generator(device=land.device).manual_seed(0)
    slack = 1e3 * torch.finfo(land.dtype).eps
    for name, tensor in land.parameters.items():
        probe = {other: torch.zeros_like(part) for other, part in land.parameters.items()}
        probe[name] = torch.randn(tensor.shape, device=land.device, dtype=land.dtype, generator=generator)
        image = land.unflatten(operator @ land.flatten(probe))
        if float(image[name].norm()) > slack * float(land.flatten(image).norm()):
            return False
    return True
