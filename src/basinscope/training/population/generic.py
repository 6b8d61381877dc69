"""Losses and gradients of stacked networks of any kind, by vmap."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import vmap

from ...curvature.tiles import DEFAULT_MEMORY, activation_bytes
from ...errors import InputError
from ...landscape import Landscape, math_attention
from ...losses import logits
from ...samples import Samples, Tree, map_tensors
from .layers import padded


class Generic:
    """Any network that vmap can batch over members; a row of parameters is the flat vector, padded.

    Args:
        land: the landscape of one member.
    """

    def __init__(self, land: Landscape) -> None:
        self._land = land
        self.template = torch.zeros(padded(land.dimension), dtype=land.dtype, device=land.device)
        self.places = torch.arange(land.dimension, device=land.device)
        self._categorical = land.loss.family == "categorical"
        self.sample_bytes = 2 * activation_bytes(land)  # as much again passes through the backward pass
        self.tile_bytes = DEFAULT_MEMORY  # vmap costs the same for few members as for many: as many as possible

    def pool(self, samples: Samples) -> tuple[Tree, Tree]:
        """The samples as they are."""
        return samples.inputs, samples.target

    def _losses(self, points: Tensor, inputs: Tree, target: Tree, axis: int | None) -> tuple[Tensor, Tensor | None]:
        def of_member(point: Tensor, inputs: Tree, target: Tree) -> tuple[Tensor, Tensor]:
            output = self._land.outputs(self._land.unflatten(point[: self._land.dimension]), inputs)
            return self._land.loss.per_sample(output, target), self._met(output, target)

        with math_attention():
            losses, met = vmap(of_member, in_dims=(0, axis, axis))(points, inputs, target)
        return losses, met if self._categorical else None

    def _met(self, output: Tensor, target: Tree) -> Tensor:
        """Whether each label is met, or the share of its positions where a sample has several."""
        if not self._categorical:
            return torch.zeros(())
        scores = logits(output).detach()
        hit = scores.argmax(self._land.loss.class_dimension(scores, target)) == target
        return hit if hit.ndim == 1 else hit.flatten(1).to(scores.dtype).mean(1)

    def gradient(self, points: Tensor, inputs: Tree, target: Tree, gradient: Tensor, losses: Tensor | None) -> None:
        """As `Stacked.gradient`."""
        free = points.detach().requires_grad_()
        with torch.enable_grad():
            means = self._losses(free, inputs, target, 0)[0].mean(1)
            (slope,) = torch.autograd.grad(means.sum(), free)
        gradient.copy_(slope)
        if losses is not None:
            losses.copy_(means.detach())

    def evaluate(self, points: Tensor, inputs: Tree, target: Tree) -> tuple[Tensor, Tensor | None]:
        """As `Stacked.evaluate`."""
        return self._losses(points, inputs, target, None)

    def check(self) -> None:
        """Refuse a model that vmap cannot batch."""
        points = self.template.expand(2, -1).clone()
        points[:, self.places] = self._land.flatten(self._land.parameters)
        few = self._land.take(torch.arange(4).view(2, 2) % self._land.n)
        inputs, target = (map_tensors(lambda tensor: tensor, part) for part in (few.inputs, few.target))
        try:
            self.gradient(points, inputs, target, torch.empty_like(points), None)
        except Exception as error:  # whatever vmap or the model's own code raises
            raise InputError(
                f"the model cannot be batched over members: {type(error).__name__}: {error} — write it with plain "
                f"tensor operations, or train its members one by one"
            ) from error
