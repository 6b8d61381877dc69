"""The sizes of batches within a memory bound: samples that go through the network at once, and probes per product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from ..checks import positive
from ..errors import InputError
from ..landscape import Landscape, math_attention

DEFAULT_MEMORY = 512 * 2**20
MAX_PROBES = 32  # multiplied at once: beyond, products get no cheaper


@dataclass(frozen=True)
class Tiles:
    """`samples` per batch, `probes` per product, and whether the linearizations of all batches can be kept."""

    samples: int
    probes: int
    keep: bool


def check_vectors(v: Tensor, dimension: int, name: str) -> None:
    """Refuse what a matrix (d, d) of that name cannot multiply."""
    if v.ndim not in (1, 2) or len(v) != dimension:
        raise InputError(f"{name} multiplies vectors of shape ({dimension},) or ({dimension}, k), got {tuple(v.shape)}")


def memory_bound(land: Landscape, memory: int | None) -> int:
    """The bound in bytes: 512 MiB on the CPU and an eighth of the card on a GPU unless given."""
    if memory is not None:
        return int(positive("memory", memory))
    if land.device.type == "cuda":
        return int(torch.cuda.get_device_properties(land.device).total_memory) // 8
    return DEFAULT_MEMORY


def activation_bytes(land: Landscape) -> int:
    """Memory that one sample's forward pass leaves behind for the backward pass."""
    few = land.take(torch.arange(min(land.n, 4)))
    weights = {tensor.data_ptr() for tensor in land.parameters.values()}
    sizes: dict[int, int] = {}  # bytes by the address of a storage, which several tensors may share

    def record(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if tensor.data_ptr() not in weights:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # an output kept by its own node is a cycle that nobody would ever free

    def unchanged(tensor: Any) -> Any:
        return tensor

    with saved_tensors_hooks(record, unchanged), torch.enable_grad(), math_attention():
        free = {name: tensor.detach().requires_grad_() for name, tensor in land.parameters.items()}
        land.losses(free, few)
    return max(64, sum(sizes.values()) // few.n)


def convolutional(land: Landscape) -> bool:
    """Whether the network has convolutions, whose weights `vmap` makes grouped ones of.

    Examples:
        >>> import basinscope as bs
        >>> convolutional(bs.Landscape(nn.Linear(2, 1), "mse", (torch.zeros(3, 2), torch.zeros(3, 1))))
        False
    """
    return any(isinstance(module, nn.modules.conv._ConvNd) for module in land.module.modules())


def plan(land: Landscape, memory: int | None, copies: int, most: int = MAX_PROBES) -> Tiles:
    """Tiles that stay within the bound when a product holds `copies` times the activations per probe.

    There are at most `most` probes, fewer where they would leave little memory for samples; the fewer, the more
    samples a batch has. Half of the memory is for the linearizations, half for the products with the probes.
    """
    bound = memory_bound(land, memory)
    sample = copies * activation_bytes(land)
    vector = 4 * land.dimension * land.parameters[next(iter(land.parameters))].element_size()
    probes = 1 if _prefers_single(land) else max(1, min(most, bound // (8 * vector)))
    while probes > 1 and bound // 4 // (sample * probes) < min(land.n, 64):
        probes //= 2  # small batches cost more than few probes
    samples = max(1, min(land.n, bound // 4 // (sample * probes)))
    return Tiles(samples, probes, keep=sample * land.n <= bound // 2)


def _prefers_single(land: Landscape) -> bool:
    """Batched convolution weights become grouped convolutions, several times slower on a CPU than one by one."""
    return land.device.type == "cpu" and convolutional(land)
