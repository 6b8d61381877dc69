"""The accept-or-reject step that makes HMC exact."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..target import Evaluation


class Point(NamedTuple):
    """A position with everything known there."""

    position: Tensor
    excess: Tensor
    gradient: Tensor
    distance: Tensor
    energy: Tensor  # (C,) float64

    @property
    def evaluation(self) -> Evaluation:
        return Evaluation(self.excess, self.gradient, self.distance)


def choose(old: Point, new: Point, log_ratio: Tensor, uniform: Tensor) -> tuple[Point, Tensor]:
    """`new` where log u < log_ratio, else `old`, chain by chain; and the acceptance probability.

    A proposal whose energy is NaN or infinite is rejected.
    """
    log_ratio = torch.where(torch.isfinite(log_ratio), log_ratio, torch.full_like(log_ratio, -torch.inf))
    accept = uniform.log() < log_ratio
    point = Point(*(torch.where(accept.view(-1, *[1] * (a.ndim - 1)), a, b) for a, b in zip(new, old, strict=True)))
    return point, log_ratio.clamp(max=0).exp()
