"""The program of a population: batched losses and gradients of its networks."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from ...curvature.precision import full_precision
from ...landscape import Landscape
from ...samples import Samples, Tree
from .generic import Generic
from .layers import plan_of
from .stacked import Stacked


class Program(Protocol):
    """Losses and gradients of M networks whose parameters are the rows of a matrix (M, D).

    A row is `template` with the network's parameters, in the landscape's order, at `places`; everything else in it is
    constant.

    Attributes:
        sample_bytes: memory that one sample of one member takes on its way forward and back.
        tile_bytes: memory to use at once on a CPU, where no bound is given: what is fast.
    """

    template: Tensor
    places: Tensor
    sample_bytes: int
    tile_bytes: int

    def pool(self, samples: Samples) -> tuple[Tree, Tree]:
        """Inputs and targets laid out as `gradient` and `evaluate` read them."""

    def gradient(self, points: Tensor, inputs: Tree, target: Tree, gradient: Tensor, losses: Tensor | None) -> None:
        """Put the gradients of the mean losses of the members' own batches (M, b, …) into `gradient` (M, D), the mean
        losses into `losses` (M,)."""

    def evaluate(self, points: Tensor, inputs: Tree, target: Tree) -> tuple[Tensor, Tensor | None]:
        """Losses (M, m) of all members on the same m samples, and for classifiers which labels are met."""


def program_of(land: Landscape) -> Program:
    """Hand-written products where the network is a plain chain and they agree with autograd, else vmap."""
    generic = Generic(land)
    generic.check()
    plan = plan_of(land)
    if plan is None:
        return generic
    stacked = Stacked(land, plan)
    return stacked if _agree(land, stacked, generic) else generic


def _agree(land: Landscape, stacked: Stacked, generic: Generic) -> bool:
    """Whether both programs give the same gradients for a few samples at and near the landscape's point."""
    point = land.flatten(land.parameters)
    points = torch.stack([point, point + 0.01 * torch.sin(torch.arange(len(point)).to(point))])
    few = land.take(torch.arange(6).view(2, 3) % land.n)
    flat = Samples(few.inputs.flatten(0, 1), few.target.flatten(0, 1), 6)
    slopes = []
    for program in (stacked, generic):
        rows = program.template.repeat(2, 1)
        rows[:, program.places] = points
        inputs, target = (part.unflatten(0, (2, 3)) for part in program.pool(flat))
        slope = torch.empty_like(rows)
        with full_precision():
            program.gradient(rows, inputs, target, slope, None)
        slopes.append(slope[:, program.places])
    ours, theirs = slopes
    return torch.allclose(ours, theirs, rtol=1e-3, atol=1e-5 * float(theirs.abs().max()))
