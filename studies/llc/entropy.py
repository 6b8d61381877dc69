"""Entropy-SGD against SGD, trained as published: λ̂ of every network through training, by the paper's settings and,
for some at the end, calibrated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from basinscope.curvature.precision import rounded_products
from basinscope.estimates import Estimate
from basinscope.landscape import Landscape, watanabe_nbeta
from basinscope.measures.llc import llc
from basinscope.sampling.calibration import Resolution
from basinscope.sampling.clock import Nominal
from basinscope.training import Member, Population
from basinscope.training.population import SGD, EntropySGD
from basinscope.training.population.updates import Update
from basinscope.zoo.data import DataSet
from studies.common.measuring import columns, device, sgld_excess

from .cases import classifier, images, seeded, standardized
from .jobs import Descent
from .keeping import one_by_one

Row = dict[str, Any]
PAPER_CHAINS, PAPER_GAMMA, PAPER_BATCH = 4, 100.0, 512
# The published code's: momentum of SGD and of both loops of Entropy-SGD, and of the latter its inner learning rate and
# the weight of the past in its mean. γ, scoping and noise are those that `optim.EntropySGD` has by default.
PAPER_MOMENTUM, PAPER_INNER_LR, PAPER_AVERAGING = 0.9, 0.1, 0.25
_AT_ONCE = {"cpu": 4, "cuda": 16}  # networks whose chains run together


def run(jobs: Sequence[Descent], folder: Path) -> list[list[Row]]:
    """A row for every job and look; all have the same optimizer. `folder` keeps what there is after each look."""
    first, last = jobs[0], jobs[0].looks[-1]
    data = standardized(images(first.data, first.samples))
    population = untrained(jobs, data)
    saved = folder / "population.safetensors"
    if saved.is_file():
        population.load(saved)

    def look(name: str) -> list[Row]:
        epoch = int(name)
        if population.step < steps_at(epoch, first, data):
            trained(population, epoch, first, data)
            population.save(saved)
        return measured(population, jobs, data, epoch, full=epoch == last)

    folder.mkdir(parents=True, exist_ok=True)
    rows_of_looks = one_by_one(map(str, first.looks), look, folder / "looks.json")
    saved.unlink(missing_ok=True)
    return [list(rows) for rows in zip(*rows_of_looks, strict=True)]


# ---------------------------------------------------------------------- training


def untrained(jobs: Sequence[Descent], data: DataSet) -> Population:
    """The networks of the jobs, each from its own seed."""
    first = jobs[0]
    members = [Member(seed=job.seed, lr=job.lr, batch_size=job.train_batch) for job in jobs]
    return Population(
        lambda: classifier(data, first.widths), members, data.train, optimizer=update_of(first), device=device()
    )


def update_of(job: Descent) -> Update:
    """The optimizer, as published."""
    if job.optimizer == "sgd":
        return SGD(momentum=PAPER_MOMENTUM, nesterov=True)
    return EntropySGD(
        inner_steps=job.inner_steps, inner_lr=PAPER_INNER_LR, averaging=PAPER_AVERAGING, momentum=PAPER_MOMENTUM
    )


def steps_at(epoch: int, job: Descent, data: DataSet) -> int:
    """Gradients after so many epochs, in whole loops of Entropy-SGD: either optimizer gets as many."""
    per_epoch = math.ceil(len(data.train[0]) / job.train_batch)
    return math.ceil(epoch * per_epoch / job.inner_steps) * job.inner_steps


def trained(population: Population, epoch: int, job: Descent, data: DataSet) -> None:
    """Train until the end of an epoch, on a GPU with products rounded to TF32. The noise after each look has a seed of
    its own, so that a run that is cut off and goes on ends in the same bits."""
    cuda = device().type == "cuda"
    with torch.random.fork_rng(devices=[device()] if cuda else []), rounded_products() if cuda else nullcontext():
        torch.manual_seed(1_000_003 * job.seed + population.step)
        population.train(steps_at(epoch, job, data), progress=False)


# ---------------------------------------------------------------------- measuring


def measured(population: Population, jobs: Sequence[Descent], data: DataSet, epoch: int, full: bool) -> list[Row]:
    """A row for every network as it is; with `full`, λ̂ is calibrated, too, for the jobs that ask for it."""
    on_train, on_test = population.evaluate(), population.evaluate(data.test)
    assert on_train.accuracy is not None
    assert on_test.accuracy is not None
    base = Landscape(seeded(lambda: classifier(data, jobs[0].widths), 0), "cross_entropy", data.train)
    rows: list[Row] = [{"epoch": epoch, "outcome": "finished"} for _ in jobs]
    for m, step in population.diverged.items():
        rows[m] |= {"outcome": "diverged", "step": int(step)}
    sound = [m for m, row in enumerate(rows) if row["outcome"] == "finished"]
    weights = population.parameters
    lands = {m: base.at({name: stacked[m].to(base.device) for name, stacked in weights.items()}) for m in sound}
    together = _AT_ONCE.get(base.device.type, 4)
    for start in range(0, len(sound), together):
        part = sound[start : start + together]
        papers = paper_llcs([lands[m] for m in part], jobs[part[0]])
        for m, paper in zip(part, papers, strict=True):
            rows[m] |= {
                "parameters": base.dimension, "n": base.n,
                "train_loss": float(on_train.loss[m]), "train_accuracy": float(on_train.accuracy[m]),
                "test_loss": float(on_test.loss[m]), "test_accuracy": float(on_test.accuracy[m]),
                **columns({"llc_paper": paper}),
            }  # fmt: skip
    for m in sound:
        if full and jobs[m].full:
            estimate = llc(
                lands[m], gamma=PAPER_GAMMA, budget=Nominal(jobs[m].budget), seed=jobs[m].seed, progress=False
            )
            rows[m] |= columns({"llc": estimate}) | {"half_soft_rank": estimate.diagnostics.get("half_soft_rank")}
    return rows


def paper_llcs(lands: Sequence[Landscape], job: Descent) -> list[Estimate]:
    """λ̂ of several networks by the paper's recipe: SGLD, nβ = n/log n, γ = 100, 4 chains from w*, all draws kept."""
    nbeta = watanabe_nbeta(lands[0].n)
    measured = sgld_excess(
        lands, Resolution(nbeta, PAPER_GAMMA), step_size=job.step_size, chains=PAPER_CHAINS, draws=job.draws,
        batch_size=PAPER_BATCH, seed=job.seed,
    )  # fmt: skip
    return [
        Estimate.failed("llc_paper", "the paper's SGLD diverged here")
        if excess is None
        else Estimate("llc_paper", nbeta * excess.mean, nbeta * excess.stderr)
        for _, excess in measured
    ]
