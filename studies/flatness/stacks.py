"""Networks of one architecture side by side on the same samples: their losses and gradients on all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from basinscope.curvature.precision import full_precision
from basinscope.landscape import Landscape
from basinscope.training.population.program import Program, program_of

_MEMORY = {"cpu": 128 * 2**20, "cuda": 8 * 2**30}


@dataclass
class Stack:
    """Networks θ + δ, by their displacements δ.

    Attributes:
        land: the landscape of one of them; all see its samples.
        weights: their parameters θ as rows (M, d).
    """

    land: Landscape
    weights: Tensor
    _program: Program = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._program = program_of(self.land)
        self._pool = self._program.pool(self.land.samples.to(self.land.device))
        self.weights = self.weights.to(self.land.device, self.land.dtype)

    def _tiles(self) -> Iterator[slice]:
        bound = _MEMORY.get(self.land.device.type, _MEMORY["cpu"])
        size = max(1, bound // (self._program.sample_bytes * len(self.weights)))
        for start in range(0, self.land.n, size):
            yield slice(start, min(start + size, self.land.n))

    def _rows(self, delta: Tensor) -> Tensor:
        rows = self._program.template.repeat(len(delta), 1)
        rows[:, self._program.places] = self.weights + delta
        return rows

    @torch.no_grad()
    def losses(self, delta: Tensor) -> Tensor:
        """l_i(θ + δ), (M, n) in float64."""
        points, (inputs, target) = self._rows(delta), self._pool
        with full_precision():
            pieces = [self._program.evaluate(points, inputs[tile], target[tile])[0] for tile in self._tiles()]
        return torch.cat([piece.double() for piece in pieces], 1)

    @torch.no_grad()
    def gradient(self, delta: Tensor) -> Tensor:
        """∇L_n(θ + δ), (M, d)."""
        points, (inputs, target) = self._rows(delta), self._pool
        total, part = torch.zeros_like(points), torch.zeros_like(points)
        with full_precision():
            for tile in self._tiles():
                batch, wanted = inputs[tile], target[tile]
                everywhere = batch.expand(len(points), *batch.shape), wanted.expand(len(points), *wanted.shape)
                self._program.gradient(points, *everywhere, part, None)
                total.add_(part, alpha=len(batch) / self.land.n)
        return total[:, self._program.places]
