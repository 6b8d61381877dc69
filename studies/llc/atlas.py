"""Plain SGLD over its settings, beside what an unbiased sampler finds at the same (nβ, γ) and what theory predicts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any

import numpy as np
import torch
from torch import Tensor

import basinscope as bs
from basinscope.landscape import Landscape
from basinscope.measures.llc import estimate_of
from basinscope.measures.soft_rank import soft_rank
from basinscope.sampling.calibration import Resolution, resolution
from basinscope.sampling.chains import ChainLosses
from basinscope.sampling.clock import Nominal
from basinscope.sampling.engine import Engine
from basinscope.sampling.kernels import SGLD
from basinscope.sampling.local import Sampler, Settings
from basinscope.sampling.plain import stable_step
from basinscope.sampling.target import Evaluate, Evaluation

from .cases import teacher, trained_classifier
from .jobs import Map

Row = dict[str, Any]
AXES = ("gamma", "nbeta", "step_size", "length", "batch_size")
LENGTH = 2000  # what `bs.llc(sampler="sgld")` takes when nothing is said
KEPT = 0.5  # of a chain, its second half
_BLOCK = 250  # draws handed over at a time
_CEILING = 1e3  # chains whose nβ·excess passes so many times d + 100 have diverged


@dataclass(frozen=True)
class Cell:
    """One setting of plain SGLD."""

    gamma: float
    nbeta: float
    step_size: float
    length: int
    batch_size: int


def run(job: Map) -> list[Row]:
    """Rows of `kind` cell, and for the calibrated batch size also `reference`."""
    land = teacher(trained_classifier(job.data, job.samples, job.widths, job.epochs, job.seed), job.seed)
    sampler = Sampler(land, Settings(sampler="hmc", budget=Nominal(job.budget), rtol=0.02, seed=job.seed))
    centre = calibrated(land, sampler, job)
    wanted = list(cells(centre, job))
    facts = {"n": land.n, "parameters": land.dimension, "largest_eigenvalue": float(sampler.geometry.values[0])}
    rows: list[Row] = []
    if job.batch_size == centre.batch_size:
        rows += [{"kind": "reference", **facts, **row} for row in references(sampler, centre, job)]
    measured = measure(land, wanted, job)
    lifts = predictions(land, wanted, job.seed)
    for cell, excess, lift in zip(wanted, measured, lifts, strict=True):
        rows.append({"kind": "cell", **facts, **columns_of(cell), **excess, **lift, "is_calibrated": cell == centre})
    return rows


def columns_of(cell: Cell) -> Row:
    """A cell as columns; its batch size as `cell_batch`, because jobs have one of their own."""
    return {
        "gamma": cell.gamma, "nbeta": cell.nbeta, "step_size": cell.step_size, "length": cell.length,
        "cell_batch": cell.batch_size,
    }  # fmt: skip


def calibrated(land: Landscape, sampler: Sampler, job: Map) -> Cell:
    """What `bs.llc(land, sampler="sgld")` chooses, as far as the map reaches."""
    at = resolution(land)
    step = stable_step("sgld", sampler.geometry, at)
    return Cell(at.gamma, at.nbeta, step, min(LENGTH, max(job.lengths)), job.calibrated_batch)


def cells(centre: Cell, job: Map) -> Iterator[Cell]:
    """All cells of all pairs of axes with the job's batch size, each once."""
    here = replace(centre, batch_size=job.batch_size)
    scaled: Mapping[str, Sequence[Any]] = {
        name: [factor * getattr(centre, name) for factor in job.factors] for name in ("gamma", "nbeta", "step_size")
    }
    values: dict[str, Sequence[Any]] = {**scaled, "length": job.lengths}
    listed = {here: None}
    if job.batch_size == centre.batch_size:
        for first, second in combinations(values, 2):
            listed |= {replace(here, **{first: a, second: b}): None for a, b in product(values[first], values[second])}
    for name, axis in values.items():
        listed |= {replace(here, **{name: value}): None for value in axis}
    yield from listed


# ---------------------------------------------------------------------- measured


