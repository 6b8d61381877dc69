"""One chain at a time: steps on minibatches, and what is seen of the posterior on the way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .noise import CounterNoise
from .passes import Passes
from .subject import Batch, Walkable
from .weights import Step, Weights

VIRIAL_EVERY = 4  # steps between two looks at the virials
PAIRED_EVERY = 4  # steps between two losses at w*, where these are not kept
_CHECK_EVERY = 32  # steps between two looks whether the chain is still finite, each of which waits for the device
Array = NDArray[np.float64]


@dataclass(frozen=True)
class ChainRecord:
    """What was seen of one chain, or of a part of it.

    Attributes:
        excess: nβ(L_B(w) − L_B(w*)) of its batches, one after another.
        data, prior: δ·nβ∇L_B and γ‖δ‖² of each tensor at each look, (looks, tensors).
        step: how it went.
        finished: whether it stayed finite to the end.
    """

    excess: Array
    data: Array
    prior: Array
    step: Step
    finished: bool = True

    def after(self, burn_in: float) -> ChainRecord:
        """Without that share of its beginning."""
        first, look = int(burn_in * len(self.excess)), int(burn_in * len(self.data))
        return ChainRecord(self.excess[first:], self.data[look:], self.prior[look:], self.step, self.finished)


class LeanWalk:
    """Chains of a subject, one after another, on its own leaves.

    Args:
        subject: the network and its data.
        weights: its leaves.
        passes: over it.
        nbeta: of the posterior.
        batch: samples of a batch.
        base: l_i(w*) of all samples, (n,) float64; None: of each batch anew.
    """

    def __init__(
        self, subject: Walkable, weights: Weights, passes: Passes, nbeta: float, batch: int, base: Tensor | None = None
    ) -> None:
        self.subject, self.weights, self.passes = subject, weights, passes
        self.nbeta, self.batch, self.base = nbeta, min(batch, subject.n), base

    @property
    def noisy(self) -> bool:
        """Whether gradients are of a part of the data."""
        return self.batch < self.subject.n

    def chain(self, step: Step, steps: int, noise: CounterNoise, batches: Iterator[Batch]) -> ChainRecord:
        """A chain from w* of that many steps."""
        self.weights.begin(step, noise)
        excess: list[Tensor] = []
        looks: list[Tensor] = []
        finished = True
        for time in range(steps):
            batch = next(batches)
            base = self._base(batch) if self.base is not None or time % PAIRED_EVERY == 0 else None
            sums = self._advance(step, noise, time, batch, time % VIRIAL_EVERY == 0, looks)
            if base is not None:
                excess.append((sums - base) * (self.nbeta / batch.samples.n))
            if (time + 1) % _CHECK_EVERY == 0 or time == steps - 1:
                finished = bool(torch.isfinite(torch.stack(excess[-_CHECK_EVERY:])).all())
                if not finished:
                    break
        self.weights.rest()
        seen = torch.stack(looks).cpu().numpy()
        return ChainRecord(torch.stack(excess).cpu().numpy(), seen[:, 0], step.gamma * seen[:, 1], step, finished)

    def noise_traces(self, batches: Iterator[Batch], pairs: int) -> Array:
        """Tr of the covariance of nβ∇L_B where the chain is, tensor by tensor: half the squared difference of the
        gradients of two batches, on average."""
        traces = torch.zeros(len(self.weights.names), dtype=torch.float64)
        if not self.noisy:
            return np.asarray(traces)
        for _ in range(pairs):
            for sign in (1.0, -1.0):
                batch = next(batches).samples
                self.passes.gradient(batch, sign * self.nbeta / batch.n)
            for number, gradient in self.passes.held():
                traces[number] += float(gradient.square().sum(dtype=torch.float64)) / (2 * pairs)
            self.passes.forget()
        return np.asarray(self.weights.summed(traces))

    def _advance(
        self, step: Step, noise: CounterNoise, time: int, batch: Batch, looks_too: bool, looks: list[Tensor]
    ) -> Tensor:
        """One step; the sum of the losses before it."""
        seen: dict[int, Tensor] = {}

        def take_up(number: int, gradient: Tensor) -> None:
            if looks_too:
                delta = self.weights.displacement(number)
                sums = [(delta * gradient).sum(dtype=torch.float64), delta.square().sum(dtype=torch.float64)]
                seen[number] = torch.stack(sums)
            self.weights.move(number, gradient, step, noise, time)

        losses = self.passes.step(batch.samples, self.nbeta / batch.samples.n, take_up)
        if looks_too:
            nothing = torch.zeros(2, dtype=torch.float64, device=losses.device)
            each = torch.stack([seen.get(i, nothing) for i in range(len(self.weights.names))], 1)
            looks.append(self.weights.team.summed(each))
        return losses.sum()

    def _base(self, batch: Batch) -> Tensor:
        """The sum of the losses of a batch at w*."""
        if self.base is not None and batch.indices is not None:
            return self.base[batch.indices.to(self.base.device)].sum()
        with self.weights.at_star():
            return self.passes.losses(batch.samples).sum()


def all_losses(subject: Walkable, passes: Passes, size: int) -> Tensor:
    """l_i(w) of all samples where the leaves are, (n,) float64."""
    return torch.cat([passes.losses(piece) for piece in subject.ordered(size)])
