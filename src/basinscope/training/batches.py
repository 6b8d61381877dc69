"""The samples of a batch: a fixed function of the seed and the batch's number, so that nothing needs to be stored."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..checks import whole


class Batches:
    """Batches of `size` samples: in every epoch all n once, in an order of its own; the last batch may be smaller.

    Args:
        n: number of samples.
        size: samples in a batch; n or more: the whole data set, in its own order.
        seed: of the orders.
        device: where the sample numbers are needed.

    Examples:
        >>> batches = Batches(5, 2, seed=0)
        >>> batches.per_epoch, sorted(torch.cat([batches.indices(k) for k in range(3)]).tolist())
        (3, [0, 1, 2, 3, 4])
    """

    def __init__(self, n: int, size: int, seed: int, device: torch.device | str = "cpu") -> None:
        self.n = n
        self.size = min(whole("batch_size", size, least=1), n)
        self.per_epoch = -(-n // self.size)
        self._seed = whole("seed", seed, least=0)
        self._device = device
        self._order: tuple[int, Tensor] | None = None

    def indices(self, number: int) -> Tensor | None:
        """The samples of batch `number`, counted from the start of training; None stands for all of them."""
        if self.size == self.n:
            return None
        epoch, place = divmod(number, self.per_epoch)
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, self._shuffled(epoch)
        return self._order[1][place * self.size : (place + 1) * self.size]

    def _shuffled(self, epoch: int) -> Tensor:
        word = int(np.random.SeedSequence([self._seed, epoch]).generate_state(1, np.uint64)[0])
        generator = torch.Generator().manual_seed(word >> 1)  # on the CPU: the same order on every device
        return torch.randperm(self.n, generator=generator).to(self._device)
