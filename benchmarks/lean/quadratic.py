"""Chains on a quadratic, where E[nβ·excess] = d/2 at every step size, with weights kept in several ways."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from basinscope.samples import Samples
from basinscope.sampling.lean.noise import CounterNoise
from basinscope.sampling.lean.passes import Passes
from basinscope.sampling.lean.subject import Batch
from basinscope.sampling.lean.walk import LeanWalk, all_losses
from basinscope.sampling.lean.weights import Step, Weights

_SPREAD = 0.03  # of the weights


class Quadratic:
    """l(w) = ½ σ ‖w − w*‖² of one sample, in two tensors."""

    usual_batch, indexable, n = 1, True, 1

    def __init__(self, dimension: int, stiffness: float, device: torch.device) -> None:
        generator = torch.Generator().manual_seed(0)
        star = (_SPREAD * torch.randn(dimension, generator=generator)).bfloat16().float().to(device)
        self.star, self.stiffness, self.slices = star.chunk(2), stiffness, {}
        self.leaves = {name: part.clone().requires_grad_() for name, part in zip("ab", self.star, strict=True)}
        self.only = Samples(torch.zeros(1, 1, device=device), None, 1)

    def losses(self, batch: Samples) -> tuple[Tensor, Tensor]:
        pairs = zip(self.leaves.values(), self.star, strict=True)
        total = sum((0.5 * self.stiffness * (leaf - star).square()).sum() for leaf, star in pairs)
        return total, total.detach()[None]

    def batches(self, size: int, seed: int) -> Iterator[Batch]:
        while True:
            yield Batch(self.only, torch.arange(1))

    def ordered(self, size: int) -> Iterator[Samples]:
        yield self.only

    def borrowed(self) -> AbstractContextManager[None]:
        return nullcontext()


def chain_on_quadratic(
    dimension: int, stiffness: float, step: Step, steps: int, delta: str, device: torch.device
) -> float:
    """The mean of nβ·excess over the second half of a chain of the lean walk, over d/2."""
    subject = Quadratic(dimension, stiffness, device)
    weights = Weights(subject.leaves, delta)
    passes = Passes(subject, weights, 1)
    walk = LeanWalk(subject, weights, passes, 1.0, 1, all_losses(subject, passes, 1))
    with passes.listening():
        record = walk.chain(step, steps, CounterNoise(0, 0), subject.batches(1, 0))
    return float(record.after(0.5).excess.mean()) / (dimension / 2)


def plain_chain(dimension: int, stiffness: float, size: float, steps: int, device: torch.device) -> float:
    """The same of a chain on bfloat16 weights that every step rounds to the nearest."""
    star = torch.cat(Quadratic(dimension, stiffness, device).star)
    generator = torch.Generator(device).manual_seed(1)
    weights, total = star.bfloat16(), 0.0
    for step in range(steps):
        delta = weights.float() - star
        if step >= steps // 2:
            total += 0.5 * stiffness * float(delta.square().sum())
        weights.add_((stiffness * delta).bfloat16(), alpha=-0.5 * size)
        noise = torch.empty_like(star).normal_(generator=generator)
        weights.add_(noise.bfloat16(), alpha=math.sqrt(size))
    return total / (steps - steps // 2) / (dimension / 2)
