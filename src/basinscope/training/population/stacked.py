"""Losses and gradients of stacked plain networks by hand-written batched products."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from ...landscape import Landscape
from ...samples import Samples
from .layers import Layer, LayerPlan


class Stacked:
    """A plain network as batched matrix products over members; see `layers`.

    Args:
        land: the landscape of one member.
        plan: its layers.
    """

    def __init__(self, land: Landscape, plan: LayerPlan) -> None:
        self.template, self.places = plan.template, plan.places
        self._layers = plan.layers
        self._categorical = land.loss.family == "categorical"
        self._variance = land.loss.variance
        last = plan.layers[-1].outputs
        self._width = last.width
        zero = torch.zeros(1, last.values, dtype=torch.float64)
        # what a Gaussian loss adds to the square: its value where the residual is zero
        self._constant = 0.0 if self._categorical else float(land.loss.per_sample(zero, zero))
        self._minus_one = torch.full((), -1.0, dtype=land.dtype, device=land.device)
        elements = plan.layers[0].inputs.total + sum(2 * layer.outputs.total for layer in plan.layers)
        self.sample_bytes = elements * self.template.element_size()
        self.tile_bytes = 2**22  # stays in the cache of a processor core

    def pool(self, samples: Samples) -> tuple[Tensor, Tensor]:
        """Inputs and targets laid out as the layers read them, one row a sample."""
        shape = self._layers[0].inputs
        inputs = samples.inputs
        rows = torch.zeros(samples.n, shape.total, dtype=inputs.dtype, device=inputs.device)
        rows[:, shape.order().to(rows.device)] = inputs.flatten(1)
        rows[:, shape.values :: shape.width] = 1
        if self._categorical:
            return rows, samples.target.long()
        target = samples.target.to(inputs.dtype).reshape(samples.n, -1)
        return rows, functional.pad(target, (0, self._width - target.shape[1]))

    def _forward(self, points: Tensor, inputs: Tensor) -> Iterator[tuple[Layer, Tensor, Tensor]]:
        """Each layer with its matrices and its outputs."""
        for layer in self._layers:
            matrix = layer.matrix(points)
            outputs = inputs.new_empty(*inputs.shape[:2], layer.outputs.total)
            for read, write in layer.windows():
                torch.bmm(inputs[:, :, read], matrix, out=outputs[:, :, write])
            if layer.activation.apply is not None:
                layer.activation.apply(outputs)
            yield layer, matrix, outputs
            inputs = outputs

    def gradient(self, points: Tensor, inputs: Tensor, target: Tensor, gradient: Tensor, losses: Tensor | None) -> None:
        """Put the gradients of the members' mean losses into `gradient` (M, D), their losses into `losses` (M,).

        `inputs` (M, b, ·) and `target` (M, b, …) are rows of a pool.
        """
        # Forward, with everything kept for the way back.
        trace = list(self._forward(points, inputs))
        scores = trace[-1][2]
        if losses is not None:
            losses.copy_(self._per_sample(scores, target).mean(1))
        # Backward: each layer's gradient, then the gradient of what is below it.
        delta = self._residual(scores, target)
        for i in reversed(range(len(trace))):
            layer, matrix, _ = trace[i]
            below = inputs if i == 0 else trace[i - 1][2]
            self._collect(layer, below, delta, gradient)
            if i > 0:
                delta = _backward(layer, matrix, points, delta)
                activation = trace[i - 1][0].activation
                if activation.backward is not None:
                    delta = activation.backward(delta, below)

    def _collect(self, layer: Layer, below: Tensor, delta: Tensor, gradient: Tensor) -> None:
        """The gradient of T is belowᵀ delta / b, summed over windows; each parameter gathers its entries of T."""
        stored = gradient[:, layer.offset : layer.offset + layer.size]
        entries = layer.depth * layer.outputs.width
        if layer.repeats is None:
            flat = stored
        else:
            flat = gradient.new_empty(len(gradient), entries + 1)
            flat[:, entries] = 0
        slope = flat[:, :entries].unflatten(1, (layer.depth, layer.outputs.width))
        scale = 1 / (below.shape[1] * self._variance)
        for number, (read, write) in enumerate(layer.windows()):
            torch.baddbmm(slope, below[:, :, read].mT, delta[:, :, write], beta=int(number > 0), alpha=scale, out=slope)
        if layer.repeats is not None:
            torch.sum(flat[:, layer.repeats], dim=1, out=stored)

    def _residual(self, scores: Tensor, target: Tensor) -> Tensor:
        """∂ loss / ∂ outputs, up to the variance: probabilities minus the label, or output minus target."""
        if not self._categorical:
            return scores - target
        delta = torch.softmax(scores, dim=-1)
        return delta.scatter_add_(-1, target[..., None], self._minus_one.expand(*target.shape, 1))

    def _per_sample(self, scores: Tensor, target: Tensor) -> Tensor:
        if self._categorical:
            return torch.logsumexp(scores, dim=-1) - scores.gather(-1, target[..., None]).squeeze(-1)
        return (scores - target).square().sum(-1) / (2 * self._variance) + self._constant

    def evaluate(self, points: Tensor, inputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor | None]:
        """Losses (M, m) of all members on the same samples, and which labels are met."""
        members = len(points)
        everywhere = inputs.expand(members, *inputs.shape)
        *_, (_, _, scores) = self._forward(points, everywhere)
        labels = target.expand(members, *target.shape)
        met = scores.argmax(-1) == labels if self._categorical else None
        return self._per_sample(scores, labels), met


def _backward(layer: Layer, matrix: Tensor, points: Tensor, delta: Tensor) -> Tensor:
    """The gradient with respect to a layer's inputs: each block of them collects from the windows that read it."""
    if layer.outputs.blocks == 1:
        return torch.bmm(delta, matrix.mT)
    width, above = layer.inputs.width, layer.outputs.width
    # Block y is read by the windows y − kernel + 1 … y, as their block kernel − 1 … 0.
    turned = layer.turned_matrix(points)
    below = delta.new_empty(*delta.shape[:2], layer.inputs.total)
    for y in range(layer.inputs.blocks):
        first, last = max(0, y - layer.kernel + 1), min(layer.outputs.blocks - 1, y)
        shift = layer.kernel - 1 - y
        torch.bmm(
            delta[:, :, first * above : (last + 1) * above],
            turned[:, (shift + first) * above : (shift + last + 1) * above],
            out=below[:, :, y * width : (y + 1) * width],
        )
    return below
