"""Arithmetic that second derivatives and energies can rely on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..landscape import math_attention

_BACKENDS: Any = torch.backends  # torch has no annotations for its switches


@contextmanager
def full_precision() -> Iterator[None]:
    """Differentiable attention, and convolutions and matrix products in true float32.

    On recent GPUs torch rounds the inputs of convolutions to ten bits unless told otherwise, and those of matrix
    products if told so: products with J and with Jᵀ then no longer belong together, and a positive matrix shows
    negative eigenvalues.

    Examples:
        >>> torch.set_float32_matmul_precision("high")
        >>> with full_precision():
        ...     torch.get_float32_matmul_precision()
        'highest'
        >>> torch.get_float32_matmul_precision()
        'high'
        >>> torch.set_float32_matmul_precision("highest")
    """
    cudnn = _BACKENDS.cudnn
    with math_attention():
        if _newer_switches():
            with _switched("ieee", *_products(), cudnn.conv, cudnn.rnn):
                yield
        else:
            flags = {"enabled": cudnn.enabled, "benchmark": cudnn.benchmark, "deterministic": cudnn.deterministic}
            with _set("highest"), cudnn.flags(**flags, allow_tf32=False):
                yield


@contextmanager
def rounded_products() -> Iterator[None]:
    """Matrix products in TF32, on GPUs that have it."""
    with _switched("tf32", *_products()) if _newer_switches() else _set("high"):
        yield


def rounds(kind: str) -> bool:
    """Whether torch may round what it multiplies or convolves in float32 on that kind of device."""
    if _newer_switches():
        return any(switch.fp32_precision != "ieee" for switch in (*_products(), _BACKENDS.cudnn.conv))
    return torch.get_float32_matmul_precision() != "highest" or (kind == "cuda" and _BACKENDS.cudnn.allow_tf32)


def _newer_switches() -> bool:
    """Whether the program has used torch's newer switches: the older ones then raise errors when they are read."""
    if not hasattr(_BACKENDS, "fp32_precision"):  # they came with torch 2.9
        return False
    cudnn = _BACKENDS.cudnn
    try:
        torch.get_float32_matmul_precision(), cudnn.allow_tf32
    except RuntimeError:
        return True
    return bool(_BACKENDS.fp32_precision != "none" or cudnn.fp32_precision != "none")


def _products() -> tuple[Any, Any]:
    return _BACKENDS.cuda.matmul, _BACKENDS.mkldnn.matmul


@contextmanager
def _switched(precision: str, *switches: Any) -> Iterator[None]:
    before = [switch.fp32_precision for switch in switches]
    try:
        for switch in switches:
            switch.fp32_precision = precision
        yield
    finally:
        for switch, value in zip(switches, before, strict=True):
            switch.fp32_precision = value


@contextmanager
def _set(precision: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
