"""Normalization with frozen statistics: a sample's loss never depends on the other samples of its batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ...checks import whole
from ...errors import InputError


class FrozenNorm(nn.Module):
    """y = weight · (x − mean) / √(variance + eps) + bias per channel, with statistics that training never moves.

    `weight` and `bias` are parameters, `mean` and `variance` buffers: BatchNorm in evaluation mode, always.

    Examples:
        >>> norm = FrozenNorm(3)
        >>> bool((norm(torch.ones(2, 3, 4, 4)) - 1).abs().max() < 1e-5)
        True
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, channels: int, eps: float = 1e-5) -> None:
        super().__init__()
        channels = whole("channels", channels, least=1)
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("variance", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        scale = self.weight * torch.rsqrt(self.variance + self.eps)
        shift = self.bias - self.mean * scale
        shape = (1, -1) + (1,) * (x.ndim - 2)
        return x * scale.view(shape) + shift.view(shape)

    def extra_repr(self) -> str:
        return f"{len(self.weight)}, eps={self.eps}"


def calibrate(model: nn.Module, inputs: Tensor) -> nn.Module:
    """Set the statistics of every `FrozenNorm` of `model` to those of `inputs`, from the first layer to the last.

    Call it once before training: each layer then starts with channels of mean 0 and variance 1 on these inputs.
    Returns the model.

    Examples:
        >>> net = calibrate(nn.Sequential(nn.Conv2d(1, 2, 3), FrozenNorm(2)), torch.rand(64, 1, 8, 8))
        >>> bool(net(torch.rand(8, 1, 8, 8)).std() < 2)
        True
    """
    norms = [module for module in model.modules() if isinstance(module, FrozenNorm)]
    if not norms:
        raise InputError("model has no FrozenNorm to calibrate — build it with one, or call freeze_batch_norm first")
    with torch.no_grad(), _recording(norms):
        model(inputs)
    return model


@contextmanager
def _recording(norms: list[FrozenNorm]) -> Iterator[None]:
    """Within it, every norm takes over the statistics of its inputs before it is applied to them."""

    def measure(norm: nn.Module, arguments: tuple[Any, ...]) -> None:
        assert isinstance(norm, FrozenNorm)
        axes = [axis for axis in range(arguments[0].ndim) if axis != 1]
        norm.mean.copy_(arguments[0].mean(axes))
        norm.variance.copy_(arguments[0].var(axes, correction=0))

    hooks = [norm.register_forward_pre_hook(measure) for norm in norms]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def freeze_batch_norm(model: nn.Module) -> nn.Module:
    """Replace every BatchNorm of `model`, in place, by a `FrozenNorm` with its running statistics. Returns the model.

    Examples:
        >>> freeze_batch_norm(nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)))[1]
        FrozenNorm(4, eps=1e-05)
    """
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.modules.batchnorm._BatchNorm):
                setattr(parent, name, _frozen_norm(name, child))
    return model


def _frozen_norm(name: str, layer: nn.modules.batchnorm._BatchNorm) -> FrozenNorm:
    if layer.running_mean is None or layer.running_var is None:
        raise InputError(
            f"BatchNorm layer '{name}' keeps no running statistics — build it with track_running_stats=True"
        )
    norm = FrozenNorm(layer.num_features, layer.eps).to(layer.running_mean)
    with torch.no_grad():
        norm.mean.copy_(layer.running_mean)
        norm.variance.copy_(layer.running_var)
        if layer.affine:
            norm.weight.copy_(layer.weight)
            norm.bias.copy_(layer.bias)
    for parameter in norm.parameters():
        parameter.requires_grad_(layer.affine)
    return norm
