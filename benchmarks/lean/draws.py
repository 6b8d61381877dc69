"""Time and memory of a chain's draws beside the barest loop that makes any."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

import basinscope as bs
from basinscope.sampling.lean.borrowed import Borrowed
from basinscope.sampling.lean.noise import CounterNoise
from basinscope.sampling.lean.passes import Passes
from basinscope.sampling.lean.walk import LeanWalk
from basinscope.sampling.lean.weights import Step, Weights

from .shapes import language_model

_SIZE = 1e-10  # of steps, which are timed and lead nowhere


def timed(shape: str, batch: int, length: int, steps: int, device: torch.device, *, bare: bool = True,
          **changes: Any) -> dict[str, Any]:  # fmt: skip
    """Milliseconds of a draw and gigabytes, of a bare loop and of the lean walk, on the same model and tokens."""
    torch.set_float32_matmul_precision("high")
    model = language_model(shape, device, **changes)
    count = sum(each.numel() for each in model.parameters())
    tokens = torch.randint(model.config.vocab_size, (4 * batch, length), generator=torch.Generator().manual_seed(0))
    low = torch.bfloat16 if device.type == "cuda" else None
    call = torch.compile(model) if device.type == "cuda" else model
    row: dict[str, Any] = {"shape": shape, "parameters": count, "batch": batch, "length": length, "steps": steps}
    if bare:
        row |= _named("bare", *_measured(_bare(model, call, tokens, batch, low), steps, device), count)
    chain, held = _lean(bs.LanguageModel(call, tokens, autocast=low), batch, steps)
    row |= _named("lean", *_measured(chain, 1, device, steps), count)
    row["lean_bytes_per_parameter"] = held / count
    if bare:
        row["ratio"] = row["lean_ms"] / row["bare_ms"]
    return row


def _named(name: str, milliseconds: float, gigabytes: float, count: int) -> dict[str, float]:
    return {f"{name}_ms": milliseconds, f"{name}_peak_gb": gigabytes, f"{name}_peak_bytes": 1e9 * gigabytes / count}


def _bare(model: Any, call: Any, tokens: torch.Tensor, batch: int, low: torch.dtype | None) -> Callable[[int], None]:
    """SGLD in as few lines as it takes: gradients of a batch, and a step with noise."""
    device = next(model.parameters()).device

    def run(steps: int) -> None:
        for step in range(steps):
            ids = tokens[step % 4 * batch : (step % 4 + 1) * batch].to(device)
            with torch.autocast(device.type, low, enabled=low is not None):
                loss = call(input_ids=ids, labels=ids, use_cache=False).loss
            loss.backward()
            with torch.no_grad():
                for each in model.parameters():
                    each.add_(each.grad, alpha=-_SIZE).add_(torch.randn_like(each), alpha=_SIZE)
                    each.grad = None

    return run


def _lean(land: bs.LanguageModel, batch: int, steps: int) -> tuple[Callable[[int], None], int]:
    """A chain of the lean walk with losses paired on the batch, and the bytes it holds of the weights' size."""
    subject = Borrowed(land)
    weights = Weights(subject.leaves)
    passes = Passes(subject, weights, batch)

    def run(count: int) -> None:
        with subject.borrowed(), passes.listening():
            if not passes.unused:
                passes.fit(next(subject.batches(batch, 0)).samples)
            walk = LeanWalk(subject, weights, passes, float(land.n), batch)
            step = Step(_SIZE, 1.0, (1.0,) * len(weights.names))
            walk.chain(step, count, CounterNoise(0, 0), subject.batches(batch, 1))
            weights.restore()

    return lambda calls: run(calls * steps), weights.bytes() + 2 * sum(4 * size for size in weights.sizes)


def _measured(
    run: Callable[[int], None], calls: int, device: torch.device, steps: int | None = None
) -> tuple[float, float]:
    """Milliseconds of a step and the most gigabytes, after a first round that compiles and fills caches."""
    run(1 if steps else 3)
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    run(calls)
    if device.type == "cuda":
        torch.cuda.synchronize()
    spent = 1e3 * (time.perf_counter() - began) / (steps or calls)
    return spent, torch.cuda.max_memory_allocated() / 1e9 if device.type == "cuda" else float("nan")
