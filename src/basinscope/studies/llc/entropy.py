"""Entropy-SGD against SGD: two populations, λ̂ of every member by the paper's settings, of some calibrated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ...estimates import Estimate
from ...landscape import Landscape, watanabe_nbeta
from ...measures.llc import llc
from ...sampling import plain
from ...sampling.calibration import Resolution
from ...sampling.diagnostics import summarize
from ...training import Member, Population
from ...training.population.updates import SGD
from ..ngd_vs_sgd.measuring import ManyLosses
from .cases import classifier, device, images, seeded
from .descent import StackedEntropySGD
from .plan import Descent

Row = dict[str, Any]
PAPER_CHAINS, PAPER_GAMMA, PAPER_BATCH = 4, 100.0, 512
_AT_ONCE = {"cpu": 4, "cuda": 16}  # networks whose chains run together


def run(jobs: Sequence[Descent]) -> list[list[Row]]:
    """The row of every job; all have the same optimizer."""
    first = jobs[0]
    data = images(first.data, first.samples)
    population = trained(jobs)
    on_train, on_test = population.evaluate(), population.evaluate(data.test)
    base = Landscape(seeded(lambda: classifier(data, first.widths), 0), "cross_entropy", data.train)
    lost = population.diverged
    rows: dict[int, Row] = {m: {"outcome": "diverged", "step": int(step)} for m, step in lost.items()}
    sound = [m for m in range(len(jobs)) if m not in lost]
    lands = {
        m: base.at({name: stacked[m].to(base.device) for name, stacked in population.parameters.items()}) for m in sound
    }
    del population
    for start in range(0, len(sound), _AT_ONCE.get(base.device.type, 4)):
        part = sound[start : start + _AT_ONCE.get(base.device.type, 4)]
        papers = paper_llcs([lands[m] for m in part], jobs[part[0]])
        for m, paper in zip(part, papers, strict=True):
            rows[m] = {
                "outcome": "finished", "parameters": base.dimension, "n": base.n,
                "train_loss": float(on_train.loss[m]), "test_loss": float(on_test.loss[m]),
                "test_accuracy": float(on_test.accuracy[m]) if on_test.accuracy is not None else math.nan,
                **columns("llc_paper", paper),
            }  # fmt: skip
    for m in sound:
        if jobs[m].full:
            own = llc(lands[m], gamma=PAPER_GAMMA, budget=jobs[m].budget, seed=jobs[m].seed, progress=False)
            rows[m] |= columns("llc", own) | {"half_soft_rank": own.diagnostics.get("half_soft_rank")}
    return [[rows[m]] for m in range(len(jobs))]


def trained(jobs: Sequence[Descent]) -> Population:
    """The networks of the jobs, each from its own seed, with the same number of gradients for either optimizer."""
    first = jobs[0]
    data = images(first.data, first.samples)
    entropy = first.optimizer == "entropy-sgd"
    members = [Member(seed=job.seed, lr=1.0 if entropy else job.lr, batch_size=job.train_batch) for job in jobs]
    update = StackedEntropySGD(inner_lr=first.lr) if entropy else SGD()
    population = Population(
        lambda: classifier(data, first.widths), members, data.train, optimizer=update, device=device()
    )
    per_epoch = math.ceil(len(data.train[0]) / first.train_batch)
    inner = update.inner_steps if isinstance(update, StackedEntropySGD) else 1
    with torch.random.fork_rng(devices=[device()] if device().type == "cuda" else []):
        torch.manual_seed(first.seed)
        population.train(math.ceil(first.epochs * per_epoch / inner) * inner, progress=False)
    return population


def paper_llcs(lands: Sequence[Landscape], job: Descent) -> list[Estimate]:
    """λ̂ of several networks by the paper's recipe: SGLD, nβ = n/log n, γ = 100, 4 chains from w*, all draws kept."""
    losses = ManyLosses(lands, PAPER_CHAINS)
    nbeta = watanabe_nbeta(lands[0].n)
    run_ = plain.sample(
        "sgld", losses, Resolution(nbeta, PAPER_GAMMA), step_size=job.step_size, chains=PAPER_CHAINS * len(lands),
        draws=job.draws, batch_size=min(PAPER_BATCH, lands[0].n), burn_in=0.0, seed=job.seed,
        report=lambda fraction, text: None,
    )  # fmt: skip
    found = []
    for number in range(len(lands)):
        rows = slice(PAPER_CHAINS * number, PAPER_CHAINS * (number + 1))
        if not run_.alive[rows].all():
            found.append(Estimate("llc_paper", math.nan, math.nan, "failed", ("the paper's SGLD diverged here",)))
            continue
        values, squares = (run_.trace.values(name)[rows] for name in ("excess", "excess_squared"))
        summary = summarize(values, squares, run_.trace.width)
        found.append(Estimate("llc_paper", nbeta * summary.mean, nbeta * summary.stderr, "ok"))
    return found


def columns(name: str, estimate: Estimate) -> Row:
    """An estimate as columns."""
    return {name: estimate.value, f"{name}_stderr": estimate.stderr, f"{name}_verdict": estimate.verdict}
