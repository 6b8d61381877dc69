"""Steps of a whole population, in blocks; on a GPU a block is one CUDA graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...samples import Tree, map_tensors
from ...streams import warming
from .batches import Group
from .program import Program
from .updates import Layout, MemberRows, Update

BLOCK = 32  # steps; the minibatches of a block are drawn at once, and after each block diverged members are frozen
_MAX_INDICES = 2**25  # of samples, drawn at once on a GPU
_GPU_SHARE = 8  # of the card's memory for activations, unless told otherwise


@dataclass(frozen=True)
class State:
    """Everything that changes during training; row r belongs to the r-th member by batch size."""

    points: Tensor  # (M, D)
    slots: dict[str, Tensor]  # of the optimizer, each (M, …)
    step: Tensor  # steps taken, ()
    diverged: Tensor  # the step at which a member was frozen, −1 for those that live, (M,)
    losses: Tensor  # of the last batch of the last block, (M,)


class Stepper:
    """Advances a state in place.

    Args:
        program: losses and gradients.
        update: the optimizer.
        groups: which samples the members see.
        pool: the data, as the program lays them out.
        layout: where the parameters lie in a row.
        state: where to start.
        lr: learning rates per row, (M,).
        weight_decay: weight decays per row, (M,).
        ceiling: largest credible batch loss per row, (M,).
        memory: bytes for the activations, None for what is fast.
    """

    def __init__(
        self,
        program: Program,
        update: Update,
        groups: Sequence[Group],
        pool: tuple[Tree, Tree],
        layout: Layout,
        state: State,
        lr: Tensor,
        weight_decay: Tensor,
        ceiling: Tensor,
        memory: int | None,
    ) -> None:
        self.state = state
        self._program, self._update, self._groups, self._pool = program, update, groups, pool
        self._layout = layout
        free = torch.zeros_like(program.template)
        free[program.places] = 1
        # Learning rates and weight decays are 0 at constants, which nothing may move.
        self._full_rate, self._decay = (column.to(free)[:, None] * free for column in (lr, weight_decay))
        self._rate, self._ceiling = self._full_rate.clone(), ceiling
        self._gradient = torch.empty_like(state.points)
        self._before = torch.empty_like(state.points)
        self._caches: dict[tuple[int | None, int | None], dict[str, Any]] = {}
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._cuda = state.points.device.type == "cuda"
        bound = memory or (_card_memory(state.points) if self._cuda else program.tile_bytes)
        self._tiles = [self._tiled(group, bound) for group in groups]
        self._samples = sum(group.batch * len(group.streams) for group in groups)  # in a step of all members

    def _tiled(self, group: Group, memory: int) -> list[slice]:
        """The rows of a group in turns whose activations stay within memory."""
        count = max(1, memory // (self._program.sample_bytes * group.batch))
        return [
            slice(start, min(start + count, group.rows.stop))
            for start in range(group.rows.start, group.rows.stop, count)
        ]

    def block(self, steps: int) -> None:
        """Take `steps` steps, then freeze the members that diverged."""
        if not (self._cuda and self._update.capturable):
            self._block(steps)
            return
        if steps not in self._graphs:
            self._graphs[steps] = self._capture(steps)
        self._graphs[steps].replay()

    def _block(self, steps: int) -> None:
        """The steps of a block one after another, with nothing that waits for the device."""
        state = self.state
        self._before.copy_(state.points)
        moments = state.step + torch.arange(1, steps + 1, dtype=torch.float64, device=state.step.device)
        factors = self._update.factors(moments, state.points.dtype)
        # few launches on a GPU, numbers that stay in the cache on a CPU
        at_once = max(1, min(steps, _MAX_INDICES // self._samples)) if self._cuda else 1
        with torch.no_grad():
            for k in range(steps):
                if k % at_once == 0:
                    indices = [group.draw(state.step + k, min(at_once, steps - k)) for group in self._groups]
                numbers = [of_group[k % at_once] for of_group in indices]
                self._step(numbers, tuple(factor[k] for factor in factors), measure=k == steps - 1)
            self._freeze()
            state.step.add_(steps)

    def _step(self, numbers: list[Tensor], factors: tuple[Any, ...], measure: bool) -> None:
        """One step of all members on the samples of these numbers, by group; with `measure`, their losses too."""
        state = self.state
        for group, tiles, of_group in zip(self._groups, self._tiles, numbers, strict=True):
            for rows in tiles:
                of_tile = of_group[rows.start - group.rows.start : rows.stop - group.rows.start]
                inputs, target = (_select(part, of_tile) for part in self._pool)
                losses = state.losses[rows] if measure else None
                self._program.gradient(state.points[rows], inputs, target, self._gradient[rows], losses)
                if not self._cuda:  # while these rows are in the cache
                    self._apply(rows, factors)
        if self._cuda:
            self._apply(slice(None), factors)

    def _apply(self, rows: slice, factors: tuple[Any, ...]) -> None:
        """The optimizer's part of a step."""
        slots = {name: slot[rows] for name, slot in self.state.slots.items()}
        points, gradient = self.state.points[rows], self._gradient[rows]
        cache = self._caches.setdefault((rows.start, rows.stop), {})
        self._update.apply(
            MemberRows(points, gradient, self._rate[rows], self._decay[rows], slots, factors, self._layout, cache)
        )

    def reset_rates(self) -> None:
        """Let those members move that have not diverged, after the state was changed from outside."""
        self._rate.copy_(torch.where(self.state.diverged[:, None] < 0, self._full_rate, 0.0))

    def _freeze(self) -> None:
        """Put members that diverged back to the start of the block, and stop them for good."""
        state = self.state
        sound = torch.isfinite(state.points).all(1) & (state.losses <= self._ceiling)
        alive = state.diverged < 0
        going_on = sound & alive
        state.points.copy_(torch.where(going_on[:, None], state.points, self._before))
        for tensor in (*state.slots.values(), self._rate):
            where = going_on.view(-1, *[1] * (tensor.ndim - 1))
            tensor.copy_(torch.where(where, tensor, torch.zeros_like(tensor)))
        state.diverged.copy_(torch.where(alive & ~sound, state.step, state.diverged))

    def _capture(self, steps: int) -> torch.cuda.CUDAGraph:
        """Record a block that reads and writes the same memory at every replay."""
        state = self.state
        tensors = (state.points, *state.slots.values(), state.step, state.diverged, state.losses, self._rate)
        saved = [tensor.clone() for tensor in tensors]
        with warming():
            self._block(1)
        for tensor, value in zip(tensors, saved, strict=True):
            tensor.copy_(value)
        graph = torch.cuda.CUDAGraph()
        pool = next((other.pool() for other in self._graphs.values()), None)
        with torch.cuda.graph(graph, pool=pool):
            self._block(steps)
        return graph


def _select(tree: Tree, numbers: Tensor) -> Tree:
    """The samples of these numbers, with the leading axes of `numbers`."""
    return map_tensors(lambda tensor: tensor.index_select(0, numbers.flatten()).unflatten(0, numbers.shape), tree)


def _card_memory(points: Tensor) -> int:
    return int(torch.cuda.get_device_properties(points.device).total_memory) // _GPU_SHARE
