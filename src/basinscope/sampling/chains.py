"""Losses and gradients of many parameter vectors at once: one row of a matrix per chain."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import vmap
from torch.utils.flop_counter import FlopCounterMode

from ..landscape import Landscape, math_attention
from ..samples import Samples, Tree

_MEMORY = {"cpu": 512 * 2**20, "cuda": 16 * 2**30}


class ChainLosses:
    """Excess losses L(w* + δ_c) − L(w*) and their gradients for chains c = 1..C, on all data or on minibatches.

    Chains run as one batch through `vmap`; a model that vmap cannot batch runs chain by chain with the same results.
    Losses are compared with those of w* sample by sample, in float64, so that their difference keeps its digits.

    Args:
        land: the landscape.
        memory: bytes that the activations of one tile of chains and samples may take.
    """

    def __init__(self, land: Landscape, memory: int | None = None) -> None:
        self.land = land
        self.origin = land.flatten(land.parameters)
        self.batched = _can_batch(land)
        self._fast = land.device.type == "cuda" and land.dtype == torch.float32
        self._memory = memory or _MEMORY.get(land.device.type, _MEMORY["cpu"])
        self._activation_bytes, self.sample_flops = _cost_of_sample(land)
        self.base = land.per_sample(batch_size=self._tile(1))

    @property
    def dimension(self) -> int:
        return self.origin.numel()

    def _tile(self, chains: int) -> int:
        """Samples per tile, so that one tile's activations for all chains stay within memory."""
        return max(1, min(self.land.n, self._memory // max(1, self._activation_bytes * chains)))

    def excess(self, delta: Tensor) -> Tensor:
        """L_n(w* + δ) − L_n(w*) on all data, float64, shape (C,)."""
        total = torch.zeros(len(delta), dtype=torch.float64, device=delta.device)
        start = 0
        with torch.no_grad(), math_attention():
            for batch in self.land.batches(self._tile(len(delta))):
                stop = start + batch.n
                total += (self._losses(self.origin + delta, batch, None).double() - self.base[start:stop]).sum(1)
                start = stop
        return total / self.land.n

    def per_sample(self, delta: Tensor) -> Tensor:
        """l_i(w* + δ_c) on all data, float64, shape (C, n)."""
        with torch.no_grad(), math_attention():
            return torch.cat(
                [
                    self._losses(self.origin + delta, batch, None).double()
                    for batch in self.land.batches(self._tile(len(delta)))
                ],
                dim=1,
            )

    def full(self, delta: Tensor) -> tuple[Tensor, Tensor]:
        """Excess loss (C,) in float64 and the gradient (C, d) of L_n, on all data."""
        if self._fast:
            return self.excess(delta), self.gradient(delta)
        return self._pass(delta)

    def gradient(self, delta: Tensor) -> Tensor:
        """The gradient (C, d) of L_n on all data, equal to the one `full` returns.

        On a GPU it is taken in TF32: a sampler that accepts or rejects by the precise energy needs of its force only
        that it is a fixed function of the position.
        """
        if not self._fast:
            return self._pass(delta)[1]
        precision = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        try:
            return self._pass(delta)[1]
        finally:
            torch.set_float32_matmul_precision(precision)

    def _pass(self, delta: Tensor) -> tuple[Tensor, Tensor]:
        total = torch.zeros(len(delta), dtype=torch.float64, device=delta.device)
        gradient = torch.zeros_like(delta)
        start = 0
        for batch in self.land.batches(self._tile(len(delta))):
            stop = start + batch.n
            losses, slope = self._with_gradient(delta, batch, None)
            total += (losses.double() - self.base[start:stop]).sum(1)
            gradient += slope
            start = stop
        return total / self.land.n, gradient / self.land.n

    def minibatch(self, delta: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Excess loss (C,) and gradient (C, d) on chain c's own samples `indices[c]`, shape (C, m)."""
        losses, gradient = self._with_gradient(delta, self.land.take(indices), 0)
        return (losses.double() - self.base[indices]).mean(1), gradient / indices.shape[1]

    def _with_gradient(self, delta: Tensor, batch: Samples, axis: int | None) -> tuple[Tensor, Tensor]:
        points = (self.origin + delta).requires_grad_()
        with torch.enable_grad(), math_attention():
            losses = self._losses(points, batch, axis)
            (gradient,) = torch.autograd.grad(losses.sum(), points)
        return losses.detach(), gradient

    def _losses(self, points: Tensor, batch: Samples, axis: int | None) -> Tensor:
        """Per-sample losses (C, m); `axis` is 0 when every chain has samples of its own."""

        def one(point: Tensor, inputs: Tree, target: Tree) -> Tensor:
            return self.land.losses(self.land.unflatten(point), Samples(inputs, target, 0))

        if self.batched:
            return vmap(one, in_dims=(0, axis, axis))(points, batch.inputs, batch.target)
        rows = []
        for c, point in enumerate(points):
            own = batch if axis is None else batch.take(c)
            rows.append(one(point, own.inputs, own.target))
        return torch.stack(rows)


def _few(land: Landscape, count: int) -> Samples:
    return land.samples.take(torch.arange(count, device=land.samples.device) % land.n).to(land.device)


def _can_batch(land: Landscape) -> bool:
    """Whether vmap runs this model over chains, forward and backward, and agrees with the plain loop."""
    points = land.flatten(land.parameters).expand(2, -1).clone().requires_grad_()
    few = _few(land, 2)

    def gradient(losses: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        with torch.enable_grad(), math_attention():
            values = losses(points)
            (slope,) = torch.autograd.grad(values.sum(), points)
        return values.detach(), slope

    def one(point: Tensor) -> Tensor:
        return land.losses(land.unflatten(point), few)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            together = gradient(vmap(one))
    except (RuntimeError, ValueError, TypeError, NotImplementedError):
        return False
    apart = gradient(lambda rows: torch.stack([one(row) for row in rows]))
    return all(torch.allclose(a, b, rtol=1e-3, atol=1e-5) for a, b in zip(together, apart, strict=True))


def _cost_of_sample(land: Landscape) -> tuple[int, int]:
    """Bytes kept for the backward pass and arithmetic of one loss-and-gradient, per sample and chain."""
    point = land.flatten(land.parameters).requires_grad_()

    def measured(count: int) -> tuple[int, int]:
        few, kept = _few(land, count), 0

        def pack(tensor: Tensor) -> Tensor:
            nonlocal kept
            kept += tensor.numel() * tensor.element_size()
            return tensor

        with (
            torch.enable_grad(),
            math_attention(),
            FlopCounterMode(display=False) as flops,
            torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        ):
            torch.autograd.grad(land.losses(land.unflatten(point), few).sum(), point)
        return kept, flops.get_total_flops()

    (small, few_flops), (large, more_flops) = measured(2), measured(6)
    return max(64, (large - small) // 4 * 2), max(1, (more_flops - few_flops) // 4)
