"""Optimizers on stacked parameters: one row a member, each with its own learning rate and weight decay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...checks import positive, whole
from ...errors import InputError


@dataclass(frozen=True)
class Layout:
    """The places of the parameters' entries in a row, and the shapes of the parameters."""

    places: Tensor
    shapes: tuple[torch.Size, ...]


@dataclass(frozen=True)
class MemberRows:
    """The tensors of a step, all with a leading axis of members.

    Attributes:
        points: the parameters, changed in place.
        gradient: of the mean losses; a step may overwrite it.
        rate, decay: learning rates and weight decays, with the shape of `points`; 0 where nothing may move.
        slots: the optimizer's state.
        factors: numbers that depend on the step alone, as `Update.factors` gives them.
        layout: where the parameters lie in a row.
        cache: objects that these rows need in every step and no checkpoint holds.
    """

    points: Tensor
    gradient: Tensor
    rate: Tensor
    decay: Tensor
    slots: Mapping[str, Tensor]
    factors: tuple[Any, ...]
    layout: Layout
    cache: dict[str, Any]

    def descend(self, move: Tensor, momentum: float, nesterov: bool) -> None:
        """θ ← θ − lr v with v ← μ v + move; with `nesterov` along move + μ v instead."""
        if momentum:
            velocity = self.slots["velocity"].mul_(momentum).add_(move)
            move = move.add_(velocity, alpha=momentum) if nesterov else velocity
        self.points.addcmul_(move, self.rate, value=-1)


class Update:
    """An optimizer on stacked parameters.

    Attributes:
        capturable: whether a step never waits for the device, so that a CUDA graph can hold it.
    """

    capturable: ClassVar[bool] = True

    def start(self, points: Tensor, layout: Layout, order: Sequence[int]) -> dict[str, Tensor]:
        """The state before the first step, each tensor with a leading axis; row r is member order[r]."""
        raise NotImplementedError

    def factors(self, steps: Tensor, dtype: torch.dtype) -> tuple[Sequence[Any] | Tensor, ...]:
        """The numbers that depend on the step alone, for each of `steps` (1, 2, …), float64."""
        return ()

    def apply(self, rows: MemberRows) -> None:
        """Take a step in place."""
        raise NotImplementedError


@dataclass(frozen=True)
class Adam(Update):
    """Adam with coupled L2: g ← g + w θ, m and v its moments, θ ← θ − lr m̂ / (√v̂ + ε).

    Equal to `torch.optim.Adam` with the same settings, up to rounding. With `cosine` = T steps, step t = 1, 2, … takes
    the rate lr ½(1 + cos π(t−1)/T), as `CosineAnnealingLR` gives it, and none after T; 0 leaves the rate as it is.

    Examples:
        >>> Adam(betas=(0.9, 0.99))
        Adam(betas=(0.9, 0.99), eps=1e-08, cosine=0)
    """

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    cosine: int = 0

    def __post_init__(self) -> None:
        positive("eps", self.eps)
        whole("cosine", self.cosine, least=0)
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise InputError(f"betas must be two numbers in [0, 1), got {self.betas!r}")

    def start(self, points: Tensor, layout: Layout, order: Sequence[int]) -> dict[str, Tensor]:
        return {"first": torch.zeros_like(points), "second": torch.zeros_like(points)}

    def factors(self, steps: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
        # m̂/(√v̂ + ε) = m · (√c₂/c₁) / (√v + ε√c₂), with c the bias corrections: fewer passes over memory
        root = (1 - self.betas[1] ** steps).sqrt()
        factor = root / (1 - self.betas[0] ** steps)
        if self.cosine:
            elapsed = ((steps - 1) / self.cosine).clamp(max=1)
            factor = factor * (1 + torch.cos(torch.pi * elapsed)) / 2
        return factor.to(dtype), (self.eps * root).to(dtype)

    def apply(self, rows: MemberRows) -> None:
        first, second, gradient = rows.slots["first"], rows.slots["second"], rows.gradient
        factor, floor = rows.factors
        beta1, beta2 = self.betas
        gradient.addcmul_(rows.points, rows.decay)
        first.lerp_(gradient, 1 - beta1)
        second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        torch.sqrt(second, out=gradient)
        gradient.add_(floor)
        torch.div(first, gradient, out=gradient)
        gradient.mul_(factor)
        rows.points.addcmul_(gradient, rows.rate, value=-1)


@dataclass(frozen=True)
class SGD(Update):
    """Gradient descent with coupled L2 and momentum: b ← μ b + g + w θ, θ ← θ − lr b, as `torch.optim.SGD`.

    With `nesterov` the step is along g + w θ + μ b instead.

    Examples:
        >>> SGD(momentum=0.9)
        SGD(momentum=0.9, nesterov=False)
    """

    momentum: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.momentum < 1:
            raise InputError(f"momentum must lie in [0, 1), got {self.momentum!r}")
        if self.nesterov and not self.momentum:
            raise InputError("nesterov needs a momentum above 0, got 0 — give momentum=0.9, say")

    def start(self, points: Tensor, layout: Layout, order: Sequence[int]) -> dict[str, Tensor]:
        return {"velocity": torch.zeros_like(points)} if self.momentum else {}

    def apply(self, rows: MemberRows) -> None:
        rows.descend(rows.gradient.addcmul_(rows.points, rows.decay), self.momentum, self.nesterov)


def update_of(optimizer: str | Update) -> Update:
    """An optimizer by name, or as it is."""
    if isinstance(optimizer, str):
        if optimizer not in ("adam", "sgd"):
            raise InputError(f"optimizer must be 'adam', 'sgd', Adam, SGD or OnlineNGD, got {optimizer!r}")
        return Adam() if optimizer == "adam" else SGD()
    if not isinstance(optimizer, Update):
        raise InputError(
            f"optimizer must be 'adam', 'sgd', or an Adam, SGD or OnlineNGD of basinscope.training.population, got "
            f"{type(optimizer).__name__}"
        )
    return optimizer
