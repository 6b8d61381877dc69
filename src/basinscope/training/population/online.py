"""The online low-rank natural gradient for a whole population at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ...errors import InputError
from ...optim import online
from ...optim.axes import Axes, AxisSettings, axes_of, rank_of_axis
from ...optim.lowrank import LowRank
from ...optim.natural import WARMUP_STEPS
from .updates import Layout, MemberRows, Update


@dataclass(frozen=True)
class OnlineNGD(Update):
    """`basinscope.optim.OnlineNGD` for every member, with the member's own learning rate and weight decay.

    α and ε are numbers, or tuples with one for each member. The state is a low-rank matrix per axis of each gradient
    tensor, so that members stack. Its eigenvalue problems are solved by the processor, so that on a GPU no CUDA graph
    can hold a whole step.

    Examples:
        >>> OnlineNGD(alpha=0.1).update_period
        4
    """

    capturable: ClassVar[bool] = False

    alpha: float | tuple[float, ...] = 0.1
    epsilon: float | tuple[float, ...] = 1e-10
    eta: float | None = 0.9
    history: float = 2000.0
    delta: float = 5e-4
    rank: int | tuple[int, int] | None = None
    rescale: bool = True
    single: bool = False
    update_period: int = 4
    momentum: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        for alpha in set(_values(self.alpha)):
            for epsilon in set(_values(self.epsilon)):  # the optimizer's checks are ours
                online.OnlineNGD(
                    [nn.Parameter(torch.zeros(2, 2))], **{**asdict(self), "alpha": alpha, "epsilon": epsilon}
                )

    def start(self, points: Tensor, layout: Layout, order: Sequence[int]) -> dict[str, Tensor]:
        slots = {"velocity": torch.zeros_like(points)} if self.momentum else {}
        for name in ("alpha", "epsilon"):
            values = _values(getattr(self, name))
            if len(values) not in (1, len(order)):
                raise InputError(f"{name} must be a number or one for each of {len(order)} members, got {len(values)}")
            by_row = [values[m % len(values)] for m in order]
            slots[name] = torch.tensor(by_row, dtype=torch.float64, device=points.device)
        for number, axis, size in axes_of(layout.shapes):
            rank = rank_of_axis(self.rank, axis, size)
            slots[f"basis.{number}.{axis}"] = points.new_zeros(len(points), rank, size)
            slots[f"spectrum.{number}.{axis}"] = points.new_zeros(len(points), rank, dtype=torch.float64)
            slots[f"floor.{number}.{axis}"] = points.new_zeros(len(points), dtype=torch.float64)
        return slots

    def factors(self, steps: Tensor, dtype: torch.dtype) -> tuple[list[bool], list[bool]]:
        """Whether it is the first step, and whether the matrices are renewed in it."""
        renewed = (steps <= WARMUP_STEPS) | ((steps - 1) % self.update_period == 0)
        return (steps == 1).tolist(), renewed.tolist()

    def apply(self, rows: MemberRows) -> None:
        first, renewed = rows.factors
        rows.gradient.addcmul_(rows.points, rows.decay)
        shapes = rows.layout.shapes
        pieces = rows.gradient[:, rows.layout.places].split([math.prod(shape) for shape in shapes], dim=1)
        gradients = [piece.unflatten(1, shape) for piece, shape in zip(pieces, shapes, strict=True)]
        if "axes" not in rows.cache:
            states = {
                (number, axis): LowRank(*(rows.slots[f"{part}.{number}.{axis}"] for part in LowRank._fields))
                for number, axis, _ in axes_of(shapes)
            }
            damping = {name: rows.slots[name] for name in ("alpha", "epsilon")}
            rows.cache["axes"] = Axes(states, leading=1)
            rows.cache["settings"] = AxisSettings.of({**vars(self), **damping})
        settings = rows.cache["settings"]
        directions = rows.cache["axes"].directions(gradients, [settings] * len(shapes), [renewed] * len(shapes), first)
        move = torch.zeros_like(rows.gradient)
        move[:, rows.layout.places] = torch.cat([direction.flatten(1) for direction in directions], dim=1)
        rows.descend(move, self.momentum, self.nesterov)


def _values(setting: float | tuple[float, ...]) -> tuple[float, ...]:
    """A setting of all members as a tuple of one."""
    return setting if isinstance(setting, tuple) else (setting,)
