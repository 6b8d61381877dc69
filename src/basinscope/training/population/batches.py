"""The samples that every member sees, members of one batch size side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .draws import draws, keys
from .members import Member, Subsets


@dataclass(frozen=True)
class Group:
    """The rows of members that share a batch size: their products have one shape."""

    rows: slice
    batch: int
    streams: Tensor
    subsets: Subsets

    def draw(self, step: int | Tensor, steps: int) -> Tensor:
        """Sample numbers for `steps` steps, (steps, members, batch)."""
        within_subset = draws(self.streams, self.subsets.sizes, step, steps, self.batch)
        places = within_subset.add_(self.subsets.offsets[:, None])
        return self.subsets.table.index_select(0, places.flatten()).view_as(places)


def order_of(members: Sequence[Member]) -> list[int]:
    """The members by batch size: row r of the stacked parameters is member order[r].

    Examples:
        >>> order_of([Member(batch_size=8), Member(batch_size=4), Member(batch_size=8)])
        [1, 0, 2]
    """
    return sorted(range(len(members)), key=lambda m: members[m].batch_size)


def groups_of(members: Sequence[Member], order: Sequence[int], subsets: Subsets) -> list[Group]:
    """Groups of equal batch size, in rows 0, 1, 2, …; `subsets` are those of the members, not of the rows."""
    device = subsets.table.device
    streams = keys([members[m].seed for m in order]).to(device)
    numbers = torch.tensor(order, device=device)
    offsets, sizes = subsets.offsets[numbers], subsets.sizes[numbers]
    groups = []
    start = 0
    for stop in range(1, len(order) + 1):
        batch = members[order[start]].batch_size
        if stop < len(order) and members[order[stop]].batch_size == batch:
            continue
        rows = slice(start, stop)
        of_rows = Subsets(subsets.table, offsets[rows], sizes[rows], [])
        groups.append(Group(rows, batch, streams[rows], of_rows))
        start = stop
    return groups
