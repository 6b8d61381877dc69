"""Fully connected networks of any depth and width."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from ...checks import whole
from ...errors import InputError

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "gelu": nn.GELU,
    "relu": nn.ReLU,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
}


def ffnn(widths: Sequence[int], activation: str = "relu", bias: bool = True) -> nn.Sequential:
    """A feedforward network: x ↦ W_L φ(… φ(W₁ x + b₁) …) + b_L. Images are flattened first.

    Args:
        widths: from the input to the output, at least two.
        activation: φ, one of `relu`, `tanh`, `gelu`, `sigmoid`.
        bias: whether the layers have biases.

    Examples:
        >>> sum(weight.numel() for weight in ffnn([784, 256, 256, 10]).parameters())
        269322
    """
    sizes = _widths(widths)
    if activation not in ACTIVATIONS:
        raise InputError(f"activation must be one of {sorted(ACTIVATIONS)}, got {activation!r}")
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs, bias=bias), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers[:-1])


def deep_linear(widths: Sequence[int], bias: bool = False) -> nn.Sequential:
    """A deep linear network: x ↦ W_L ⋯ W₁ x, with an output bias if asked for.

    Its learning coefficient is known exactly: `basinscope.exact.deep_linear(widths, rank, bias)`.

    Examples:
        >>> deep_linear([10, 5, 10])
        Sequential(
          (0): Linear(in_features=10, out_features=5, bias=False)
          (1): Linear(in_features=5, out_features=10, bias=False)
        )
    """
    pairs = list(pairwise(_widths(widths)))
    layers = [nn.Linear(inputs, outputs, bias=False) for inputs, outputs in pairs[:-1]]
    return nn.Sequential(*layers, nn.Linear(*pairs[-1], bias=bias))


def _widths(widths: Sequence[int]) -> list[int]:
    sizes = [whole("a width", width, least=1) for width in widths]
    if len(sizes) < 2:
        raise InputError(f"widths must name at least the input and the output, got {list(widths)}")
    return sizes
