"""The subject of a language model in place: its own weights, and batches of its data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from ...language.model import LanguageModel
from ...language.sequences import Streamed
from ...parts import Piece
from ...samples import Samples
from .subject import Batch, drawn_batches
from .team import team_of

_TOKENS = 16_384  # of a usual batch
_FEWEST, _MOST = 8, 64  # sequences of it


class Borrowed:
    """A language model whose own tensors move, and come back."""

    def __init__(self, land: LanguageModel) -> None:
        self._land = land
        leaves = land.leaves()
        self.leaves = {name: leaf.tensor for name, leaf in leaves.items()}
        self.slices: Mapping[str, Piece] = {name: leaf.piece for name, leaf in leaves.items() if leaf.piece is not None}
        self.n, self.indexable = land.n, land.data.indexable
        self.usual_batch = max(_FEWEST, min(_MOST, _TOKENS // land.length))
        self._team = team_of(self.leaves.values())
        self._sharded: list[Any] = [each for each in land.module.modules() if hasattr(each, "reshard")]

    def losses(self, batch: Samples) -> tuple[Tensor, Tensor]:
        """The sum of the losses, and those of the sequences. Processes that share the weights share the batch."""
        for module in self._sharded:
            module.reshard()  # the weights may have moved since it gathered them
        shared = batch.n % self._team.size == 0
        mine = batch.take(self._team.share(batch.n)) if shared else batch
        tokens = self._land.token_losses(mine)
        each = tokens.detach().sum(1, dtype=torch.float64)
        if not shared:
            return tokens.sum(), each
        return tokens.sum() * self._team.size, self._team.gathered(each)

    def batches(self, size: int, seed: int) -> Iterator[Batch]:
        data = self._land.data
        if isinstance(data, Streamed):
            while True:
                yield Batch(self._land.checked(data.onwards(min(size, self.n))), None)
        yield from drawn_batches(self._land.take, self.n, size, seed)

    def ordered(self, size: int) -> Iterator[Samples]:
        return map(self._land.checked, self._land.data.ordered(size))

    def borrowed(self) -> AbstractContextManager[None]:
        return self._land.borrowed()
