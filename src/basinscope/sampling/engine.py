"""The engine: run a kernel for all chains, stop those that diverge, hand over what was drawn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..streams import MAX_CAPTURED, Captured, FilledConstants, capturable
from .kernels.base import Draw, Kernel, Random
from .rows import row_dot
from .target import Evaluate


class Engine:
    """All chains of one kernel on one target.

    A chain that is no longer finite, or whose excess loss passes `ceiling`, is dead for good: `alive` says so and its
    statistics are NaN from then on. On a GPU the step of all but the largest networks is captured once as a CUDA graph
    and replayed, unless the model waits for the GPU within it, or `evaluate` is captured by itself.

    Args:
        kernel: what to run.
        evaluate: the target, as the kernel sees it.
        position: where the chains start, whitened (C, d).
        generator: source of all randomness.
        ceiling: largest credible excess loss.
        controls: virials and tilt of positions and gradients, recorded with every draw.
    """

    def __init__(
        self,
        kernel: Kernel,
        evaluate: Evaluate,
        position: Tensor,
        generator: torch.Generator,
        ceiling: float,
        controls: Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]] | None = None,
    ) -> None:
        self._controls = controls
        self._evaluate = evaluate
        self._random = Random.seeded(generator)
        self._generator = generator
        self._ceiling = ceiling
        self.alive = torch.ones(len(position), dtype=torch.bool, device=position.device)
        self._graph: torch.cuda.CUDAGraph | None = None
        whole = not isinstance(evaluate, Captured)
        self._capturable = whole and position.device.type == "cuda" and position.numel() <= MAX_CAPTURED
        self.kernel = kernel
        self._state = kernel.init(position.clone(), evaluate, self._random)

    @property
    def position(self) -> Tensor:
        """Where the chains are, whitened (C, d)."""
        return self._state.position

    def living(self) -> Tensor:
        """Positions for chains to go on from: a dead chain takes the place of one that lives, or of w* if none does."""
        living = self.alive.nonzero()[:, 0]
        if len(living) == 0:
            return torch.zeros_like(self.position)
        numbers = torch.arange(len(self.alive), device=living.device)
        return self.position[torch.where(self.alive, numbers, living[numbers % len(living)])]

    def use(self, kernel: Kernel) -> None:
        """Go on from the present state with other settings of the same kernel."""
        self.kernel = kernel
        self._graph = None

    def run(self, steps: int) -> NDArray[np.float64]:
        """Take `steps` steps; their statistics, shape (steps, chains, statistics)."""
        if self._capturable and self._graph is None:
            self._capture()
        if self._graph is None:
            return torch.stack([self._step() for _ in range(steps)]).cpu().numpy()
        record = torch.empty(steps, *self._last.shape, dtype=torch.float64, device=self._last.device)
        for row in record:
            self._graph.replay()
            row.copy_(self._last)
        return record.cpu().numpy()

    def _step(self) -> Tensor:
        self._state, draw = self.kernel.step(self._state, self._evaluate, self._random)
        sound = torch.isfinite(draw.evaluation.distance) & (draw.evaluation.excess.abs() < self._ceiling)
        self.alive = self.alive & sound
        return self._statistics(draw)

    def _statistics(self, draw: Draw) -> Tensor:
        excess, gradient, distance = draw.evaluation
        if self._controls is None:
            virial = row_dot(draw.position, gradient)
            soft = tilt = torch.zeros_like(virial)
        else:
            virial, soft, tilt = self._controls(draw.position, gradient)
        columns = (  # STATISTICS
            excess, (excess + tilt).square(), virial.double(), soft.double(), tilt.double(), distance,
            excess * distance, draw.acceptance,
        )  # fmt: skip
        table = torch.stack(columns, dim=1)
        return torch.where(self.alive[:, None], table, torch.full_like(table, torch.nan))

    def _capture(self) -> None:
        """Record one step as a CUDA graph that reads and writes the same memory at every replay, if it can be."""
        static = type(self._state)(*(entry.clone() for entry in self._state))
        alive = self.alive.clone()
        rng = self._generator.get_state()

        def step() -> None:
            self._state, self.alive = static, alive
            self._step()

        self._capturable = capturable(step)
        self._generator.set_state(rng)
        self._state, self.alive = static, alive
        if not self._capturable:
            return
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self._generator)
        with FilledConstants(), torch.cuda.graph(graph):
            self._last = self._step()
            for entry, new in zip(static, self._state, strict=True):
                entry.copy_(new)
            alive.copy_(self.alive)
        self._state, self.alive, self._graph = static, alive, graph
