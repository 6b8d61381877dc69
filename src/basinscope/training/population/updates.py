"""Optimizers on stacked parameters: one row a member, each with its own learning rate and weight decay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ...checks import positive
from ...errors import InputError


class Update(Protocol):
    """How a step is taken. `rate` and `decay` have the shape of `points`, and are 0 where nothing may move."""

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of the state tensors, each of the shape of the parameters and zero at the start."""

    def factors(self, steps: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """Numbers that depend on the number of the step alone, for each of `steps` (1, 2, …), float64."""

    def apply(
        self,
        points: Tensor,
        gradient: Tensor,
        rate: Tensor,
        decay: Tensor,
        state: Sequence[Tensor],
        factors: tuple[Tensor, ...],
    ) -> None:
        """Take a step in place; `gradient` is used up."""


@dataclass(frozen=True)
class Adam:
    """Adam with coupled L2: g ← g + w θ, m and v its moments, θ ← θ − lr m̂ / (√v̂ + ε).

    Equal to `torch.optim.Adam` with the same settings, up to rounding.
    """

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def __post_init__(self) -> None:
        positive("eps", self.eps)
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise InputError(f"betas must be two numbers in [0, 1), got {self.betas!r}")

    @property
    def slots(self) -> tuple[str, ...]:
        return ("first", "second")

    def factors(self, steps: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
        # m̂/(√v̂ + ε) = m · (√c₂/c₁) / (√v + ε√c₂), with c the bias corrections: fewer passes over memory
        root = (1 - self.betas[1] ** steps).sqrt()
        return (root / (1 - self.betas[0] ** steps)).to(dtype), (self.eps * root).to(dtype)

    def apply(
        self,
        points: Tensor,
        gradient: Tensor,
        rate: Tensor,
        decay: Tensor,
        state: Sequence[Tensor],
        factors: tuple[Tensor, ...],
    ) -> None:
        first, second = state
        factor, floor = factors
        beta1, beta2 = self.betas
        gradient.addcmul_(points, decay)
        first.lerp_(gradient, 1 - beta1)
        second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        torch.sqrt(second, out=gradient)
        gradient.add_(floor)
        torch.div(first, gradient, out=gradient)
        gradient.mul_(factor)
        points.addcmul_(gradient, rate, value=-1)


@dataclass(frozen=True)
class SGD:
    """Gradient descent with coupled L2 and momentum: b ← μ b + g + w θ, θ ← θ − lr b, as `torch.optim.SGD`."""

    momentum: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.momentum < 1:
            raise InputError(f"momentum must lie in [0, 1), got {self.momentum!r}")

    @property
    def slots(self) -> tuple[str, ...]:
        return ("velocity",) if self.momentum else ()

    def factors(self, steps: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
        return ()

    def apply(
        self,
        points: Tensor,
        gradient: Tensor,
        rate: Tensor,
        decay: Tensor,
        state: Sequence[Tensor],
        factors: tuple[Tensor, ...],
    ) -> None:
        gradient.addcmul_(points, decay)
        if self.momentum:
            (velocity,) = state
            gradient = velocity.mul_(self.momentum).add_(gradient)
        points.addcmul_(gradient, rate, value=-1)


def update_of(optimizer: str | Update) -> Update:
    """An optimizer by name, or as it is."""
    if isinstance(optimizer, str):
        if optimizer not in ("adam", "sgd"):
            raise InputError(f"optimizer must be 'adam', 'sgd', Adam(...) or SGD(...), got {optimizer!r}")
        return Adam() if optimizer == "adam" else SGD()
    if not hasattr(optimizer, "slots") or not hasattr(optimizer, "apply"):
        raise InputError(f"optimizer must be 'adam', 'sgd', Adam(...) or SGD(...), got {type(optimizer).__name__}")
    return optimizer
