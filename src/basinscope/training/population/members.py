"""The members of a population: their settings, and the samples that they are trained on."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...checks import positive, whole
from ...errors import InputError
from .draws import MAX_BATCH

Subset = Sequence[int] | Tensor | None


@dataclass(frozen=True)
class Member:
    """One network of a population.

    Args:
        seed: of the initial weights and of the minibatches.
        lr: learning rate.
        weight_decay: w in L_n + (w/2)‖θ‖², coupled: its gradient goes through the optimizer like the loss's own.
        batch_size: samples per step, drawn with replacement.
        subset: numbers of the samples it is trained on, in the population's data; all of them if None.

    Examples:
        >>> Member(seed=3, lr=0.01, batch_size=64)
        Member(seed=3, lr=0.01, weight_decay=0.0, batch_size=64, subset=None)
    """

    seed: int = 0
    lr: float = 1e-3
    weight_decay: float = 0.0
    batch_size: int = 128
    subset: Subset = None

    def __post_init__(self) -> None:
        whole("seed", self.seed, least=0)
        positive("lr", self.lr)
        if not (isinstance(self.weight_decay, (int, float)) and 0 <= self.weight_decay < math.inf):
            raise InputError(f"weight_decay must be a finite number of at least 0, got {self.weight_decay!r}")
        if whole("batch_size", self.batch_size, least=1) > MAX_BATCH:
            raise InputError(f"batch_size must be at most {MAX_BATCH:,}, got {self.batch_size:,}")


@dataclass(frozen=True)
class Subsets:
    """The samples of all members in one table: member m has table[offsets[m] : offsets[m] + sizes[m]]."""

    table: Tensor
    offsets: Tensor
    sizes: Tensor
    digests: list[str]

    def of(self, member: int) -> Tensor:
        """The sample numbers of one member."""
        start = int(self.offsets[member])
        return self.table[start : start + int(self.sizes[member])]

    def to(self, device: torch.device) -> Subsets:
        return Subsets(self.table.to(device), self.offsets.to(device), self.sizes.to(device), self.digests)


def subsets_of(subsets: Sequence[Subset], n: int) -> Subsets:
    """Each distinct subset once, checked to lie in 0..n−1.

    Examples:
        >>> subsets = subsets_of([range(3), None, range(3)], 5)
        >>> subsets.table.tolist(), subsets.offsets.tolist(), subsets.sizes.tolist()
        ([0, 1, 2, 0, 1, 2, 3, 4], [0, 3, 0], [3, 5, 3])
    """
    pieces: list[Tensor] = []
    places_of: dict[str, tuple[int, int]] = {}  # offset and size by digest
    digest_of: dict[int, str] = {}  # by object: one that was passed twice is read once
    digests = []
    total = 0
    for m, subset in enumerate(subsets):
        if id(subset) not in digest_of:
            numbers = torch.arange(n) if subset is None else _numbers(m, subset, n)
            digest = hashlib.sha256(numbers.numpy().tobytes()).hexdigest()
            digest_of[id(subset)] = digest
            if digest not in places_of:
                places_of[digest] = (total, len(numbers))
                pieces.append(numbers)
                total += len(numbers)
        digests.append(digest_of[id(subset)])
    places = torch.tensor([places_of[digest] for digest in digests])
    return Subsets(torch.cat(pieces), places[:, 0].contiguous(), places[:, 1].contiguous(), digests)


def _numbers(member: int, subset: Sequence[int] | Tensor, n: int) -> Tensor:
    """A subset as sample numbers, checked."""
    if isinstance(subset, range):
        subset = torch.arange(subset.start, subset.stop, subset.step)
    try:
        numbers = torch.as_tensor(subset).cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"subset of member {member} must be sample numbers in 0..{n - 1}, got {subset!r}") from error
    integers = not numbers.is_floating_point() and numbers.dtype != torch.bool
    if numbers.ndim != 1 or len(numbers) == 0 or not integers or not 0 <= int(numbers.min()) <= int(numbers.max()) < n:
        raise InputError(
            f"subset of member {member} must be a non-empty list of sample numbers in 0..{n - 1}, got "
            f"{numbers.dtype} of shape {tuple(numbers.shape)}"
            + (f" with values {numbers.min()}..{numbers.max()}" if numbers.numel() and integers else "")
        )
    return numbers.long()
