"""Time and memory of chain draws, architecture by architecture."""

from __future__ import annotations

import time
from typing import Any

import torch

from basinscope.landscape import Landscape
from basinscope.sampling.calibration import Resolution, resolution
from basinscope.sampling.chains import ChainLosses
from basinscope.sampling.engine import Engine
from basinscope.sampling.kernels import SGLD
from basinscope.sampling.minibatches import minibatches
from basinscope.sampling.target import Target, Whitening

from .cases import timed_network
from .jobs import Timing

Row = dict[str, Any]
_WARM = 3


def run(job: Timing) -> list[Row]:
    """One row: milliseconds per chain draw of plain SGLD, and the peak memory of the device."""
    net, data, batch = timed_network(job.case, job.millions)
    land = Landscape(net, "cross_entropy", data)
    at = resolution(land)
    cuda = land.device.type == "cuda"
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    milliseconds = draw_time(land, at, job, batch)
    return [
        {
            "parameters": land.dimension, "batch": batch, "milliseconds": milliseconds,
            "gigabytes": torch.cuda.max_memory_allocated() / 1e9 if cuda else None,
            "where": torch.cuda.get_device_name() if cuda else "CPU",
        }
    ]  # fmt: skip


def draw_time(land: Landscape, at: Resolution, job: Timing, batch: int) -> float:
    """Milliseconds per draw and chain, after a few draws that are not counted."""
    losses = ChainLosses(land)
    target = Target(losses, at.nbeta, at.gamma, Whitening.identity(losses.origin))
    generator = torch.Generator(land.device).manual_seed(job.seed)
    start = torch.zeros(job.chains, losses.dimension, dtype=land.dtype, device=land.device)
    engine = Engine(SGLD(1e-9), minibatches(target, batch, generator, None), start, generator, float("inf"))
    engine.run(_WARM)
    began = time.perf_counter()
    engine.run(job.draws)  # hands its statistics to the CPU, and so waits for them
    return 1e3 * (time.perf_counter() - began) / (job.draws * job.chains)
