"""A subject whose posterior is a Gaussian that is known."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from basinscope.samples import Samples
from basinscope.sampling.lean.subject import Batch


class Quadratic:
    """l(w) = ½ Σ σ_i (w_i − w*_i)², the same for each of `n` samples, in two tensors."""

    usual_batch, indexable = 8, True

    def __init__(self, star: Tensor, sigma: Tensor, n: int = 8) -> None:
        half = len(star) // 2
        self.star, self.sigma, self.n = star.float().split(half), sigma.split(half), n
        self.leaves = {name: part.clone().requires_grad_() for name, part in zip("ab", star.split(half), strict=True)}

    def losses(self, batch: Samples) -> tuple[Tensor, Tensor]:
        pairs = zip(self.leaves.values(), self.star, self.sigma, strict=True)
        each = sum((0.5 * sigma * (leaf.float() - star).square()).sum() for leaf, star, sigma in pairs)
        return each * batch.n, each.detach().expand(batch.n)

    def batches(self, size: int, seed: int) -> Iterator[Batch]:
        while True:
            yield Batch(Samples(torch.zeros(self.n, 1), None, self.n), torch.arange(self.n))

    def ordered(self, size: int) -> Iterator[Samples]:
        yield Samples(torch.zeros(self.n, 1), None, self.n)

    def borrowed(self) -> AbstractContextManager[None]:
        return nullcontext()
