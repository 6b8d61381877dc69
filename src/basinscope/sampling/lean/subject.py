"""What a lean walk needs of a landscape: leaves to walk on, their losses, and batches without end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ...landscape import Landscape
from ...parts import Piece
from ...samples import Samples


class Batch(NamedTuple):
    """Samples, and which of all these are; None where they have no numbers."""

    samples: Samples
    indices: Tensor | None


class Walkable(Protocol):
    """A network on its data.

    Attributes:
        leaves: the tensors that move, by name.
        slices: of those that move in part, which part.
        n: samples that there are.
        indexable: whether samples have numbers, so that a loss at w* can be kept for each.
        usual_batch: samples of a batch, unless told otherwise.
    """

    leaves: dict[str, Tensor]
    slices: Mapping[str, Piece]
    n: int
    indexable: bool
    usual_batch: int

    def losses(self, batch: Samples) -> tuple[Tensor, Tensor]:
        """The sum of the losses of a batch, which can be differentiated, and those of its samples."""

    def batches(self, size: int, seed: int) -> Iterator[Batch]:
        """Random batches of that size without end; all samples in order where that is no fewer than there are."""

    def ordered(self, size: int) -> Iterator[Samples]:
        """All samples once, in order, in pieces of at most that size."""

    def borrowed(self) -> AbstractContextManager[None]:
        """Within it the leaves may be changed; afterwards everything but their values is as it was."""


class Copied:
    """The subject of a landscape whose network is a pure function: leaves of its own, the landscape untouched."""

    usual_batch = 256
    indexable = True

    def __init__(self, land: Landscape) -> None:
        self._land = land
        self.leaves = {name: value.detach().clone().requires_grad_() for name, value in land.parameters.items()}
        self.slices: Mapping[str, Piece] = {}  # what is free of a tensor is a leaf of its own
        self.n = land.n

    def losses(self, batch: Samples) -> tuple[Tensor, Tensor]:
        each = self._land.losses(self.leaves, batch)
        return each.sum(), each.detach()

    def batches(self, size: int, seed: int) -> Iterator[Batch]:
        return drawn_batches(self._land.take, self.n, size, seed)

    def ordered(self, size: int) -> Iterator[Samples]:
        return self._land.batches(size)

    def borrowed(self) -> AbstractContextManager[None]:
        return nullcontext()


def drawn_batches(take: Callable[[Tensor], Samples], n: int, size: int, seed: int) -> Iterator[Batch]:
    """Batches of that size without end, of all samples in order where there are no more of them."""
    if size >= n:
        everything = torch.arange(n)
        while True:
            yield Batch(take(everything), everything)
    for indices in random_indices(n, size, seed):
        yield Batch(take(indices), indices)


def random_indices(n: int, size: int, seed: int) -> Iterator[Tensor]:
    """Sample numbers, drawn with replacement, without end."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield torch.randint(n, (size,), generator=generator)
