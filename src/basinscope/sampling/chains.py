"""Losses and gradients of many parameter vectors at once: one row of a matrix per chain."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.func import vmap

from ..curvature.tiles import activation_bytes
from ..landscape import Landscape, math_attention
from ..samples import Samples, Tree
from .linear import QuickLinear

_ALIGNMENT = 32  # elements
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
        self._sample_bytes = 2 * activation_bytes(land)  # as much again passes through the backward pass
        self.base = land.per_sample(batch_size=self._tile(1))

    @property
    def dimension(self) -> int:
        return self.origin.numel()

    def _tile(self, chains: int) -> int:
        """Samples per tile, so that one tile's activations for all chains stay within memory."""
        return max(1, min(self.land.n, self._memory // max(1, self._sample_bytes * chains)))

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

    def own_excess(self, delta: Tensor, indices: Tensor) -> Tensor:
        """l_i(w* + δ_c) − l_i(w*) of chain c's own samples `indices[c]`, float64, shape (C, m)."""
        with torch.no_grad(), math_attention():
            there = self._losses(self.origin + delta, self.land.take(indices), 0)
        return there.double() - self.base[indices]

    def full(self, delta: Tensor, scale: float = 1.0) -> tuple[Tensor, Tensor]:
        """Excess loss (C,) in float64 and the gradient (C, d) of scale·L_n, on all data."""
        if self._fast:
            return self.excess(delta), self.gradient(delta, scale)
        return self._pass(delta, scale)

    def gradient(self, delta: Tensor, scale: float = 1.0) -> Tensor:
        """The gradient (C, d) of scale·L_n on all data, equal to the one `full` returns.

        On a GPU it is taken in TF32: a sampler that accepts or rejects by the precise energy needs of its force only
        that it is a fixed function of the position.
        """
        with self._quick():
            return self._pass(delta, scale)[1]

    def _pass(self, delta: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        total = torch.zeros(len(delta), dtype=torch.float64, device=delta.device)
        gradient: Tensor | None = None
        start = 0
        for batch in self.land.batches(self._tile(len(delta))):
            stop = start + batch.n
            losses, slope = self._with_gradient(delta, batch, None, scale / self.land.n)
            total += (losses.double() - self.base[start:stop]).sum(1)
            gradient = slope if gradient is None else gradient.add_(slope)
            start = stop
        assert gradient is not None
        return total / self.land.n, gradient

    def minibatch(self, delta: Tensor, indices: Tensor, scale: float = 1.0) -> tuple[Tensor, Tensor]:
        """Excess loss (C,) and gradient (C, d) of scale·L on chain c's own samples `indices[c]`, shape (C, m)."""
        with self._quick():
            losses, gradient = self._with_gradient(delta, self.land.take(indices), 0, scale / indices.shape[1])
        return (losses.double() - self.base[indices]).mean(1), gradient

    @contextmanager
    def _quick(self) -> Iterator[None]:
        """TF32 matrix products on a GPU, for float32 networks."""
        precision = torch.get_float32_matmul_precision()
        if self._fast:
            torch.set_float32_matmul_precision("high")
        try:
            yield
        finally:
            if self._fast:
                torch.set_float32_matmul_precision(precision)

    def _with_gradient(self, delta: Tensor, batch: Samples, axis: int | None, scale: float) -> tuple[Tensor, Tensor]:
        points = self._points(delta).requires_grad_()
        with torch.enable_grad(), math_attention():
            losses = self._losses(points, batch, axis)
            (gradient,) = torch.autograd.grad(losses.sum() * scale, points)
        return losses.detach(), gradient

    def _points(self, delta: Tensor) -> Tensor:
        """w* + δ, rows padded in memory so that every chain's weights start on a boundary fast GPU kernels need."""
        rows, d = delta.shape
        padded = torch.empty(rows, -(-d // _ALIGNMENT) * _ALIGNMENT, dtype=delta.dtype, device=delta.device)
        return torch.add(self.origin, delta, out=padded[:, :d])

    def _losses(self, points: Tensor, batch: Samples, axis: int | None) -> Tensor:
        """Per-sample losses (C, m); `axis` is 0 when every chain has samples of its own."""

        one = _one_of(self.land)
        if self.batched:
            with QuickLinear():
                return vmap(one, in_dims=(0, axis, axis))(points, batch.inputs, batch.target)
        rows = []
        for c, point in enumerate(points):
            own = batch if axis is None else batch.take(c)
            rows.append(one(point, own.inputs, own.target))
        return torch.stack(rows)


def _one_of(land: Landscape) -> Callable[[Tensor, Tree, Tree], Tensor]:
    """The losses of one chain as a function of its point and its samples."""

    def one(point: Tensor, inputs: Tree, target: Tree) -> Tensor:
        return land.losses(land.unflatten(point), Samples(inputs, target, 0))

    return one


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

    own = land.take(torch.arange(4, device=land.samples.device).view(2, 2) % land.n)  # samples of each chain's own

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with QuickLinear():
                together = gradient(vmap(one))
                gradient(lambda rows: vmap(_one_of(land))(rows, own.inputs, own.target))
    except Exception:  # whatever vmap or the model's own code raises, the plain loop is right
        return False
    apart = gradient(lambda rows: torch.stack([one(row) for row in rows]))
    return all(torch.allclose(a, b, rtol=1e-3, atol=1e-5) for a, b in zip(together, apart, strict=True))
