"""Tr F and Tr (H − F) of plain stacks in closed form, one pass through the network and back.

The loss l as a function of a layer's output u has a Hessian C(u) for every sample. As a function of the layer's weight
it is C ⊗ a aᵀ, and of its bias C, so the diagonal blocks have the traces ‖a‖² Tr C and Tr C. Backwards, through a layer
C becomes Wᵀ C W, and through an elementwise function φ it becomes diag(φ') C diag(φ') + diag(φ'' ∘ g), where g is the
gradient of l above φ. Only the last term is no part of F.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..landscape import Landscape
from ..progress import Report
from ..samples import Samples
from .likelihood import IGNORED_LABEL, output_curvature, roots
from .precision import full_precision
from .stack import Stage, stack_of, stages
from .tiles import memory_bound

MAX_PASSES = 128  # worth of multiplications, in backward passes: beyond, other ways are cheaper


@dataclass(frozen=True)
class StackTraces:
    """Traces of the diagonal blocks of F and, if asked for, of H − F by parameter name."""

    fisher: dict[str, float]
    residual: dict[str, float]


def stack_traces(
    land: Landscape,
    *,
    curved: bool,
    memory: int | None = None,
    report: Report = lambda fraction, text: None,
) -> StackTraces | None:
    """The traces of a network that is a plain stack; None if it is not, or if that takes too many multiplications.

    Examples:
        >>> import torch, basinscope as bs
        >>> land = bs.Landscape(torch.nn.Linear(2, 1, bias=False), "mse", (torch.ones(5, 2), torch.ones(5, 1)))
        >>> stack_traces(land, curved=True)
        StackTraces(fisher={'weight': 2.0}, residual={'weight': 0.0})
    """
    if land.loss.family == "custom":
        return None
    with full_precision():
        stack = stack_of(land)
        if stack is None:
            return None
        passes, numbers = _cost(stack, curved)
        if passes > MAX_PASSES:
            return None
        traces = StackTraces(dict.fromkeys(land.parameters, 0.0), dict.fromkeys(land.parameters, 0.0))
        size = max(1, memory_bound(land, memory) // (numbers * torch.finfo(land.dtype).bits // 8))
        done = 0
        for batch in land.batches(size):
            recorded = stages(land, batch)
            if recorded is None or _several(land, recorded[1]):
                return None
            _add(traces, land, batch, *recorded, curved)
            done += batch.n
            report(done / land.n, "")
    return traces


def _several(land: Landscape, value: Tensor) -> bool:
    """Whether a sample has several positions with classes of their own."""
    return land.loss.family == "categorical" and value.ndim != 2


def _cost(stack: list[Stage], curved: bool) -> tuple[float, int]:
    """Multiplications in units of a backward pass, and how many numbers are in memory per sample."""
    above = [stage.weight for stage in stack[1:]]
    numbers = 12 * sum(sum(stage.weight.shape) for stage in stack)
    work, columns = 0, len(stack[-1].weight)
    for weight in reversed(above[1:]):
        work += columns * weight.numel()
        numbers = max(numbers, 12 * sum(weight.shape) + 5 * columns * max(weight.shape))
        columns += len(weight) if curved else 0
    if len(above) > 1:
        work += columns * above[0].numel()
        numbers += 4 * columns * max(above[0].shape)
    return work / max(1, sum(weight.numel() for weight in above)), numbers


def _add(traces: StackTraces, land: Landscape, batch: Samples, stack: list[Stage], value: Tensor, curved: bool) -> None:
    """Add a batch's share, from the outputs down to the first layer."""
    fisher: Columns | Softmax = _output(land, value, batch)
    residual: Columns | None = None
    derivatives = [_derivatives(stage, curved) if stage.functions else (None, None) for stage in stack]
    curved = any(bend is not None for _, bend in derivatives)
    gradient = _slope(land, value, batch) if curved else None
    for place, stage in reversed(list(enumerate(stack))):
        # Down through the elementwise functions: diag(φ') C diag(φ'), plus diag(φ'' ∘ g) for H − F alone.
        slope, bend = derivatives[place]
        if slope is not None:
            fisher, residual = fisher.between(slope), residual and residual.between(slope)
            if gradient is not None and bend is not None:
                residual = Columns.of(bend * gradient) if residual is None else residual.plus(bend * gradient)
            gradient = None if gradient is None else gradient * slope
        # The layer's own traces, ‖a‖² Tr C and Tr C.
        # In pieces that stay in the processor's cache: the inputs are often the largest tensor of all.
        squares = torch.cat([part.square().sum(1) for part in stage.input.split(256)]).double()
        for total, part in ((traces.fisher, fisher), (traces.residual, residual)):
            if part is not None:
                _add_layer(total, stage.names, part.trace().double() / land.n, squares)
        if place == 0:
            break
        # Down through the layer: Wᵀ C W.
        weight = stage.weight
        if place == 1:  # of the first layer only a trace is wanted, so the diagonal is enough
            fisher, residual = fisher.diagonal(weight), residual and residual.diagonal(weight)
        else:
            fisher, residual = fisher.through(weight), residual and residual.through(weight)
        gradient = None if gradient is None else gradient @ weight


