"""Entropy-SGD for a population: the inner Langevin steps of all members as one batched program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .updates import Layout, MemberRows, Update


@dataclass(frozen=True)
class EntropySGD(Update):
    """`optim.EntropySGD` on stacked parameters; a step of the population is one Langevin step of its inner loop.

    Every `inner_steps` steps a member's weights move by its learning rate from the centre towards the mean of the inner
    loop. Noise comes from torch's generator; without it members end where `optim.EntropySGD` takes them alone.

    Attributes:
        inner_steps, inner_lr, gamma, scoping, noise, averaging, momentum: as for `optim.EntropySGD`.
    """

    inner_steps: int = 20
    inner_lr: float = 0.1
    gamma: float = 1e-4
    scoping: float = 1e-3
    noise: float = 1e-4
    averaging: float = 0.75
    momentum: float = 0.0

    def start(self, points: Tensor, layout: Layout, order: Sequence[int]) -> dict[str, Tensor]:
        slots = {"centre": points.clone(), "mean": points.clone()}
        return slots | {name: torch.zeros_like(points) for name in ("inner", "outer") if self.momentum}

    def factors(self, steps: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """Whether an inner loop begins, whether it ends, and γ of its outer step."""
        place = torch.remainder(steps - 1, self.inner_steps)
        outer = torch.div(steps - 1, self.inner_steps, rounding_mode="floor")
        pull = self.gamma * (1 + self.scoping) ** outer
        return (place == 0).to(dtype), (place == self.inner_steps - 1).to(dtype), pull.to(dtype)

    def apply(self, rows: MemberRows) -> None:
        begins, ends, pull = rows.factors
        points, centre, mean = rows.points, rows.slots["centre"], rows.slots["mean"]
        centre.lerp_(points, begins)
        mean.lerp_(points, begins)
        free = (rows.rate > 0).to(points)
        force = rows.gradient.addcmul_(points, rows.decay).add_((points - centre) * pull).mul_(free)
        if self.momentum:
            force = rows.slots["inner"].mul_(self.momentum * (1 - begins)).add_(force)
        points.sub_(force, alpha=self.inner_lr)
        if self.noise:
            points.addcmul_(torch.randn_like(points), free, value=math.sqrt(self.inner_lr) * self.noise)
        mean.mul_(self.averaging).add_(points, alpha=1 - self.averaging)
        away = centre - mean
        if self.momentum:
            velocity = rows.slots["outer"]
            away = velocity.copy_(torch.where(ends > 0, self.momentum * velocity + away, velocity))
        moved = torch.where(rows.rate > 0, centre - rows.rate * away, points)
        points.copy_(torch.where(ends > 0, moved, points))
