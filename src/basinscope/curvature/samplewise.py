"""Gradient rows J_iᵀ s_ik without any knowledge of layers: one backward pass per sample and root."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import vjp, vmap

from ..landscape import Landscape, Parameters
from ..samples import Samples, Tree, map_tensors
from .likelihood import head


def side_by_side(land: Landscape, matrix: str, free: Parameters, batch: Samples, cotangents: Tensor) -> Parameters:
    """Rows (m, r, …) of the `free` parameters, differentiable in them; `cotangents` s (m, r, …) are the head's.

    A RuntimeError says that some function of the network cannot be batched over samples and roots at once.
    """

    def rows(inputs: Tree, target: Tree, cotangent: Tensor) -> Parameters:
        sample = Samples(map_tensors(_with_batch_axis, inputs), map_tensors(_with_batch_axis, target), 1)
        back = vjp(lambda part: head(land, matrix, {**land.parameters, **part}, sample), free)[1]
        of_sample: Parameters = vmap(lambda row: back(row)[0])(cotangent.unsqueeze(1))
        return of_sample

    if cotangents.shape[1] == 0:
        return {name: tensor.new_zeros(batch.n, 0, *tensor.shape) for name, tensor in free.items()}
    batched: Parameters = vmap(rows)(batch.inputs, batch.target, cotangents)
    for name, tensor in free.items():
        if batched[name].shape != (*cotangents.shape[:2], *tensor.shape):
            raise RuntimeError(f"rows of {name} come in shape {tuple(batched[name].shape)}")
    return batched


def one_by_one(land: Landscape, matrix: str, free: Parameters, batch: Samples, cotangents: Tensor) -> Parameters:
    """Rows as of `side_by_side`, sample after sample: for layers that cannot be batched, such as recurrent ones."""
    singles = []
    for i in range(batch.n):
        point = {name: tensor.detach().requires_grad_() for name, tensor in free.items()}
        with torch.enable_grad():
            value = head(land, matrix, {**land.parameters, **point}, batch.take(slice(i, i + 1)))
            rows = [gradients(value, list(point.values()), s[None]) for s in cotangents[i]]
        singles.append([torch.stack(column) for column in zip(*rows, strict=True)])
    return dict(zip(free, (torch.stack(column) for column in zip(*singles, strict=True)), strict=True))


def gradients(value: Tensor, inputs: list[Tensor], cotangent: Tensor) -> list[Tensor]:
    """The gradients of cotangent · value, zero where the value does not depend on an input; the graph is kept."""
    if not value.requires_grad:
        return [torch.zeros_like(tensor) for tensor in inputs]
    return list(torch.autograd.grad(value, inputs, cotangent, retain_graph=True, materialize_grads=True))


def _with_batch_axis(tensor: Tensor) -> Tensor:
    return tensor.unsqueeze(0)