def _add_layer(total: dict[str, float], names: tuple[str | None, str | None], traces: Tensor, squares: Tensor) -> None:
    weight, bias = names
    if weight is not None:
        total[weight] += float(squares @ traces)
    if bias is not None:
        total[bias] += float(traces.sum())


def _slope(land: Landscape, value: Tensor, batch: Samples) -> Tensor:
    """∇_z l_i, one row a sample."""
    with torch.enable_grad():
        scores = value.detach().requires_grad_()
        total = land.loss.per_sample(scores, batch.target).sum()
        return torch.autograd.grad(total, scores)[0].reshape(batch.n, -1)


def _derivatives(stage: Stage, curved: bool) -> tuple[Tensor, Tensor | None]:
    """φ' and φ'' at the layer's outputs; no φ'' where it is zero or not asked for."""
    bend, curved = None, curved and not stage.straight
    with torch.enable_grad():
        output = stage.output.detach().requires_grad_()
        (slope,) = torch.autograd.grad(stage.above(output).sum(), output, create_graph=curved)
        if slope.requires_grad:
            (bend,) = torch.autograd.grad(slope.sum(), output, allow_unused=True)
    return slope.detach(), None if bend is None or not bool(bend.any()) else bend


# ---------------------------------------------------------------------- a symmetric matrix for every sample


@dataclass(frozen=True)
class Columns:
    """C = diag(e) + Σ_r c_r y_r y_rᵀ: `rest` e (m, w), `weights` c (m, r), `columns` y (m, r, w)."""

    rest: Tensor
    weights: Tensor
    columns: Tensor

    @classmethod
    def of(cls, rest: Tensor) -> Columns:
        """A diagonal matrix."""
        return cls(rest, rest.new_zeros(len(rest), 0), rest.new_zeros(len(rest), 0, rest.shape[1]))

    def trace(self) -> Tensor:
        return self.rest.sum(1) + (self.weights * self.columns.square().sum(2)).sum(1)

    def between(self, slope: Tensor) -> Columns:
        """diag(φ') C diag(φ')."""
        return Columns(slope.square().mul_(self.rest), self.weights, self.columns * slope[:, None])

    def plus(self, rest: Tensor) -> Columns:
        return Columns(self.rest + rest, self.weights, self.columns)

    def diagonal(self, weight: Tensor) -> Columns:
        """Wᵀ C W without what is off its diagonal."""
        rest = self.rest @ weight.square()
        if self.weights.shape[1]:
            rest = rest + (self.weights[:, None] @ (self.columns @ weight).square())[:, 0]
        return Columns.of(rest)

    def through(self, weight: Tensor) -> Columns:
        """Wᵀ C W, to which every unit with e ≠ 0 adds a column of its own."""
        images, weights = self.columns @ weight, self.weights
        if bool(self.rest.any()):
            images = torch.cat([images, weight.expand(len(images), *weight.shape)], 1)
            weights = torch.cat([weights, self.rest], 1)
        return Columns(weight.new_zeros(len(images), weight.shape[1]), weights, images)


@dataclass(frozen=True)
class Softmax:
    """C = diag(p) − p pᵀ = diag(d) − e dᵀ − d eᵀ − d dᵀ, with e the unit vector of the likeliest class and d = p − e.

    Written in d, nothing cancels where p is nearly e. `top` (m, 1) is the likeliest class, `shift` d (m, K), and
    `columns` makes the same matrices as sums over K − 1 columns.
    """

    top: Tensor
    shift: Tensor
    columns: Callable[[], Columns]

    def trace(self) -> Tensor:
        return -2 * self.shift.gather(1, self.top)[:, 0] - self.shift.square().sum(1)

    def between(self, slope: Tensor) -> Columns:
        return self.columns().between(slope)

    def through(self, weight: Tensor) -> Columns:
        return self.columns().through(weight)

    def diagonal(self, weight: Tensor) -> Columns:
        image = self.shift @ weight
        both = weight.index_select(0, self.top[:, 0]).mul_(2).add_(image)
        return Columns.of((self.shift @ weight.square()).addcmul_(image, both, value=-1))


def _output(land: Landscape, value: Tensor, batch: Samples) -> Columns | Softmax:
    """The curvature of the loss in the network's outputs."""
    if land.loss.family != "categorical":
        return Columns.of(output_curvature(land, value, batch.target)(torch.ones_like(value)).reshape(batch.n, -1))

    def columns() -> Columns:
        cotangents = [*roots(land, "fisher", value, batch.target), value.new_zeros(value.shape)]
        stacked = torch.stack(cotangents, 1)[:, :-1]  # the zeros are for a single class, which has no root to stack
        return Columns(torch.zeros_like(value), value.new_ones(stacked.shape[:2]), stacked)

    probability = value.softmax(1)
    top = probability.argmax(1, keepdim=True)
    others = probability.scatter(1, top, 0)
    shift = others.scatter(1, top, -others.sum(1, keepdim=True))
    return Softmax(top, shift * (batch.target != IGNORED_LABEL)[:, None], columns)
