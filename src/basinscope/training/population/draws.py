"""Minibatches from a counter: which samples member m sees at step t depends on its seed and on t, on nothing else."""

from __future__ import annotations

import torch
from torch import Tensor

from ...errors import InputError

_GOLDEN = 0x9E3779B97F4A7C15
_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_COUNTERS_PER_STEP = 2**20  # counters set apart for one step, two draws each
MAX_BATCH = 2 * _COUNTERS_PER_STEP


def _signed(value: int) -> int:
    value %= 2**64
    return value - 2**64 if value >= 2**63 else value


def _shifted(values: Tensor, places: int) -> Tensor:
    """Logical right shift: torch's own keeps the sign."""
    return (values >> places).bitwise_and_((1 << (64 - places)) - 1)


def mixed(values: Tensor) -> Tensor:
    """The finalizer of SplitMix64 on int64, in place: a bijection whose outputs look random for consecutive inputs."""
    values.bitwise_xor_(_shifted(values, 30)).mul_(_signed(_MIX[0]))
    values.bitwise_xor_(_shifted(values, 27)).mul_(_signed(_MIX[1]))
    return values.bitwise_xor_(_shifted(values, 31))


def keys(seeds: list[int]) -> Tensor:
    """One stream per seed: far apart, whatever the seeds are."""
    return mixed(mixed(torch.tensor([_signed(seed * _GOLDEN + _GOLDEN) for seed in seeds])) ^ _signed(_MIX[1]))


def draws(streams: Tensor, sizes: Tensor, step: int | Tensor, steps: int, batch: int) -> Tensor:
    """Sample numbers, shape (steps, members, batch), uniform in 0..sizes[m]−1 with replacement, for `steps` steps.

    Step t of stream κ hashes κ + (2²⁰ t + j + 1)·φ to 64 bits; each half u becomes ⌊u · size / 2³²⌋, uniform up to a
    relative size/2³². No state is kept, so any stretch of steps can be drawn again.

    Args:
        streams: (members,) from `keys`.
        sizes: (members,) samples each member has.
        step: the first step, a number or a tensor of the device.
        steps: the number of steps.
        batch: samples per step.

    Examples:
        >>> streams, sizes = keys([0, 1]), torch.tensor([10, 1000])
        >>> whole = draws(streams, sizes, 0, 4, 3)
        >>> torch.equal(whole[2:], draws(streams, sizes, 2, 2, 3))
        True
    """
    if batch > MAX_BATCH:
        raise InputError(f"batch_size must be at most {MAX_BATCH:,}, got {batch:,}")
    pairs = torch.arange(1, -(-batch // 2) + 1, device=streams.device)
    moments = torch.arange(steps, device=streams.device) + step
    counters = moments[:, None, None] * _COUNTERS_PER_STEP + pairs
    bits = mixed(counters * _signed(_GOLDEN) + streams[:, None])
    halves = torch.stack([_shifted(bits, 32), bits & 0xFFFFFFFF], dim=-1).flatten(-2)[..., :batch]
    return (halves * sizes[:, None]).bitwise_right_shift_(32)
