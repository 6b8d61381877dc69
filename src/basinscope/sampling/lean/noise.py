"""Random numbers that are made anew from a counter whenever they are wanted, and never stored."""

from __future__ import annotations

import torch
from torch import Tensor

_WORD = 2**64 - 1
_ROUNDED_BITS = 16  # of a float32 that bfloat16 does not have


def counter(*numbers: int) -> int:
    """Whole numbers as one seed, well mixed (the finalizer of SplitMix64 after each).

    Examples:
        >>> counter(0, 1) == counter(0, 1), counter(0, 1) == counter(1, 0)
        (True, False)
    """
    state = 0
    for number in numbers:
        state = (state ^ number) + 0x9E3779B97F4A7C15 & _WORD
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _WORD
        state = (state ^ state >> 27) * 0x94D049BB133111EB & _WORD
        state ^= state >> 31
    return state >> 1  # generators take signed numbers


class CounterNoise:
    """The standard normal numbers ξ of one chain: the same for the same step and tensor, whenever they are asked for.

    Args:
        seed, chain: of the chain.
        rank: of the process, where several hold a part of each tensor.
    """

    def __init__(self, seed: int, chain: int, rank: int = 0) -> None:
        self._key = (seed, chain, rank) if rank else (seed, chain)
        self._generators: dict[torch.device, torch.Generator] = {}

    def generator(self, device: torch.device, step: int, tensor: int) -> torch.Generator:
        """A generator that begins where this step and tensor do."""
        if device not in self._generators:
            self._generators[device] = torch.Generator(device)
        return self._generators[device].manual_seed(counter(*self._key, step, tensor))

    def fill(self, out: Tensor, step: int, tensor: int) -> Tensor:
        """`out`, filled with ξ of that step and tensor."""
        return out.normal_(generator=self.generator(out.device, step, tensor))


def stochastically_rounded(values: Tensor, generator: torch.Generator) -> Tensor:
    """float32 values as bfloat16, up or down with the probability that makes the mean exact.

    Rounding to the nearest loses every change of less than half a unit in the last place, so that small drifts never
    happen; here they happen now and then, and are right on average (Gupta et al. 2015,
    https://arxiv.org/abs/1502.02551).

    Examples:
        >>> x = torch.full((100_000,), 1 + 2**-10)
        >>> rounded = stochastically_rounded(x, torch.Generator().manual_seed(0)).float()
        >>> bool(abs(rounded.mean() - x[0]) < 1e-4), x[0].bfloat16().item()
        (True, 1.0)
    """
    bits = values.contiguous().view(torch.int32)
    extra = torch.randint(
        1 << _ROUNDED_BITS, bits.shape, dtype=torch.int32, device=values.device, generator=generator
    )  # fmt: skip
    return extra.add_(bits).bitwise_and_(-(1 << _ROUNDED_BITS)).view(torch.float32).to(torch.bfloat16)
