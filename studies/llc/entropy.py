"""Entropy-SGD against SGD, trained as published: λ̂ of every network through training, by the paper's settings and,
for some at the end, calibrated."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from basinscope.estimates import Estimate
from basinscope.landscape import Landscape, watanabe_nbeta
from basinscope.measures.llc import llc
from basinscope.sampling.calibration import Resolution
from basinscope.sampling.clock import Nominal
from basinscope.training import Population
from basinscope.zoo.data import DataSet
from studies.common.classifiers import classifier, images, seeded, standardized
from studies.common.descents import steps_at, trained, untrained
from studies.common.keeping import one_by_one
from studies.common.measuring import columns, sgld_excess

from .jobs import Descent

Row = dict[str, Any]
PAPER_CHAINS, PAPER_GAMMA, PAPER_BATCH = 4, 100.0, 512
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
