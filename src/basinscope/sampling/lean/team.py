"""The processes over which a network's weights are spread, and who walk together: one sum, one clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as distributed
from torch import Tensor

from ...errors import InputError
from ..clock import Clock


class Team:
    """One process, which has all of every tensor.

    Attributes:
        rank, size: of this process, and how many there are.
    """

    rank, size = 0, 1

    def summed(self, values: Tensor) -> Tensor:
        """Sums over what each process holds of a tensor, as sums over the whole."""
        return values

    def gathered(self, values: Tensor) -> Tensor:
        """What every process has computed, one after another."""
        return values

    def share(self, count: int) -> slice:
        """Which of so many samples are this process's."""
        return slice(0, count)

    def timed(self, clock: Clock) -> Clock:
        """A clock that tells all of them the same."""
        return clock


class Processes(Team):
    """Several processes, each with a part of every tensor, on which FSDP2 means the gradients."""

    def __init__(self, group: Any) -> None:
        self._group = group
        self.rank, self.size = distributed.get_rank(group), distributed.get_world_size(group)

    def summed(self, values: Tensor) -> Tensor:
        total = values.clone()
        distributed.all_reduce(total, group=self._group)
        return total

    def gathered(self, values: Tensor) -> Tensor:
        parts = [torch.empty_like(values) for _ in range(self.size)]
        distributed.all_gather(parts, values.contiguous(), group=self._group)
        return torch.cat(parts)

    def share(self, count: int) -> slice:
        each = count // self.size
        return slice(self.rank * each, (self.rank + 1) * each)

    def timed(self, clock: Clock) -> Clock:
        return _Shared(clock, self._group, self.rank)


class Replicas:
    """Processes with a copy of the network each, which share the chains; this one alone, unless told otherwise.

    Args:
        shared: whether there are others.
    """

    def __init__(self, shared: bool) -> None:
        if shared and not distributed.is_initialized():
            raise InputError(
                "replicas share chains over the processes of torch.distributed, which is not initialized — start them "
                "by torchrun and call torch.distributed.init_process_group, or leave replicas out"
            )
        self.shared = shared
        self.rank, self.size = (distributed.get_rank(), distributed.get_world_size()) if shared else (0, 1)

    def told(self, value: Any) -> Any:
        """What the first of them says."""
        if not self.shared:
            return value
        answer = [value]
        distributed.broadcast_object_list(answer, src=0)
        return answer[0]

    def together(self, found: dict[int, Any]) -> dict[int, Any]:
        """What all of them have found, by number, in order."""
        if not self.shared:
            return found
        parts: list[Any] = [None] * self.size
        distributed.all_gather_object(parts, found)
        return dict(sorted(item for part in parts for item in part.items()))


class _Shared(Clock):
    """The clock of the first process, whose answers all go by."""

    def __init__(self, clock: Clock, group: Any, rank: int) -> None:
        super().__init__(clock.seconds)
        self._clock, self._group, self._rank = clock, group, rank
        self.running = clock.running  # type: ignore[method-assign]

    @property
    def schedule(self) -> Any:  # type: ignore[override]
        return self._clock.schedule

    def spent(self) -> float:
        return self._agreed(self._clock.spent())

    def spend(self, nominal: float) -> None:
        self._clock.spend(nominal)

    def price(self, work: Callable[[], Any], nominal: Callable[[], float]) -> float:
        return self._agreed(self._clock.price(work, nominal))

    def _agreed(self, seconds: float) -> float:
        answer = [seconds]
        distributed.broadcast_object_list(answer, group_src=0, group=self._group)
        return answer[0]


def team_of(tensors: Iterable[Tensor]) -> Team:
    """The processes that hold these tensors together; this one alone, unless they are spread."""
    meshes: set[Any] = {getattr(tensor, "device_mesh", None) for tensor in tensors} - {None}
    if not meshes:
        return Team()
    if len(meshes) > 1 or next(iter(meshes)).ndim > 1:
        raise InputError(
            "weights are spread over processes in several ways or along several axes: expected fully_shard over one "
            "axis of processes — hybrid sharding and tensor parallelism are not walked on"
        )
    return Processes(next(iter(meshes)).get_group())
