"""λ̂ and its companions, measured as the paper did and as it should be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import basinscope as bs
from basinscope.curvature.tiles import convolutional
from basinscope.estimates import Estimate
from basinscope.landscape import Landscape, watanabe_nbeta
from basinscope.measures.llc import llc
from basinscope.measures.soft_rank import soft_rank
from basinscope.measures.wbic import from_llc
from basinscope.sampling.calibration import Resolution
from basinscope.sampling.clock import Nominal
from basinscope.training import Every, Measure, Run, train
from studies.common.measuring import sgld_excess

from .cases import builder, data_of, seeded_network
from .jobs import Training

BATCH = 128
PAPER_NBETA = watanabe_nbeta(BATCH)  # the batch's size stands for n: 26.4 where n/log n = 5453 for 60,000 samples
PAPER_STEP = 1e-4
PAPER_CHAINS = 2
CONVOLVED = 10_000  # samples for matrices of convolutional networks: with all, LeNet-5's took over 50 s of an H200


def paper_llcs(
    lands: Sequence[Landscape], *, draws: int, gamma: float, seed: int, step_size: float = PAPER_STEP
) -> list[dict[str, Estimate]]:
    """λ̂ of several networks by the paper's recipe, all chains at once: `llc_paper` and `wbic_paper` of each.

    SGLD with nβ = 128/log 128 = 26.4, batches of 128, step 1e-4, two chains from w*, all draws kept. Nothing corrects
    its bias, +(ε nβ/8) Tr H + (ε (nβ)²/8m) Tr C to first order; and the WBIC is n E[L_n] at that temperature.
    """
    measured = sgld_excess(
        lands, Resolution(PAPER_NBETA, gamma), step_size=step_size, chains=PAPER_CHAINS, draws=draws, batch_size=BATCH,
        seed=seed,
    )  # fmt: skip
    estimates = []
    for land, (base, excess) in zip(lands, measured, strict=True):
        if excess is None:
            reason = "the paper's SGLD diverged here"
            estimates.append({name: Estimate.failed(name, reason) for name in ("llc_paper", "wbic_paper")})
            continue
        estimates.append(
            {
                "llc_paper": Estimate("llc_paper", PAPER_NBETA * excess.mean, PAPER_NBETA * excess.stderr),
                "wbic_paper": Estimate("wbic_paper", land.n * (base + excess.mean), land.n * excess.stderr),
            }
        )
    return estimates


def bias_of_sgld(lands: Sequence[Landscape], *, draws: int, gamma: float, seed: int) -> list[dict[str, Estimate]]:
    """The paper's λ̂ at half its step for the same time, and at its step for ten times as long, of several networks."""
    rows: list[dict[str, Estimate]] = [{} for _ in lands]
    for name, step_size, length in (
        ("llc_paper_half_step", PAPER_STEP / 2, 2 * draws),
        ("llc_paper_long", PAPER_STEP, 10 * draws),
    ):
        values = paper_llcs(lands, draws=length, gamma=gamma, seed=seed, step_size=step_size)
        for row, value in zip(rows, values, strict=True):
            row[name] = value["llc_paper"]
    return rows


def quick(land: Landscape, *, draws: int, gamma: float, seed: int) -> dict[str, Estimate]:
    """What is cheap enough for every epoch: the paper's λ̂ and WBIC, and Tr H."""
    (estimates,) = paper_llcs([land], draws=draws, gamma=gamma, seed=seed)
    return {**estimates, "hessian_trace": bs.trace(land, seed=seed, rtol=0.02, progress=False)}


def full(
    land: Landscape, *, gamma: float, sampler: str, chains: int, budget: float, rtol: float, seed: int
) -> dict[str, Estimate | float]:
    """λ̂ by the calibrated estimator at nβ = n/log n, with the WBIC from it, and at the paper's nβ = 26.4, and ½·soft
    rank at both.

    `half_soft_rank` is ½ Tr F(F + γ/nβ)⁻¹ at nβ = n/log n, `half_soft_rank_paper` the same at the paper's. F is the
    Fisher matrix, which has no negative eigenvalues: H has some before a minimum is reached, and no soft rank then.
    `step_bias` is the leading bias of the paper's sampler, (ε nβ/8) Tr H + (ε (nβ)²/8m) Tr C. Matrices of convolutional
    networks are those of `CONVOLVED` samples.
    """
    fine_llc, coarse_llc = (
        llc(
            land, nbeta=nbeta, gamma=gamma, sampler=sampler, chains=chains or None, budget=Nominal(budget), rtol=rtol,
            seed=seed, progress=False,
        )
        for nbeta in (watanabe_nbeta(land.n), PAPER_NBETA)
    )  # fmt: skip
    decays = [gamma / PAPER_NBETA, gamma / watanabe_nbeta(land.n)]
    part = thinned(land)
    coarse, fine = soft_rank(part, weight_decay=decays, matrix="fisher", rtol=rtol, seed=seed, progress=False)
    trace = bs.trace(part, seed=seed, rtol=0.05, progress=False).value
    noise = bs.trace(part, matrix="covariance", seed=seed, rtol=0.05, progress=False).value
    size = min(BATCH, land.n)
    return {
        "llc": fine_llc,
        "llc_coarse": coarse_llc,
        "wbic": from_llc(land, fine_llc),
        "half_soft_rank_paper": coarse.value / 2,
        "half_soft_rank": fine.value / 2,
        "step_bias": PAPER_STEP * PAPER_NBETA / 8 * (trace + PAPER_NBETA / size * noise),
    }


def thinned(land: Landscape) -> Landscape:
    """The landscape on `CONVOLVED` evenly spaced samples if the network has convolutions, else as it is."""
    stride = land.n // CONVOLVED
    if stride < 2 or not convolutional(land):
        return land
    return land.subset(slice(0, stride * CONVOLVED, stride))


def quick_options(job: Training) -> dict[str, Any]:
    """The settings of `quick` in a job."""
    return {"draws": job.draws, "gamma": job.gamma, "seed": job.seed}


def full_options(job: Training) -> dict[str, Any]:
    """The settings of `full` in a job."""
    return {
        "gamma": job.gamma, "sampler": job.sampler, "chains": job.chains, "budget": job.budget, "rtol": job.rtol,
        "seed": job.seed,
    }  # fmt: skip


Row = dict[str, Any]


def run_alone(job: Training, folder: Path) -> list[Row]:
    """One network followed through its training, a row for every epoch."""
    data, each = data_of(job), Every(epochs=1)
    measures = [Measure(quick, each, options=quick_options(job))]
    if job.full:
        measures.append(Measure(full, Every(epochs=job.epochs), options=full_options(job)))
    run = train(
        seeded_network(job), data.train, builder(job, job.optimizer, job.lr), epochs=job.epochs,
        batch_size=job.batch_size, seed=job.seed, validation=data.test, record=Every(epochs=1, start=True),
        measures=measures, folder=folder, progress=False,
    )  # fmt: skip
    return rows_of(run, job.optimizer)


def rows_of(run: Run, name: str) -> list[Row]:
    """The rows of a run with its name and how it ended; a run that ended before its first row says so in one."""
    rows = run.rows or [{"step": run.step, "epoch": run.epoch}]
    rows = [{"rate" if column == "lr" else column: value for column, value in row.items()} for row in rows]
    return [{"run": name, "outcome": run.outcome, "moment": "training", "origin": run.origin, **row} for row in rows]
