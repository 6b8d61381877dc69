"""What all kernels have in common: a state, one step, and what a step reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from ..target import Evaluate, Evaluation

Noise = Callable[[Tensor], Tensor]  # standard normal numbers shaped like the argument
Uniform = Callable[[Tensor], Tensor]  # uniform numbers in [0, 1) shaped like the argument


class Random(NamedTuple):
    """The two streams of random numbers a kernel may draw from."""

    normal: Noise
    uniform: Uniform

    @staticmethod
    def seeded(generator: torch.Generator) -> Random:
        """Streams that repeat bit for bit for the same generator state."""

        def normal(like: Tensor) -> Tensor:
            return torch.empty_like(like).normal_(generator=generator)

        def uniform(like: Tensor) -> Tensor:
            return torch.empty_like(like).uniform_(generator=generator)

        return Random(normal, uniform)


class Draw(NamedTuple):
    """One draw per chain: the position's evaluation and how likely its proposal was accepted."""

    position: Tensor  # (C, d), whitened
    evaluation: Evaluation
    acceptance: Tensor  # (C,) float64; 1 for unadjusted kernels


class Kernel(Protocol):
    """A Markov kernel for all chains at once. It knows nothing of networks, storage or the number of chains."""

    def init(self, position: Tensor, evaluate: Evaluate, random: Random) -> Any:
        """The state of chains that start at `position` (C, d): a NamedTuple of tensors with leading axis C."""
        ...

    def step(self, state: Any, evaluate: Evaluate, random: Random) -> tuple[Any, Draw]:
        """The next state, and a draw."""
        ...


def column(step_size: Tensor | float, like: Tensor) -> Tensor:
    """A step size, one for all chains or one each, as a (C, 1) or (1, 1) column."""
    if isinstance(step_size, Tensor):
        return step_size.to(like).reshape(-1, 1)
    return torch.full((1, 1), step_size, dtype=like.dtype, device=like.device)


def always(like: Tensor) -> Tensor:
    """Acceptance of an unadjusted kernel."""
    return torch.ones(len(like), dtype=torch.float64, device=like.device)
