"""What an evaluation costs, in nominal seconds.

Budgets are counted in arithmetic rather than read off a clock, so that the same seed gives the same bits whatever
else the machine is doing.
"""

from __future__ import annotations

import torch

from .chains import ChainLosses

_RATE = {"cpu": 8e9, "cuda": 3e13}  # matrix arithmetic per second that networks reach, per thread on the CPU
_BANDWIDTH = {"cpu": 1.5e9, "cuda": 1.5e12}  # bytes of activations per second, likewise
_OVERHEAD = {"cpu": 1.5e-3, "cuda": 1e-3}  # of one evaluation, however small


def evaluation_cost(losses: ChainLosses, samples: int, chains: int) -> float:
    """Nominal seconds of one loss-and-gradient of `chains` chains on `samples` samples each."""
    kind = losses.land.device.type
    threads = torch.get_num_threads() if kind == "cpu" else 1
    arithmetic = losses.sample_flops / _RATE.get(kind, _RATE["cpu"])
    traffic = losses.sample_bytes / _BANDWIDTH.get(kind, _BANDWIDTH["cpu"])
    return _OVERHEAD.get(kind, 1e-3) + (arithmetic + traffic) * samples * chains / threads


def affordable_chains(losses: ChainLosses, samples: int, fewest: int, most: int) -> int:
    """As many chains as run at little more than the price of the overhead, between `fewest` and `most`."""
    kind = losses.land.device.type
    alone = evaluation_cost(losses, samples, 1) - _OVERHEAD.get(kind, 1e-3)
    return int(max(fewest, min(most, 4 * _OVERHEAD.get(kind, 1e-3) / max(alone, 1e-12))))
