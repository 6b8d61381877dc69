"""The landscape of a network in training: gradient rows of a batch at the weights as they are now."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from ..curvature.gradients import Gradients, Piece, Rows
from ..errors import InputError
from ..landscape import Landscape
from ..losses import PerSample
from ..samples import Samples


class LiveGradients:
    """Rows g_ik of a batch, with Σ_ik g_ik g_ikᵀ / m the model Fisher matrix of the batch, at the model's own weights.

    The network's structure is surveyed once, on the first batch. From then on the rows follow the weights wherever the
    optimizer moves them in place.
    """

    def __init__(self, model: nn.Module, loss: str | PerSample, sigma: float | None) -> None:
        self._model, self._loss, self._sigma = model, loss, sigma
        self._gradients: Gradients | None = None
        self._tile = 1
        self.land: Landscape | None = None

    def tiles(self, batch: Samples) -> Iterator[list[Piece]]:
        """The pieces of the batch's rows, as many samples at a time as memory allows."""
        if self._gradients is None:
            self._gradients = self._survey(batch)
        for start in range(0, batch.n, self._tile):
            few = batch if self._tile >= batch.n else batch.take(slice(start, start + self._tile))
            yield self._gradients.of(few)

    @property
    def roots(self) -> int:
        """Rows that a sample has."""
        assert self._gradients is not None
        return self._gradients.roots

    def _survey(self, batch: Samples) -> Gradients:
        land = Landscape(self._model, self._loss, batch, sigma=self._sigma)
        # The weights themselves, not copies of them.
        land.parameters = {name: p.detach() for name, p in self._model.named_parameters() if p.requires_grad}
        self.land = land
        gradients = Gradients(land, "fisher")
        # By the network alone, whatever batch comes first: a resumed run must add up in the same order.
        numbers = sum(_numbers(piece) for piece in gradients.of(batch.take(slice(0, 1))))
        self._tile = max(1, gradients.memory // (16 * numbers))
        return gradients


def _numbers(piece: Piece) -> int:
    """The numbers that a sample's rows take, written out where they are no plain outer products."""
    if isinstance(piece, Rows):
        return piece.values.numel()
    sides = piece.left.numel() + piece.right.numel()
    return sides if piece.single else sides + piece.left.shape[1] * piece.index.numel()


def trainable(model: nn.Module) -> list[Tensor]:
    """The model's free parameters, tied ones once, in the order of its landscape."""
    if not isinstance(model, nn.Module):
        raise InputError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    free: list[Tensor] = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not free:
        raise InputError("the model has no trainable parameters: set requires_grad=True on those to be trained")
    return free


def flat(tensors: list[Tensor]) -> Tensor:
    """Tensors as one vector."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def shaped(vector: Tensor, like: list[Tensor]) -> list[Tensor]:
    """The pieces of a vector in the shapes and types of `like`."""
    pieces = vector.split([tensor.numel() for tensor in like])
    return [piece.view(tensor.shape).to(tensor.dtype) for piece, tensor in zip(pieces, like, strict=True)]
