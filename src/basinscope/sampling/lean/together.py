"""Parts of one kind in one layer, such as its heads, walked together: one program, whose common work is done once.

Every part has chains of its own, in which it alone moves. All parts see the same batch at the same time. What comes
before the layer is computed once for all of them, and so are the losses at w*.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import vmap

from ...landscape import Landscape, math_attention
from ...parts import Part
from ...samples import Samples
from .noise import counter
from .subject import random_indices
from .tuning import NUDGE, PRODUCTS, SAFETY
from .walk import VIRIAL_EVERY, ChainRecord
from .weights import Step

Array = NDArray[np.float64]
_KINDS = {"noise": 1, "batches": 2, "direction": 3}


@dataclass(frozen=True)
class _Slot:
    """One parameter of the layer: where each part has its slice of it.

    Attributes:
        parameter, axis: whose places, along which axis.
        places: of each part, (parts, k, and 1 for every other axis).
        star: w* there, (parts, …).
    """

    parameter: str
    axis: int
    places: Tensor
    star: Tensor

    def of(self, stack: Tensor) -> Tensor:
        """The slices of all parts from a stack of the whole parameter, (parts, …)."""
        return torch.take_along_dim(stack, self.places.expand(self.star.shape), dim=self.axis + 1)

    def into(self, stack: Tensor, slices: Tensor) -> None:
        stack.scatter_(self.axis + 1, self.places.expand(self.star.shape), slices)


class Together:
    """Parts of a network that are alike, each of which moves in chains of its own.

    Args:
        land: the landscape of the whole network.
        parts: parts with slices of the same parameters, of the same size.
        nbeta: of the posterior.
        batch: samples of a batch.
        base: l_i(w*) of all samples.
        seed: of all random numbers.
    """

    def __init__(
        self, land: Landscape, parts: Sequence[Part], nbeta: float, batch: int, base: Tensor, seed: int
    ) -> None:
        self.land, self.parts, self.nbeta, self.batch, self.base, self._seed = land, parts, nbeta, batch, base, seed
        self.slots = _slots(land, parts)
        self.sizes = [slot.star[0].numel() for slot in self.slots]
        self._stacks = {
            slot.parameter: land.parameters[slot.parameter].detach().expand(len(parts), *_shape(land, slot)).clone()
            for slot in self.slots
        }
        self._each = vmap(self._losses, in_dims=(0, None, None), randomness="error")

    @property
    def star(self) -> list[Tensor]:
        """w* of all parts."""
        return [slot.star for slot in self.slots]

    @property
    def noisy(self) -> bool:
        """Whether gradients are of a part of the data."""
        return self.batch < self.land.n

    def batches(self, number: int) -> Iterator[Tensor]:
        """Sample numbers of batches without end."""
        if not self.noisy:
            while True:
                yield torch.arange(self.land.n)
        yield from random_indices(self.land.n, self.batch, counter(self._seed, number, _KINDS["batches"]))

    def chains(self, steps: Sequence[Step], count: int, number: int) -> tuple[list[ChainRecord], list[Tensor]]:
        """A chain of every part from w*, with steps of its own size, and where they come to."""
        stride = self._column([[math.sqrt(step.size * p) for p in step.scales] for step in steps])
        persistence = self._column([[step.persistence] * len(self.slots) for step in steps])
        gamma = self._column([[step.gamma] * len(self.slots) for step in steps])
        generator = torch.Generator(self.land.device).manual_seed(counter(self._seed, number, _KINDS["noise"]))
        at = [slot.star.clone() for slot in self.slots]
        heat = self._column([[step.heat] * len(self.slots) for step in steps])
        momenta = [torch.empty_like(here).normal_(generator=generator) * h for here, h in zip(at, heat, strict=True)]
        excess: list[Tensor] = []
        looks: list[Tensor] = []
        batches = self.batches(number)
        for time in range(count):
            indices = next(batches)
            sums, slopes = self.gradients(at, indices)
            excess.append((sums - self.base[indices].sum()) * (self.nbeta / len(indices)))
            if time % VIRIAL_EVERY == 0:
                looks.append(self._look(at, slopes))
            for i, (here, momentum, slope, slot) in enumerate(zip(at, momenta, slopes, self.slots, strict=True)):
                pull = (here - slot.star).mul_(gamma[i]).add_(slope)
                momentum.addcmul_(pull, stride[i], value=-1.0)
                here.addcmul_(momentum, stride[i], value=0.5)
                xi = torch.empty_like(momentum).normal_(generator=generator)
                momentum.mul_(persistence[i]).addcmul_(xi, heat[i] * (1 - persistence[i].square()).sqrt())
                here.addcmul_(momentum, stride[i], value=0.5)
        return self._records(torch.stack(excess), torch.stack(looks), steps), at

    def gradients(self, at: Sequence[Tensor], indices: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Sums of the losses of a batch, (parts,), and gradients of nβL in every part's slices."""
        self._write(at)
        batch = self.land.take(indices)
        leaves = {name: stack.requires_grad_() for name, stack in self._stacks.items()}
        with torch.enable_grad(), math_attention():
            losses = self._each(leaves, batch.inputs, batch.target)
            slopes = torch.autograd.grad(losses.sum() * (self.nbeta / len(indices)), list(leaves.values()))
        return losses.detach().sum(1, dtype=torch.float64), [
            slot.of(slope) for slot, slope in zip(self.slots, slopes, strict=True)
        ]

    def noise_traces(self, at: Sequence[Tensor], number: int, pairs: int) -> Array:
        """Tr of the covariance of nβ∇L_B there, (parts, slices): half the squared difference of two batches."""
        total = torch.zeros(len(self.parts), len(self.slots), dtype=torch.float64)
        if not self.noisy:
            return np.asarray(total)
        batches = self.batches(number)
        for _ in range(pairs):
            one, other = (self.gradients(at, next(batches))[1] for _ in range(2))
            total += torch.stack([_squares(a - b) for a, b in zip(one, other, strict=True)], 1) / (2 * pairs)
        return np.asarray(total)

    def stiffness(self, indices: Tensor) -> Array:
        """The root mean square of the Hessian's rows of nβL, (parts, slices), by a product with a random vector."""
        direction = self._directions(0)
        length = NUDGE * self._scale()
        slopes = self._product(direction, torch.full((len(self.parts),), length), indices)
        means = torch.stack([_squares(s) / s[0].numel() for s in slopes], 1)
        return np.asarray(means.sqrt())

    def stiffest(self, scales: Array, indices: Tensor) -> Array:
        """The largest eigenvalue by modulus of P^½ (nβH) P^½ of every part, from power iterations."""
        root = self._column(np.sqrt(scales).tolist())
        way, value = self._directions(1), torch.zeros(len(self.parts), dtype=torch.float64)
        length = torch.full_like(value, NUDGE * self._scale() * math.sqrt(sum(self.sizes)))
        for _ in range(PRODUCTS):
            norm = torch.stack([_squares(w) for w in way], 1).sum(1).sqrt()
            unit = [w / self._row(norm, w) for w in way]
            slopes = self._product([r * u for r, u in zip(root, unit, strict=True)], length, indices)
            way = [r * s for r, s in zip(root, slopes, strict=True)]
            value = torch.stack([_squares(w) for w in way], 1).sum(1).sqrt()
            length = torch.minimum(length, 1 / value.sqrt().clamp(min=1e-150))
        return SAFETY * np.asarray(value)

    # ------------------------------------------------------------------ inside

    def _losses(self, parameters: dict[str, Tensor], inputs: object, target: Tensor) -> Tensor:
        batch = Samples(inputs, target, len(target))
        return self.land.losses({**self.land.parameters, **parameters}, batch)

    @torch.no_grad()
    def _write(self, at: Sequence[Tensor]) -> None:
        for slot, slices in zip(self.slots, at, strict=True):
            slot.into(self._stacks[slot.parameter].requires_grad_(False), slices)

    def _product(self, direction: Sequence[Tensor], length: Tensor, indices: Tensor) -> list[Tensor]:
        """nβ H v of every part, by a central difference of that length."""
        moves = [self._row(length, way) * way for way in direction]
        ends = [
            self.gradients([slot.star + sign * move for slot, move in zip(self.slots, moves, strict=True)], indices)[1]
            for sign in (1.0, -1.0)
        ]
        return [(a - b) / (2 * self._row(length, a)) for a, b in zip(*ends, strict=True)]

    def _look(self, at: Sequence[Tensor], slopes: Sequence[Tensor]) -> Tensor:
        """δ·nβ∇L and ‖δ‖², (2, parts, slices)."""
        away = [here - slot.star for here, slot in zip(at, self.slots, strict=True)]
        data = [(d * s).flatten(1).sum(1, dtype=torch.float64) for d, s in zip(away, slopes, strict=True)]
        squares = [d.square().flatten(1).sum(1, dtype=torch.float64) for d in away]
        return torch.stack([torch.stack(data, 1), torch.stack(squares, 1)])

    def _records(self, excess: Tensor, looks: Tensor, steps: Sequence[Step]) -> list[ChainRecord]:
        rows, seen = excess.cpu().numpy(), looks.cpu().numpy()
        return [
            ChainRecord(
                rows[:, i], seen[:, 0, i], step.gamma * seen[:, 1, i], step, bool(np.isfinite(rows[:, i]).all())
            )
            for i, step in enumerate(steps)
        ]

    def _column(self, values: Sequence[Sequence[float]]) -> list[Tensor]:
        """Numbers (parts, slices) as factors of the slices of all parts."""
        table = torch.tensor(values, device=self.land.device, dtype=self.land.dtype)
        return [self._row(table[:, i], slot.star) for i, slot in enumerate(self.slots)]

    @staticmethod
    def _row(values: Tensor, like: Tensor) -> Tensor:
        """A number for each part as a factor of its slice."""
        return values.to(like).view(-1, *(1 for _ in like.shape[1:]))

    def _directions(self, number: int) -> list[Tensor]:
        generator = torch.Generator(self.land.device).manual_seed(counter(self._seed, number, _KINDS["direction"]))
        return [torch.empty_like(slot.star).normal_(generator=generator) for slot in self.slots]

    def _scale(self) -> float:
        """The root mean square of all weights of the parts."""
        total = sum(float(slot.star.square().sum(dtype=torch.float64)) for slot in self.slots)
        return math.sqrt(total / (len(self.parts) * sum(self.sizes))) or 1.0


def _squares(values: Tensor) -> Tensor:
    return values.square().flatten(1).sum(1, dtype=torch.float64).cpu()


def _shape(land: Landscape, slot: _Slot) -> torch.Size:
    return land.parameters[slot.parameter].shape


def alike(parts: Sequence[Part]) -> bool:
    """Whether parts are slices of the same parameters, of the same sizes."""
    kinds = {
        tuple((each.parameter, each.axis, None if each.index is None else len(each.index)) for each in part.pieces)
        for part in parts
    }
    return len(kinds) == 1


def _slots(land: Landscape, parts: Sequence[Part]) -> list[_Slot]:
    """The slices of parts that are alike."""
    slots = []
    for pieces in zip(*(part.pieces for part in parts), strict=True):
        name, axis = pieces[0].parameter, pieces[0].axis
        whole = land.parameters[name]
        everything = torch.arange(whole.shape[axis])
        index = torch.stack([everything if each.index is None else each.index for each in pieces]).to(land.device)
        shape = [len(parts), *(1 for _ in whole.shape)]
        shape[axis + 1] = index.shape[1]
        star = torch.stack([whole.index_select(axis, row) for row in index]).detach()
        slots.append(_Slot(name, axis, index.view(shape), star))
    return slots
