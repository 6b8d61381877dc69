"""Losses and gradients of many parameter vectors at once: one row of a matrix per chain."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.func import jvp, vmap

from ..curvature.precision import full_precision, rounded_products, rounds
from ..curvature.tiles import activation_bytes, convolutional
from ..landscape import Landscape, math_attention
from ..samples import Samples, Tree, map_tensors, tensors
from .linear import QuickLinear, Slopes

_ALIGNMENT = {"cpu": 1, "cuda": 32}  # elements
_MEMORY = {"cpu": 512 * 2**20, "cuda": 16 * 2**30}
# Bytes of one chain's activations from which a processor, whose caches they would leave, is quicker chain by chain:
# a residual network 1.5 times, transformers 1.1 times. Convolutions of all chains together, which are grouped ones, are
# slower whatever their size: of LeNet-5 1.5 to 2.7 times on one thread.
APART = 16 * 2**20
# Chains from which a GPU is quicker with all of them together where there are convolutions: those of many networks take
# nearly as long for few as for many. With 4 chains a residual network is 1.7 times, LeNet-5 1.2 times as slow together.
# From `LONG` bytes of one chain's activations on it takes more chains: 6 of a residual network are 2.4 times as slow
# together on 1,000 images, 12 are as quick.
TOGETHER, TOGETHER_LONG = 6, 12
LONG = 2**29


class ChainLosses:
    """Excess losses L(w* + δ_c) − L(w*) and their gradients for chains c = 1..C, on all data or on minibatches.

    Chains run as one batch through `vmap`; a model that vmap cannot batch runs chain by chain with the same results, as
    does a large one on a processor, and few of a convolutional one on a GPU. Losses are compared with those of w*
    sample by sample, in float64, so that their difference keeps its digits.

    Args:
        land: the landscape.
        memory: bytes that the activations of one tile of chains and samples may take.

    Attributes:
        can_round: whether gradients on minibatches, and others that may be rounded, are: to TF32, on a GPU.
    """

    def __init__(self, land: Landscape, memory: int | None = None) -> None:
        self.land = land
        self.origin = land.flatten(land.parameters)
        self.batched = _can_batch(land)
        self.can_round = land.device.type == "cuda" and land.dtype == torch.float32
        self._memory = memory or _MEMORY.get(land.device.type, _MEMORY["cpu"])
        self._convolved = convolutional(land)
        self._channels_last = land.device.type == "cuda" and self._convolved and takes_channels_last(land)
        self._sample_bytes = 2 * activation_bytes(land)  # as much again passes through the backward pass
        with self.precise():
            self.base = land.per_sample(batch_size=self._tile(1))

    @property
    def dimension(self) -> int:
        return self.origin.numel()

    def precise(self) -> AbstractContextManager[None]:
        """True float32 for all that enters an energy, whatever the program has set."""
        return full_precision() if rounds(self.land.device.type) else nullcontext()

    def _tile(self, chains: int) -> int:
        """Samples per tile, so that one tile's activations for all chains stay within memory."""
        return max(1, min(self.land.n, self._memory // max(1, self._sample_bytes * chains)))

    def _apart(self, chains: int, batch: Samples, axis: int | None) -> bool:
        """Whether chains run one after the other although they could run together."""
        samples = tensors((batch.inputs, batch.target))[0].shape[axis is not None]
        return quicker_apart(self.land.device.type, chains, samples * self._sample_bytes, self._convolved)

    def excess(self, delta: Tensor) -> Tensor:
        """L_n(w* + δ) − L_n(w*) on all data, float64, shape (C,)."""
        total = torch.zeros(len(delta), dtype=torch.float64, device=delta.device)
        start = 0
        weights = self._at(delta)
        with torch.no_grad(), math_attention(), self.precise():
            for batch in self.land.batches(self._tile(len(delta))):
                stop = start + batch.n
                total += (self._losses(weights, batch, None).double() - self._level(slice(start, stop))).sum(1)
                start = stop
        return total / self.land.n

    def per_sample(self, delta: Tensor) -> Tensor:
        """l_i(w* + δ_c) on all data, float64, shape (C, n)."""
        weights = self._at(delta)
        with torch.no_grad(), math_attention(), self.precise():
            return torch.cat(
                [self._losses(weights, batch, None).double() for batch in self.land.batches(self._tile(len(delta)))],
                dim=1,
            )

    def along(self, delta: Tensor, direction: Tensor) -> Tensor:
        """∇l_i(w* + δ_c)·v_c on all data, float64, shape (C, n), by differentiating forward."""
        rows = []
        with math_attention(), self.precise(), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # torch compiles its rules by what it deprecates itself
            for batch in self.land.batches(self._tile(len(delta))):

                def losses(points: Tensor, batch: Samples = batch) -> Tensor:
                    return self._losses(_pieces(self.land, points), batch, None)

                rows.append(jvp(losses, (self.origin + delta,), (direction,))[1].double())
        return torch.cat(rows, dim=1)

    def own_excess(self, delta: Tensor, indices: Tensor) -> Tensor:
        """l_i(w* + δ_c) − l_i(w*) of chain c's own samples `indices[c]`, float64, shape (C, m)."""
        with torch.no_grad(), math_attention(), self.precise():
            losses = self._losses(self._at(delta), self.land.take(indices), 0)
        return losses.double() - self._level(indices)

    def full(self, delta: Tensor, scale: float = 1.0) -> tuple[Tensor, Tensor]:
        """Excess loss (C,) in float64 and the gradient (C, d) of scale·L_n, on all data."""
        with self.precise():
            return self._pass(delta, scale)

    def gradient(self, delta: Tensor, scale: float = 1.0, rounded: bool = False) -> Tensor:
        """The gradient (C, d) of scale·L_n on all data, equal to the one `full` returns unless it may be `rounded`."""
        with self._quick() if rounded else self.precise():
            return self._pass(delta, scale)[1]

    def _pass(self, delta: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        total = torch.zeros(len(delta), dtype=torch.float64, device=delta.device)
        gradient: Tensor | None = None
        start = 0
        for batch in self.land.batches(self._tile(len(delta))):
            stop = start + batch.n
            losses, slope = self._with_gradient(delta, batch, None, scale / self.land.n)
            total += (losses.double() - self._level(slice(start, stop))).sum(1)
            gradient = slope if gradient is None else gradient.add_(slope)
            start = stop
        assert gradient is not None
        return total / self.land.n, gradient

    def minibatch(self, delta: Tensor, indices: Tensor, scale: float = 1.0) -> tuple[Tensor, Tensor]:
        """Excess loss (C,) and gradient (C, d) of scale·L on chain c's own samples `indices[c]`, shape (C, m)."""
        with self._quick():
            losses, gradient = self._with_gradient(delta, self.land.take(indices), 0, scale / indices.shape[1])
        return (losses.double() - self._level(indices)).mean(1), gradient

    def _quick(self) -> AbstractContextManager[None]:
        """TF32 matrix products on a GPU, for float32 networks: minibatches are noisier than that."""
        return rounded_products() if self.can_round else nullcontext()

    def _with_gradient(self, delta: Tensor, batch: Samples, axis: int | None, scale: float) -> tuple[Tensor, Tensor]:
        weights = {name: tensor.requires_grad_() for name, tensor in self._at(delta).items()}
        gradient = _padded(delta)
        places = _pieces(self.land, gradient)
        slopes = Slopes(weights, places)
        with torch.enable_grad(), math_attention():
            losses = self._losses(weights, batch, axis, slopes)
            gradients = torch.autograd.grad(losses.sum() * scale, list(weights.values()), allow_unused=True)
        for (name, place), slope in zip(places.items(), gradients, strict=True):
            if slope is not None:
                place.add_(slope) if name in slopes.written else place.copy_(slope)
            elif name not in slopes.written:
                place.zero_()
        return losses.detach(), gradient

    def _at(self, delta: Tensor) -> dict[str, Tensor]:
        """The parameters w* + δ of all chains, (C, ...) each."""
        return _pieces(self.land, self._points(delta))

    def _level(self, chosen: slice | Tensor) -> Tensor:
        """l_i(w*) of the chosen samples: of all chains, or (C, m) of each chain's own."""
        return self.base[chosen]

    def _points(self, delta: Tensor) -> Tensor:
        """w* + δ."""
        return torch.add(self.origin, delta, out=_padded(delta))

    def _losses(
        self, weights: Mapping[str, Tensor], batch: Samples, axis: int | None, slopes: Slopes | None = None
    ) -> Tensor:
        """Per-sample losses (C, m); `axis` is 0 when every chain has samples of its own."""

        one = _one_of(self.land)
        chains = len(next(iter(weights.values())))
        if self.batched and not self._apart(chains, batch, axis):
            with QuickLinear(slopes):
                return vmap(one, in_dims=(0, axis, axis))(weights, batch.inputs, batch.target)
        rows = []
        apart = {name: tensor.unbind() for name, tensor in weights.items()}
        for c, names in enumerate(zip(*apart.values(), strict=True)):
            part = batch if axis is None else batch.take(c)
            inputs = channels_last(part.inputs) if self._channels_last else part.inputs
            rows.append(one(dict(zip(apart, names, strict=True)), inputs, part.target))
        return torch.stack(rows)


def quicker_apart(kind: str, chains: int, size: int, convolved: bool) -> bool:
    """Whether chains with `size` bytes of activations each are quicker one after the other on that kind of device.

    Examples:
        >>> quicker_apart("cpu", 8, 2**25, False), quicker_apart("cuda", 8, 2**25, False)
        (True, False)
        >>> quicker_apart("cpu", 8, 2**10, True)
        True
    """
    if kind == "cpu":
        return convolved or size > APART
    return kind == "cuda" and convolved and chains < (TOGETHER_LONG if size > LONG else TOGETHER)


def channels_last(inputs: Tree) -> Tree:
    """The same images, in memory as GPUs convolve them quickest: 1.5 times, for a residual network on an H200."""

    def laid_out(tensor: Tensor) -> Tensor:
        return tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor

    return map_tensors(laid_out, inputs)


def takes_channels_last(land: Landscape) -> bool:
    """Whether the network does the same with such images. One that takes a `view` of them may not.

    Examples:
        >>> import basinscope as bs
        >>> net = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 2), torch.nn.Flatten())
        >>> takes_channels_last(bs.Landscape(net, "mse", (torch.rand(5, 3, 2, 2), torch.rand(5, 2))))
        True
    """
    few = _few(land, 2)
    with torch.no_grad(), math_attention():
        plain = land.losses(land.parameters, few)
        try:
            losses = land.losses(land.parameters, Samples(channels_last(few.inputs), few.target, few.n))
        except RuntimeError:
            return False
    return _largest(losses - plain) <= 1e-2 * _largest(plain)  # TF32 has three digits


def _padded(delta: Tensor) -> Tensor:
    """Memory like `delta`, its rows padded so that every chain's weights start on a boundary fast GPU kernels need.

    On a processor rows follow each other: products of rows are several times slower if one starts on a boundary and
    the other does not.
    """
    rows, d = delta.shape
    unit = _ALIGNMENT.get(delta.device.type, 1)
    return torch.empty(rows, -(-d // unit) * unit, dtype=delta.dtype, device=delta.device)[:, :d]


def _pieces(land: Landscape, rows: Tensor) -> dict[str, Tensor]:
    """Rows (C, d) as the parameters of C chains: views."""
    pieces = rows.split([tensor.numel() for tensor in land.parameters.values()], dim=1)
    return {
        name: piece.view(len(rows), *tensor.shape)
        for (name, tensor), piece in zip(land.parameters.items(), pieces, strict=True)
    }


def _one_of(land: Landscape) -> Callable[[Mapping[str, Tensor], Tree, Tree], Tensor]:
    """The losses of one chain as a function of its parameters and its samples."""

    def one(weights: Mapping[str, Tensor], inputs: Tree, target: Tree) -> Tensor:
        return land.losses(weights, Samples(inputs, target, 0))

    return one


def _few(land: Landscape, count: int) -> Samples:
    return land.samples.take(torch.arange(count, device=land.samples.device) % land.n).to(land.device)


def _can_batch(land: Landscape) -> bool:
    """Whether vmap runs this model over chains, forward and backward, and agrees with the plain loop.

    They are compared beside w*, where gradients are more than rounding.
    """
    weights = {name: rows.requires_grad_() for name, rows in _beside(land).items()}
    few = _few(land, 2)

    def gradient(losses: Callable[[Mapping[str, Tensor]], Tensor]) -> list[Tensor]:
        with torch.enable_grad(), math_attention():
            values = losses(weights)
            slopes = torch.autograd.grad(values.sum(), list(weights.values()), materialize_grads=True)
        return [values.detach(), *slopes]

    def one(point: Mapping[str, Tensor]) -> Tensor:
        return land.losses(point, few)

    batch = land.take(torch.arange(4, device=land.samples.device).view(2, 2) % land.n)  # samples of each chain's own

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with QuickLinear():
                together = gradient(vmap(one))
                gradient(lambda rows: vmap(_one_of(land))(rows, batch.inputs, batch.target))
    except Exception:  # whatever vmap or the model's own code raises, the plain loop is right
        return False
    apart = gradient(lambda rows: torch.stack([one({name: row[c] for name, row in rows.items()}) for c in range(2)]))
    floor = 1e-5 * max(_largest(slope) for slope in apart[1:])
    return all(_largest(a - b) <= 1e-3 * _largest(b) + floor for a, b in zip(together, apart, strict=True))


def _beside(land: Landscape) -> dict[str, Tensor]:
    """Two points beside w*, the entries of every weight a tenth of its root mean square away: (2, ...) each."""
    generator = torch.Generator(land.device).manual_seed(0)
    points = {}
    for name, weight in land.parameters.items():
        noise = torch.randn(2, *weight.shape, dtype=weight.dtype, device=weight.device, generator=generator)
        points[name] = weight + 0.1 * weight.square().mean().sqrt() * noise
    return points


def _largest(tensor: Tensor) -> float:
    return float(tensor.abs().amax()) if tensor.numel() else 0.0
