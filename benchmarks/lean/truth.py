"""The lean walk against exact answers: HMC on a transformer, λ of deep linear networks, rounded weights."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import basinscope as bs
from basinscope.exact import deep_linear
from basinscope.sampling.lean.weights import Step

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from studies.llc.cases import linear_landscape, linear_network

from .text import as_bytes

GAMMA, STIFFNESS = 0.5, 300.0  # as in the study of deep linear networks


def against_hmc(
    width: int, layers: int, sequences: int, length: int, seeds: int, budget: float, device: torch.device,
    text: Path | None, train: float,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """λ̂ by HMC on all data, and by the lean walk over seeds, at one (nβ, γ)."""
    torch.manual_seed(0)
    net = bs.zoo.models.transformer(256, length, layers=layers, width=width, heads=4).to(device)
    ids = as_bytes(sequences * length, text).view(sequences, length)
    fitted(net, ids.to(device), train)
    land = bs.LanguageModel(net, ids)
    first = bs.llc(land, budget=budget, seed=100, progress=False)
    nbeta, gamma = first.diagnostics["nbeta"], 2 * first.diagnostics["gamma"]
    whole = bs.Landscape(net, "cross_entropy", (ids[:, :-1], ids[:, 1:]))
    lean = [("lean", seed) for seed in range(seeds)]
    for sampler, seed in [*lean, ("hmc", 0)]:
        began, own = time.perf_counter(), time.process_time()
        given = {"nbeta": nbeta, "gamma": gamma, "seed": seed, "progress": False}
        if sampler == "hmc":
            est = bs.llc(whole, sampler="hmc", budget=4 * budget, **given)
        else:
            est = bs.llc(land, budget=budget, **given)
        yield row(est, began, own) | {"case": f"transformer {land.dimension:,}", "sampler": sampler, "seed": seed}


def fitted(net: torch.nn.Module, ids: torch.Tensor, seconds: float) -> None:
    """Train on all sequences, by seconds of the processor, with steps that fade."""
    began = time.process_time() if ids.device.type == "cpu" else time.monotonic()
    clock = time.process_time if ids.device.type == "cpu" else time.monotonic
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(0)
    while (gone := (clock() - began) / seconds) < 1:
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * (1 - gone) ** 2 + 1e-5
        batch = ids[torch.randint(len(ids), (64,), generator=generator).to(ids.device)]
        scores = net(batch[:, :-1]).flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(scores, batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def against_theorems(width: int, layers: int, seeds: int, budget: float, device: torch.device) -> Iterator[dict]:
    """λ̂ of a deep linear network by the lean walk beside its exact λ."""
    widths = (width,) * (layers + 1)
    rank = width // 4
    exact, _ = deep_linear(list(widths), rank)
    for seed in range(seeds):
        net = linear_network(widths, rank, seed, device)
        variance = STIFFNESS * GAMMA * width / (width / math.log(width))
        land = linear_landscape(net, width, seed, variance)
        began, own = time.perf_counter(), time.process_time()
        est = bs.llc(land, sampler="lean", gamma=GAMMA * width, budget=budget, seed=seed, progress=False)
        yield row(est, began, own) | {
            "case": f"deep linear {land.dimension:,}", "sampler": "lean", "seed": seed, "exact": float(exact),
            "error": est.value / float(exact) - 1,
        }  # fmt: skip


def rounded(device: torch.device, dimension: int = 200_000) -> Iterator[dict[str, Any]]:
    """E[nβ·excess] over λ of a quadratic, by how weights and δ are kept, where rounding matters."""
    from .quadratic import chain_on_quadratic, plain_chain

    for size, stiffness, steps in ((1e-5, 3e3, 3000), (1e-6, 3e4, 3000), (3e-7, 1e5, 3000), (1e-7, 3e5, 3000)):
        step = Step(size, 1e-3, (1.0, 1.0))
        for kept in ("float32", "bfloat16"):
            value = chain_on_quadratic(dimension, stiffness, step, steps, kept, device)
            yield {"case": f"ε {size:g}, nβσ {stiffness:g}", "sampler": f"δ in {kept}", "ratio": value}
        value = plain_chain(dimension, stiffness, size, steps, device)
        yield {"case": f"ε {size:g}, nβσ {stiffness:g}", "sampler": "plain bfloat16", "ratio": value}


def row(est: bs.Estimate, began: float, own: float) -> dict[str, Any]:
    """An estimate as columns, with the time it took."""
    return {
        "llc": est.value, "stderr": est.stderr, "verdict": est.verdict, "warnings": "; ".join(est.warnings),
        "gamma": est.diagnostics.get("gamma"), "nbeta": est.diagnostics.get("nbeta"),
        "virial": est.diagnostics.get("virial"), "rhat": est.diagnostics.get("rhat"),
        "wall": time.perf_counter() - began, "cpu": time.process_time() - own,
    }  # fmt: skip
