"""What is measured of one network: λ̂ and curvature of each layer, and its loss as bits or ranks are taken away."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import basinscope as bs
from basinscope.sampling.calibration import resolution

from .squeezing import critical, layers, low_rank, predictions, quantized, rise


def measured(
    land: bs.Landscape, bits: Sequence[float], thresholds: Sequence[float], sampler: str, budget: float, seed: int
) -> list[dict[str, Any]]:
    """A row for each layer (`kind` is `layer`), and one for each number of bits and each rank of it."""
    at = resolution(land)
    loss = float(land.per_sample().mean()) / predictions(land)
    rows: list[dict[str, Any]] = []
    for name in layers(land):
        part = land.restrict(name)
        weight = land.parameters[name]
        by_bits = [rise(land, name, partial(quantized, bits=each)) for each in bits]
        most = min(weight.flatten(1).shape)
        ranks = list(range(most + 1))
        by_rank = [rise(land, name, partial(low_rank, rank=rank)) for rank in ranks]
        estimate = bs.llc(
            part, nbeta=at.nbeta, gamma=at.gamma, sampler=sampler, budget=bs.Nominal(budget), seed=seed, progress=False
        )  # fmt: skip
        shared = {"layer": name, "parameters": part.dimension, "loss": loss}
        row = {
            **shared, "kind": "layer", "full_rank": most, "largest": float(weight.abs().max()),
            **estimate.columns("llc"),
            "trace": bs.trace(part, rtol=0.05, seed=seed, progress=False).value,
        }  # fmt: skip
        for place, threshold in enumerate(thresholds):
            row[f"bits_{place}"] = critical(bits, by_bits, threshold)
            row[f"rank_{place}"] = critical(ranks, by_rank, threshold)
        rows.append(row)
        for kind, sizes, rises in (("bits", bits, by_bits), ("rank", ranks, by_rank)):
            rows += [
                {**shared, "kind": kind, "size": float(size), "rise": value}
                for size, value in zip(sizes, rises, strict=True)
            ]
    return rows
