"""The online natural gradient of several tensors, axis by axis: how gradients pass, and how its states learn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from ..streams import warming
from .eigen import eigen_of
from .lowrank import Due, LowRank, advanced, due, initial, preconditioned, weight_of_batch

MOST_RANK = 80

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
        """Those among the options of an optimizer."""
        return cls(**{each.name: options[each.name] for each in fields(cls)})


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
        """What becomes of the gradients; they may be overwritten by the next call.

        Args:
            gradients: the tensors.
            settings: of each of them.
            renewed: whether the states of a tensor take in its gradient, after it has passed.
            first: make all states anew, from these gradients.
        """
        known = all((number, axis) in self.states for number, axis, _ in self.places(gradients))
        if first or not known or any(not gradient.is_cuda for gradient in gradients):
            found, updates = self.passed(gradients, settings, renewed, first)
            self.renew(updates, eigen_of([update.gram for update in updates.values()]))
            return found
        key = tuple(settings), tuple(renewed), tuple((g.shape, g.dtype, g.device) for g in gradients)
        if key not in self._recorded:
            self._recorded[key] = _Recorded(self, gradients, settings, renewed)
        return self._recorded[key].replay(gradients)

    def places(self, gradients: Sequence[Tensor]) -> list[tuple[int, int, int]]:
        """Those of `axes_of`, members left out."""
        return axes_of([gradient.shape[self._leading :] for gradient in gradients])

    def passed(
        self,
        gradients: Sequence[Tensor],
        settings: Sequence[AxisSettings],
        renewed: Sequence[bool],
        first: bool = False,
    ) -> tuple[list[Tensor], dict[Axis, Due]]:
        """The directions, and the updates that are due; changes no state, but makes those that are missing."""
        found, updates = list(gradients), {}
        for number, axis, size in self.places(gradients):
            own, lead = settings[number], gradients[number].shape[: self._leading]
            turned = found[number].movedim(axis + self._leading, -1)
            flat = turned.reshape(*lead, -1, size)
            eta = weight_of_batch(flat.shape[-2], own.history) if own.eta is None else own.eta
            rates: dict[str, Any] = {"eta": eta, "epsilon": own.epsilon, "delta": own.delta, "single": own.single}
            if first or (number, axis) not in self.states:
                self._put((number, axis), initial(flat, rank_of_axis(own.rank, axis, size), **rates))
            state = self.states[number, axis]
            if renewed[number]:
                updates[number, axis] = due(state, flat, **rates)
            flat = preconditioned(state, flat, alpha=own.alpha, rescale=own.rescale, single=own.single)
            found[number] = flat.view(turned.shape).movedim(-1, axis + self._leading)
        return [direction.contiguous() for direction in found], updates

    def renew(self, updates: Mapping[Axis, Due], solved: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Put the next states in the place of the old ones; doing it twice changes nothing."""
        for (place, update), eigen in zip(updates.items(), solved, strict=True):
            self._put(place, advanced(update, *eigen))

    def _put(self, place: Axis, state: LowRank) -> None:
        if place not in self.states:
            self.states[place] = state
            return
        for held, new in zip(self.states[place], state, strict=True):
            held.copy_(new)


class _Recorded:
    """A step as two CUDA graphs: up to the matrices whose eigenvalues are wanted, and from these on."""

    def __init__(
        self, axes: Axes, gradients: Sequence[Tensor], settings: Sequence[AxisSettings], renewed: Sequence[bool]
    ) -> None:
        self._inputs = [gradient.clone(memory_format=torch.contiguous_format) for gradient in gradients]
        held = [part for state in axes.states.values() for part in state]
        kept = [part.clone() for part in held]

        def before() -> tuple[list[Tensor], dict[Axis, Due], list[Tensor]]:
            found, updates = axes.passed(self._inputs, settings, renewed)
            return found, updates, [update.gram for update in updates.values()]

        self._before, (self._found, updates, self._grams) = _graph(before)
        self._before.replay()
        self._solved = [(values.clone(), vectors.clone()) for values, vectors in eigen_of(self._grams)]
        self._after = _graph(lambda: axes.renew(updates, self._solved))[0] if updates else None
        torch._foreach_copy_(held, kept)  # recording was no step

    def replay(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        torch._foreach_copy_(self._inputs, list(gradients))
        self._before.replay()
        if self._after is not None:
            for held, new in zip(self._solved, eigen_of(self._grams), strict=True):
                torch._foreach_copy_(held, new)
            self._after.replay()
        return self._found


def _graph(action: Any) -> tuple[torch.cuda.CUDAGraph, Any]:
    """An action as a CUDA graph, and what it gives: the tensors that a replay writes to."""
    with warming():
        action()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = action()
    return graph, found


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
    wanted = (rank[0] if axis == 0 else rank[1]) if isinstance(rank, tuple) else rank
    return min(size - 1, min((size + 1) // 2, MOST_RANK) if wanted is None else wanted)
