"""What an evaluation costs: in nominal seconds, counted from its arithmetic, or in those of the clock that is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from ..landscape import Landscape, math_attention
from .chains import ChainLosses
from .clock import Clock

# What networks reach, per thread on a CPU: matrix arithmetic, bytes moved, and the time one operation takes to start.
_RATE = {"cpu": 5e10, "cuda": 5e13}
_BANDWIDTH = {"cpu": 2e10, "cuda": 2e12}
_START = {"cpu": 1.2e-5, "cuda": 1e-5}
_THIN, _MOST = 20, 20.0  # products of matrices thinner than this are slower on a CPU, by at most that factor
_PRODUCTS = {"mm": (0, 1), "bmm": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2)}  # where the two matrices stand


_TIMED = 5  # evaluations whose median counts
_TELLING = 4.0  # times as long as the smallest evaluation, from which on one tells what a sample costs
_TIMING_SHARE = 0.01  # of the budget, that one timed evaluation may take


@dataclass(frozen=True)
class Cost:
    """Seconds of one loss-and-gradient: a fixed part, and a part per sample and chain."""

    fixed: float
    each: float

    def of(self, samples: int, chains: int) -> float:
        """Seconds for `chains` chains on `samples` samples each."""
        return self.fixed + self.each * samples * chains

    def affordable_chains(self, samples: int, fewest: int, most: int) -> int:
        """As many chains as cost little more than the fixed part, between `fewest` and `most`."""
        return int(max(fewest, min(most, 4 * self.fixed / (self.each * samples))))


def cost(land: Landscape) -> Cost:
    """The cost of one loss-and-gradient, from the operations it takes on a few samples.

    Examples:
        >>> import torch, basinscope as bs
        >>> land = bs.Landscape(torch.nn.Linear(100, 100), "mse", (torch.zeros(9, 100), torch.zeros(9, 100)))
        >>> 0 < cost(land).each < 1e-4
        True
    """
    kind = land.device.type if land.device.type in _RATE else "cpu"
    threads = torch.get_num_threads() if kind == "cpu" else 1
    few, many = (_counted(land, count, thin=kind == "cpu") for count in (2, 6))
    flops, traffic = ((b - a) / 4 for a, b in zip(few[1:], many[1:], strict=True))
    return Cost(
        fixed=many[0] * _START[kind] + 2e-4,
        each=max(1e-12, (flops / _RATE[kind] + traffic / _BANDWIDTH[kind]) / threads),
    )


def measured_cost(losses: ChainLosses, clock: Clock) -> Cost:
    """The cost of one loss-and-gradient by the clock: of the smallest there is, and of more and more samples until
    what they cost shows."""
    counted = cache(lambda: cost(losses.land))
    n, device = losses.land.n, losses.origin.device

    def seconds(chains: int, samples: int) -> float:
        """Of a typical evaluation: the first ones are slow, and so are those of a machine that does other things."""
        delta = torch.zeros(chains, losses.dimension, dtype=losses.origin.dtype, device=device)
        indices = torch.arange(chains * samples, device=device).view(chains, samples) % n

        def work() -> float:
            return float(losses.minibatch(delta, indices)[0].sum())  # waits for the device

        times = [clock.price(work, lambda: counted().of(samples, chains)) for _ in range(_TIMED)]
        clock.spend(sum(times))
        return median(times)

    least, samples = seconds(1, 2), 8
    while (taken := seconds(2, samples)) <= min(_TELLING * least, _TIMING_SHARE * clock.seconds) and samples < n:
        samples *= 4
    each = max(1e-12, (taken - least) / (2 * samples - 2))
    return Cost(fixed=max(1e-6, least - 2 * each), each=each)


def _counted(land: Landscape, count: int, thin: bool) -> tuple[int, float, int]:
    """Operations, floating-point operations and bytes moved for `count` samples.

    With `thin`, products of thin matrices count as the larger ones that take as long.
    """
    point = land.flatten(land.parameters).requires_grad_()
    indices = torch.arange(count, device=land.samples.device) % land.n
    batch = land.take(indices)
    with torch.enable_grad(), math_attention(), FlopCounterMode(display=False) as flops, _Traffic(count) as traffic:
        torch.autograd.grad(land.losses(land.unflatten(point), batch).sum(), point)
    return traffic.operations, flops.get_total_flops() + (traffic.thinness if thin else 0.0), traffic.bytes


class _Traffic(TorchDispatchMode):
    """Counts operations, the bytes they write, and read about twice over, and what thin products take longer.

    Args:
        count: samples in use; that axis of a product will be long.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count
        self.operations = 0
        self.bytes = 0
        self.thinness = 0.0

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.operations += 1
        for output in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(output, Tensor) and not output._is_view():
                self.bytes += 3 * output.numel() * output.element_size()
        places = _PRODUCTS.get(func.overloadpacket.__name__)
        if places is not None:
            left, right = (args[place] for place in places)
            sizes = [left.shape[-2], left.shape[-1], right.shape[-1]]
            flops = 2 * left.numel() * sizes[2]
            if self._count in sizes:
                sizes.remove(self._count)
            self.thinness += flops * min(_MOST, 50 * max(0.0, 1 / min(sizes) - 1 / _THIN))
        return result
