"""The online natural gradient of several tensors, axis by axis: how gradients pass, and how its states learn."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ..streams import warming
from .lowrank import LowRank, PendingUpdate, advanced, due, initial, preconditioned, weight_of_batch

MAX_RANK = 80  # unless another is asked for

Axis = tuple[int, int]  # a tensor's number, and one of its axes


@dataclass(frozen=True)
class AxisSettings:
    """Settings of one tensor, as `OnlineNGD` has them."""

    alpha: float | Tensor  # α and ε may be tensors with one value for each of the leading axes' members
    epsilon: float | Tensor
    eta: float | None
    history: float
    delta: float
    rank: int | tuple[int, int] | None
    rescale: bool
    single: bool

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> AxisSettings:
        """The settings among the options of an optimizer."""
        return cls(**{field.name: options[field.name] for field in fields(cls)})


class Axes:
    """Several gradient tensors through the inverse of each of their axes in turn.

    On a GPU a step is recorded as CUDA graphs: its hundreds of small operations take several times longer to launch
    than to do. Between two graphs the processor solves the eigenvalue problems.

    Args:
        states: of every axis, renewed in place; those that are missing are made from the first gradient.
        leading: axes in front that count members, not entries of the tensors.
    """

    def __init__(self, states: dict[Axis, LowRank], leading: int = 0) -> None:
        self.states, self._leading = states, leading
        self._recorded: dict[Any, _Recorded] = {}

    def directions(
        self,
        gradients: Sequence[Tensor],
        settings: Sequence[AxisSettings],
        renewed: Sequence[bool],
        first: bool = False,
    ) -> list[Tensor]:
        """The directions that the gradients turn into; the next call may overwrite them.

        Args:
            gradients: the tensors.
            settings: of each of them.
            renewed: whether the states of a tensor take in its gradient, after it has passed.
            first: make all states anew, from these gradients.
        """
        complete = all((number, axis) in self.states for number, axis, _ in self.places(gradients))
        if first or not complete or any(not gradient.is_cuda for gradient in gradients):
            directions, updates = self.precondition(gradients, settings, renewed, first)
            self.renew(updates, eigen_of([update.gram for update in updates.values()]))
            return directions
        key = tuple(settings), tuple(renewed), tuple((g.shape, g.dtype, g.device) for g in gradients)
        if key not in self._recorded:
            self._recorded[key] = _Recorded(self, gradients, settings, renewed)
        return self._recorded[key].replay(gradients)

    def places(self, gradients: Sequence[Tensor]) -> list[tuple[int, int, int]]:
        """The axes that have something to turn, as `axes_of` lists them, members left out."""
        return axes_of([gradient.shape[self._leading :] for gradient in gradients])

    def precondition(
        self,
        gradients: Sequence[Tensor],
        settings: Sequence[AxisSettings],
        renewed: Sequence[bool],
        first: bool = False,
    ) -> tuple[list[Tensor], dict[Axis, PendingUpdate]]:
        """The directions, and the updates that are due; changes no state, but makes those that are missing."""
        directions, updates = list(gradients), {}
        for number, axis, size in self.places(gradients):
            # The tensor as rows X (…, N, D) along this axis.
            options, lead = settings[number], gradients[number].shape[: self._leading]
            turned = directions[number].movedim(axis + self._leading, -1)
            flat = turned.reshape(*lead, -1, size)
            eta = weight_of_batch(flat.shape[-2], options.history) if options.eta is None else options.eta
            rates: dict[str, Any] = {
                "eta": eta,
                "epsilon": options.epsilon,
                "delta": options.delta,
                "single": options.single,
            }
            if first or (number, axis) not in self.states:
                self._put((number, axis), initial(flat, rank_of_axis(options.rank, axis, size), **rates))
            state = self.states[number, axis]
            if renewed[number]:
                updates[number, axis] = due(state, flat, **rates)
            flat = preconditioned(state, flat, alpha=options.alpha, rescale=options.rescale, single=options.single)
            directions[number] = flat.view(turned.shape).movedim(-1, axis + self._leading)
        return [direction.contiguous() for direction in directions], updates

    def renew(self, updates: Mapping[Axis, PendingUpdate], eigensystems: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Put the next states in the place of the old ones; doing it twice changes nothing."""
        for (place, update), eigen in zip(updates.items(), eigensystems, strict=True):
            self._put(place, advanced(update, *eigen))

    def _put(self, place: Axis, state: LowRank) -> None:
        if place not in self.states:
            self.states[place] = state
            return
        # In place, because recorded graphs read and write these very tensors.
        for old, new in zip(self.states[place], state, strict=True):
            old.copy_(new)


