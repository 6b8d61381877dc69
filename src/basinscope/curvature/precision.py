"""Arithmetic that second derivatives can rely on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ..landscape import math_attention


@contextmanager
def full_precision() -> Iterator[None]:
    """Differentiable attention, and convolutions and matrix products in true float32.

    On recent GPUs torch rounds the inputs of convolutions to ten bits unless told otherwise, and those of matrix
    products if told so: products with J and with Jᵀ then no longer belong together, and a positive matrix shows
    negative eigenvalues.
    """
    cudnn = torch.backends.cudnn
    precision = torch.get_float32_matmul_precision()
    kept = {"enabled": cudnn.enabled, "benchmark": cudnn.benchmark, "deterministic": cudnn.deterministic}
    torch.set_float32_matmul_precision("highest")
    try:
        with math_attention(), cudnn.flags(**kept, allow_tf32=False):
            yield
    finally:
        torch.set_float32_matmul_precision(precision)
