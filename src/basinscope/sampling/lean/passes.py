"""Forward and backward passes over micro-batches that fit into memory, and gradients taken up as they arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor

from ...errors import InputError
from ...memory import shortage
from ...samples import Samples
from .weights import Weights

Act = Callable[[int, Tensor], None]  # what is to be done with the gradient of the tensor of that number


class Network(Protocol):
    """What the passes need of a network: its losses as a function of the leaves."""

    def losses(self, batch: Samples) -> tuple[Tensor, Tensor]:
        """The sum of the losses of a batch, which can be differentiated, and those of its samples."""


class Passes:
    """Passes of one network over its leaves.

    A gradient that is complete, with the last micro-batch, is handed on as soon as backward has made it, and let go:
    no two of them need to be in memory at once.

    Args:
        network: the network.
        weights: its leaves.
        micro: samples that go through it at once, at first.
        early: whether gradients may be taken up as they arrive; else all at once after each backward.
    """

    def __init__(self, network: Network, weights: Weights, micro: int, *, early: bool = True) -> None:
        self.micro = micro
        self.unused: set[int] = set()  # tensors that the loss does not depend on
        self._network = network
        self._weights = weights
        self._early = early
        self._act: Act | None = None
        self._arrivals = [0] * len(weights.leaves)

    @property
    def keeps_gradients(self) -> bool:
        """Whether all gradients are in memory at once."""
        return not self._early

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Within it gradients are taken up as they arrive; none of it stays on the network."""
        leaves = self._weights.leaves
        handles = [leaf.register_post_accumulate_grad_hook(self._hook(number)) for number, leaf in enumerate(leaves)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            self.forget()

    def fit(self, batch: Samples) -> None:
        """Find out how many samples fit into memory at once, and how the gradients arrive."""
        self.micro = min(self.micro, batch.n)
        while True:
            try:
                self._arrivals = [0] * len(self._arrivals)
                self.gradient(batch.take(slice(0, self.micro)), 1.0)
                break
            except torch.OutOfMemoryError as error:
                self.shrink(error)
        self.unused = {number for number, leaf in enumerate(self._weights.leaves) if leaf.grad is None}
        if any(count > 1 for count in self._arrivals):  # as of re-entrant checkpoints, which come back to a tensor
            self._early = False
        self.forget()
        if len(self.unused) == len(self._arrivals):
            raise InputError(
                "the loss does not depend on the parameters: expected a differentiable output — remove detach() or "
                "torch.no_grad() from the model and the loss"
            )

    def step(self, batch: Samples, weight: float, act: Act) -> Tensor:
        """The losses of a batch; `act` is given the gradient of weight·Σ losses, tensor by tensor."""
        pieces = list(self._pieces(batch))
        losses = []
        for number, piece in enumerate(pieces):
            last = number == len(pieces) - 1
            self._act = act if last and self._early else None
            losses.append(self._backward(piece, weight))
        self._act = None
        for number, leaf in enumerate(self._weights.leaves):  # what no hook has taken up
            if leaf.grad is not None:
                self._hand_over(number, leaf, act)
        return torch.cat(losses)

    def gradient(self, batch: Samples, weight: float) -> Tensor:
        """The losses of a batch; the gradient of weight·Σ losses is added to those that the leaves hold."""
        return torch.cat([self._backward(piece, weight) for piece in self._pieces(batch)])

    @torch.no_grad()
    def losses(self, batch: Samples) -> Tensor:
        """The losses of a batch, (m,) float64."""
        return torch.cat([self._network.losses(piece)[1].double() for piece in self._pieces(batch)])

    def held(self) -> Iterator[tuple[int, Tensor]]:
        """The gradients that the leaves hold."""
        for number, leaf in enumerate(self._weights.leaves):
            if leaf.grad is not None:
                yield number, self._weights.part(number, leaf.grad)

    def forget(self) -> None:
        """Let go of all gradients."""
        for leaf in self._weights.leaves:
            leaf.grad = None

    def _pieces(self, batch: Samples) -> Iterator[Samples]:
        for start in range(0, batch.n, self.micro):
            yield batch if self.micro >= batch.n else batch.take(slice(start, start + self.micro))

    def _backward(self, piece: Samples, weight: float) -> Tensor:
        with torch.enable_grad():
            total, each = self._network.losses(piece)
            (total * weight).backward()
        return each.detach().double()

    def _hook(self, number: int) -> Callable[[Tensor], None]:
        def arrived(leaf: Tensor) -> None:
            self._arrivals[number] += 1
            if self._act is not None:
                self._hand_over(number, leaf, self._act)

        return arrived

    def _hand_over(self, number: int, leaf: Tensor, act: Act) -> None:
        gradient, leaf.grad = leaf.grad, None
        assert gradient is not None
        act(number, self._weights.part(number, gradient))

    def shrink(self, error: torch.OutOfMemoryError) -> None:
        """Half as many samples at once; of one alone, say what is missing."""
        self.forget()
        if self.micro > 1:
            self.micro //= 2
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            return
        raise InputError(
            f"one sample at a time does not fit into memory{shortage(error)} — take shorter sequences, switch on "
            f"gradient checkpointing, or use autocast=torch.bfloat16"
        ) from error
