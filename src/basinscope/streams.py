"""Work beside the GPU's main stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def warming() -> Iterator[None]:
    """A stream of its own for what it encloses: the warm-up that has to come before a CUDA graph is captured."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        yield
    torch.cuda.current_stream().wait_stream(side)
