"""All heads of a transformer at one resolution: side by side, and one after another, at equal error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

import basinscope as bs
from basinscope.sampling.lean.together import Together

from .text import as_bytes
from .truth import fitted

_TIMED = 5  # gradients


def compared(
    width: int, layers: int, heads: int, sequences: int, length: int, budget: float, some: int, device: torch.device,
    text: Path | None, train: float,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Seconds of all heads, and what they would be at the standard errors of the first way.

    Ways that take heads one after another measure `some` of them, spread over the layers, with their part of the
    budget, and count for all. With none of them, steps alone are timed.
    """
    torch.manual_seed(0)
    net = bs.zoo.models.transformer(256, length, layers=layers, width=width, heads=heads).to(device)
    ids = as_bytes(sequences * length, text).view(sequences, length)
    fitted(net, ids.to(device), train)
    land = bs.Landscape(net, "cross_entropy", (ids[:, :-1], ids[:, 1:]))
    yield {"way": "a step of all heads", "width": width, **_steps(land, heads, 16)}
    if not some:
        return
    began = _spent()
    together = bs.llc_by_part(land, sampler="lean", budget=budget, progress=False)
    seconds = _spent() - began
    errors = {name: estimate.basin.stderr for name, estimate in together.items()}
    gamma = next(iter(together.values())).diagnostics["gamma"]
    yield {"way": "side by side", "heads": len(together), "seconds": seconds, "gamma": gamma, "ratio": 1.0}
    chosen = list(together)[:: max(1, len(together) // some)][:some]
    one = {"gamma": gamma, "budget": budget / len(together), "progress": False}
    ways: dict[str, Callable[[Any], Any]] = {
        "lean, one by one": lambda part: bs.llc(part, sampler="lean", batch_size=64, **one),
        "the engine, one by one": lambda part: bs.llc(part, **one),
    }
    for name, measured in ways.items():
        began = _spent()
        found = [measured(land.restrict(part)) for part in chosen]
        each = (_spent() - began) / len(chosen)
        squares = fmean((estimate.basin.stderr / errors[p]) ** 2 for p, estimate in zip(chosen, found, strict=True))
        yield {
            "way": name, "heads": len(chosen), "seconds": each * len(together), "gamma": gamma,
            "samplers": sorted({estimate.diagnostics["sampler"] for estimate in found}),
            "squared_error": squares, "ratio": each * len(together) * squares / seconds,
        }  # fmt: skip


def _steps(land: bs.Landscape, heads: int, batch: int) -> dict[str, float]:
    """Milliseconds of a gradient of all heads, side by side by layers, and one by one."""
    base, indices, spent = land.per_sample(), torch.arange(batch), [0.0, 0.0]
    for layer in range(len(land.parts("head")) // heads):
        mine = [part for part in land.parts("head") if part.layer == layer]
        for way, (parts, factor) in enumerate(((mine, 1), (mine[:1], heads))):
            walk = Together(land, parts, 1.0, batch, base, 0)
            walk.gradients(walk.star, indices)
            began = _spent()
            for _ in range(_TIMED):
                walk.gradients(walk.star, indices)
            spent[way] += 1e3 * factor * (_spent() - began) / _TIMED
    return {"together_ms": spent[0], "one_by_one_ms": spent[1], "ratio": spent[0] / spent[1]}


def _spent() -> float:
    return time.monotonic() if torch.cuda.is_available() else time.process_time()