def measure(land: Landscape, wanted: Sequence[Cell], job: Map) -> list[Row]:
    """λ̂ of every cell, the second half of its chains; all of them at once, lengths as parts of the longest."""
    settings = list(dict.fromkeys(replace(cell, length=0) for cell in wanted))
    losses = ChainLosses(land)
    spread = [cell for cell in settings for _ in range(job.chains)]

    def column(name: str) -> Tensor:
        return torch.tensor([getattr(cell, name) for cell in spread]).to(losses.origin)

    generator = torch.Generator(losses.origin.device).manual_seed(job.seed)
    evaluate = evaluation(losses, column("nbeta"), column("gamma"), min(job.batch_size, land.n), generator)
    start = torch.zeros(len(spread), losses.dimension).to(losses.origin)
    ceiling = _CEILING * (losses.dimension + 100) / min(cell.nbeta for cell in settings)
    engine = Engine(SGLD(column("step_size")), evaluate, start, generator, ceiling)
    longest = max(job.lengths)
    stops = range(0, longest, _BLOCK)
    blocks = [engine.run(min(_BLOCK, longest - start))[:, :, 0] for start in stops]
    excess = np.concatenate(blocks).reshape(longest, len(settings), job.chains)
    place = {cell: number for number, cell in enumerate(settings)}
    rows = []
    for cell in wanted:
        settled = excess[int(KEPT * cell.length) : cell.length, place[replace(cell, length=0)]]
        means = cell.nbeta * settled.mean(0)
        sound = bool(np.isfinite(means).all())
        rows.append(
            {
                "llc": float(means.mean()) if sound else math.nan,
                "llc_stderr": float(means.std(ddof=1) / math.sqrt(len(means))) if sound else math.nan,
                "diverged": not sound,
            }
        )
    return rows


def evaluation(
    losses: ChainLosses, nbeta: Tensor, gamma: Tensor, batch_size: int, generator: torch.Generator
) -> Evaluate:
    """Minibatch evaluations of chains that each have their own (nβ, γ), in the network's own coordinates."""

    def evaluate(position: Tensor) -> Evaluation:
        indices = torch.randint(losses.land.n, (len(position), batch_size), generator=generator, device=position.device)
        excess, slope = losses.minibatch(position, indices)
        gradient = slope * nbeta[:, None] + position * gamma[:, None]
        return Evaluation(excess, gradient, torch.linalg.vector_norm(position, dim=1).double().square())

    return evaluate


def references(sampler: Sampler, centre: Cell, job: Map) -> list[Row]:
    """λ̂ by Metropolis-adjusted chains at every (nβ, γ) of the map, from the coldest to the hottest."""
    rows = []
    nbetas = [factor * centre.nbeta for factor in sorted(job.factors, reverse=True)]
    ladder = [Resolution(*at) for at in product(nbetas, [factor * centre.gamma for factor in job.factors])]
    for at, outcome in zip(ladder, sampler.ladder(ladder, lambda fraction, text: None), strict=True):
        estimate = estimate_of(sampler, outcome)
        rows.append(
            {
                "gamma": at.gamma, "nbeta": at.nbeta, "llc": estimate.value, "llc_stderr": estimate.stderr,
                "verdict": estimate.verdict,
            }
        )  # fmt: skip
    return rows


# ---------------------------------------------------------------------- predicted


def predictions(land: Landscape, wanted: Sequence[Cell], seed: int) -> list[Row]:
    """What theory says of every cell.

    `lift` is the leading bias of step size and minibatches, (ε t/8) Tr H + (ε t²/8m)(1 − m/n) Tr C with t = nβ.
    `share` is the part of λ that a chain started at w* has reached: modes slower than the run act as if γ were larger
    by 1/(εk), so that it is rank(γ + 1/(εk))/rank(γ) of soft ranks, k the middle of the draws that are kept.
    """
    trace = bs.trace(land, seed=seed, rtol=0.02, progress=False).value
    noise = bs.trace(land, matrix="covariance", seed=seed, rtol=0.02, progress=False).value
    decays = {cell: (cell.gamma / cell.nbeta, (cell.gamma + 1 / _time(cell)) / cell.nbeta) for cell in wanted}
    unique = sorted({value for pair in decays.values() for value in pair})
    estimates = soft_rank(land, weight_decay=unique, seed=seed, rtol=0.05, progress=False)
    rank = {decay: estimate.value for decay, estimate in zip(unique, estimates, strict=True)}
    rows = []
    for cell in wanted:
        batch = min(cell.batch_size, land.n)
        lift = cell.step_size * cell.nbeta / 8 * (trace + cell.nbeta / batch * (1 - batch / land.n) * noise)
        before, after = decays[cell]
        rows.append({"lift": lift, "share": rank[after] / rank[before]})
    return rows


def _time(cell: Cell) -> float:
    return cell.step_size * cell.length * (1 + KEPT) / 2