class _Recorded:
    """A step as two CUDA graphs: up to the matrices whose eigenvalues are wanted, and from these on."""

    def __init__(
        self, axes: Axes, gradients: Sequence[Tensor], settings: Sequence[AxisSettings], renewed: Sequence[bool]
    ) -> None:
        self._inputs = [gradient.clone(memory_format=torch.contiguous_format) for gradient in gradients]
        states = [part for state in axes.states.values() for part in state]
        states_before = [part.clone() for part in states]

        def before() -> tuple[list[Tensor], dict[Axis, PendingUpdate], list[Tensor]]:
            directions, updates = axes.precondition(self._inputs, settings, renewed)
            return directions, updates, [update.gram for update in updates.values()]

        self._before, (self._directions, updates, self._grams) = _graph(before)
        self._before.replay()
        self._eigensystems = [(values.clone(), vectors.clone()) for values, vectors in eigen_of(self._grams)]
        self._after = _graph(lambda: axes.renew(updates, self._eigensystems))[0] if updates else None
        torch._foreach_copy_(states, states_before)  # recording was no step

    def replay(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        torch._foreach_copy_(self._inputs, list(gradients))
        self._before.replay()
        if self._after is not None:
            for buffers, eigensystem in zip(self._eigensystems, eigen_of(self._grams), strict=True):
                torch._foreach_copy_(buffers, eigensystem)
            self._after.replay()
        return self._directions


def _graph(action: Any) -> tuple[torch.cuda.CUDAGraph, Any]:
    """An action as a CUDA graph, and its result: the tensors that a replay writes to."""
    with warming():
        action()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = action()
    return graph, result


def axes_of(shapes: Iterable[Sequence[int]]) -> list[tuple[int, int, int]]:
    """The axes that have something to turn: a tensor's number, the axis, its size.

    Examples:
        >>> axes_of([(3, 1), (3,)])
        [(0, 0, 3), (1, 0, 3)]
    """
    return [(number, axis, size) for number, shape in enumerate(shapes) for axis, size in enumerate(shape) if size > 1]


def rank_of_axis(rank: int | tuple[int, int] | None, axis: int, size: int) -> int:
    """The rank r that an axis of the given size gets: at most D − 1.

    Examples:
        >>> rank_of_axis(None, 0, 9), rank_of_axis((80, 20), 0, 64), rank_of_axis((80, 20), 1, 785)
        (5, 63, 20)
    """
    chosen = (rank[0] if axis == 0 else rank[1]) if isinstance(rank, tuple) else rank
    return min(size - 1, min((size + 1) // 2, MAX_RANK) if chosen is None else chosen)


MIN_GPU_WIDTH = 256  # of a matrix that the card solves itself


def eigen_of(matrices: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Eigenvalues (…, r) and eigenvectors (…, r, r) of symmetric matrices (…, r, r), of whatever shapes.

    A card's solver takes small matrices one by one, a thousand launches each: 1.1 ms for 80 × 80 on an H200, where a
    processor core needs 0.9 ms and there are many cores. So small ones are brought over, and shared out among threads.

    Examples:
        >>> (values, vectors), = eigen_of([torch.tensor([[2.0, 1.0], [1.0, 2.0]])])
        >>> values
        tensor([1., 3.])
    """
    pairs: list[tuple[Tensor, Tensor] | None] = [None] * len(matrices)
    # Matrices of one size, type and device are solved together.
    alike: dict[tuple[int, torch.dtype, torch.device], list[int]] = {}
    for number, matrix in enumerate(matrices):
        alike.setdefault((matrix.shape[-1], matrix.dtype, matrix.device), []).append(number)
    for numbers in alike.values():
        group = [matrices[number] for number in numbers]
        shapes = [matrix.shape for matrix in group]
        flat = torch.cat([matrix.reshape(-1, *matrix.shape[-2:]) for matrix in group])
        counts = [shape[:-2].numel() for shape in shapes]
        values, vectors = (part.split(counts) for part in _eigh(flat))
        for number, shape, value, vector in zip(numbers, shapes, values, vectors, strict=True):
            pairs[number] = value.reshape(shape[:-1]), vector.reshape(shape)
    return [pair for pair in pairs if pair is not None]


def _eigh(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of matrices (B, r, r), on the device that is fastest for their size."""
    if matrices.device.type != "cuda" or matrices.shape[-1] >= MIN_GPU_WIDTH:
        return torch.linalg.eigh(matrices)
    values, vectors = shared_out(matrices.cpu())
    return values.to(matrices.device), vectors.to(matrices.device)


def shared_out(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of matrices (B, r, r) on the processor, a share for each thread."""
    shares = matrices.chunk(min(len(matrices), os.cpu_count() or 1))
    values, vectors = zip(*_threads().map(torch.linalg.eigh, shares), strict=True)
    return torch.cat(values), torch.cat(vectors)


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count() or 1, "eigenvalues")
