"""Budgets counted in seconds of this process, for a machine that does other things beside."""

from __future__ import annotations

import time

import torch

from basinscope.sampling import clock


def own_time() -> None:
    """From here on a budget is in seconds of processor time, on one thread: what a clock shows on a quiet machine."""
    torch.set_num_threads(1)
    clock.default_clock = lambda seconds: clock.WallClock(seconds, time.process_time)


def one_thread(own: bool = False) -> None:
    """How a process of a benchmark begins."""
    torch.set_num_threads(1)
    if own:
        own_time()
