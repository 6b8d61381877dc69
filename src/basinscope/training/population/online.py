"""The online low-rank natural gradient for a whole population at once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

from ...optim import OnlineNGD as Alone
from ...optim.lowrank import Due, LowRank, advanced, due, initial, preconditioned, weight_of_batch
from ...optim.natural import FIRST
from ...optim.online import rank_of_axis
from .updates import Layout, Rows


@dataclass(frozen=True)
class OnlineNGD:
    """`basinscope.optim.OnlineNGD` for every member, with the member's own learning rate and weight decay.

    Its state is a low-rank matrix per axis of each gradient tensor, so that members stack. Its eigenvalue problems
    are solved by the processor: on a GPU it runs without CUDA graphs.

    Examples:
        >>> OnlineNGD(alpha=0.1).update_period
        4
    """

    alpha: float = 0.1
    epsilon: float = 1e-10
    eta: float | None = 0.9
    history: float = 2000.0
    delta: float = 5e-4
    rank: int | tuple[int, int] | None = None
    rescale: bool = True
    update_period: int = 4
    momentum: float = 0.0

    def __post_init__(self) -> None:
        Alone([nn.Parameter(torch.zeros(2, 2))], **asdict(self))  # its checks are ours

    @property
    def capturable(self) -> bool:
        return False

    def start(self, points: Tensor, layout: Layout) -> dict[str, Tensor]:
        slots = {"velocity": torch.zeros_like(points)} if self.momentum else {}
        for number, axis, size in _axes(layout):
            rank = rank_of_axis(self.rank, axis, size)
            slots[f"basis.{number}.{axis}"] = points.new_zeros(len(points), rank, size)
            slots[f"spectrum.{number}.{axis}"] = points.new_zeros(len(points), rank, dtype=torch.float64)
            slots[f"floor.{number}.{axis}"] = points.new_zeros(len(points), dtype=torch.float64)
        return slots

    def factors(self, steps: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """Whether it is the first step, and whether the matrices are renewed in it."""
        return steps == 1, (steps <= FIRST) | ((steps - 1) % self.update_period == 0)

    def apply(self, rows: Rows) -> None:
        first, renewed = (bool(factor) for factor in rows.factors)
        rows.gradient.addcmul_(rows.points, rows.decay)
        sizes = [math.prod(shape) for shape in rows.layout.shapes]
        pieces = rows.gradient[:, rows.layout.places].split(sizes, dim=1)
        updates: dict[str, Due] = {}
        found = [
            self._direction(number, piece.unflatten(1, shape), rows.slots, first, renewed, updates).flatten(1)
            for number, (piece, shape) in enumerate(zip(pieces, rows.layout.shapes, strict=True))
        ]
        for place, state in zip(updates, advanced(list(updates.values())), strict=True):
            for tensor, value in zip(_kept(place, rows.slots), state, strict=True):
                tensor.copy_(value)
        move = torch.zeros_like(rows.gradient)
        move[:, rows.layout.places] = torch.cat(found, dim=1)
        if self.momentum:
            move = rows.slots["velocity"].mul_(self.momentum).add_(move)
        rows.points.addcmul_(move, rows.rate, value=-1)

    def _direction(
        self, number: int, gradient: Tensor, slots: Mapping[str, Tensor], first: bool, renewed: bool,
        updates: dict[str, Due],
    ) -> Tensor:  # fmt: skip
        """One parameter's gradients (M, …) through the inverse of each axis in turn; notes the updates to make."""
        for axis, size in enumerate(gradient.shape[1:]):
            if size == 1:
                continue
            place = f"{number}.{axis}"
            turned = gradient.movedim(axis + 1, -1)
            flat = turned.reshape(len(gradient), -1, size)
            eta = weight_of_batch(flat.shape[1], self.history) if self.eta is None else self.eta
            settings = {"eta": eta, "epsilon": self.epsilon, "delta": self.delta}
            if first:
                state = initial(flat, rank_of_axis(self.rank, axis, size), **settings)
            else:
                state = _kept(place, slots)
            if renewed:
                updates[place] = due(state, flat, **settings)
            flat = preconditioned(state, flat, alpha=self.alpha, rescale=self.rescale)
            gradient = flat.view(turned.shape).movedim(-1, axis + 1)
        return gradient


def _kept(place: str, slots: Mapping[str, Tensor]) -> LowRank:
    """The state of an axis, as the slots hold it."""
    return LowRank(*(slots[f"{part}.{place}"] for part in LowRank._fields))


def _axes(layout: Layout) -> Iterator[tuple[int, int, int]]:
    """The axes that have something to turn: a parameter's number, the axis, its size."""
    for number, shape in enumerate(layout.shapes):
        for axis, size in enumerate(shape):
            if size > 1:
                yield number, axis, size
