"""How a job is computed: alone with `train` and `branch`, or many at once as a population."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from ...landscape import Landscape, Parameters
from ...measures.trace import trace as hessian_trace
from ...training import Every, Flat, Measure, Member, Population, Run, branch, train
from .cases import builder, data_of, device, network_of, seeded_network, stacked
from .measuring import columns, full, full_options, paper_llcs, quick, quick_options
from .plan import Training, trunk_every

Row = dict[str, Any]
TRUNK = "trunk"
_STRETCH = 10  # fewest steps between two looks at a population's losses, to find where two are equal
_LOOKS = 4  # most looks an epoch
_WINDOW, _FLAT = 3, 0.05  # the trunk ends when loss and λ̂ stay within 5 % over three rows,
_DROP = 0.6  # after the loss has fallen to this share of its first value


def run_unit(jobs: Sequence[Training], folder: Path) -> list[list[Row]]:
    """The rows of every job of a unit; `folder` keeps partial work of a single one."""
    if jobs[0].part in ("sizes", "smoothing"):
        return run_population(jobs)
    return [run_branches(job, folder) if job.part == "branches" else run_alone(job, folder) for job in jobs]


# ---------------------------------------------------------------------- alone


def run_alone(job: Training, folder: Path) -> list[Row]:
    """One network followed through its training, a row for every measured epoch."""
    data = data_of(job)
    measures = [Measure(quick, Every(epochs=job.every), options=quick_options(job))]
    if job.full_every:
        measures.append(Measure(full, Every(epochs=job.full_every), options=full_options(job)))
    run = train(
        seeded_network(job), data.train, builder(job, job.optimizer, job.lr), epochs=job.epochs,
        batch_size=job.batch_size, seed=job.seed, validation=data.test, record=Every(epochs=job.every, start=True),
        measures=measures, folder=folder, progress=False,
    )  # fmt: skip
    return rows_of(run, job.optimizer)


def run_branches(job: Training, folder: Path) -> list[Row]:
    """A trunk trained with SGD until its loss and λ̂ are flat, and all branches from its end (figures 4–6)."""
    data = data_of(job)
    common: dict[str, Any] = {
        "batch_size": job.batch_size, "seed": job.seed, "validation": data.test, "progress": False,
    }  # fmt: skip
    seldom, each = Every(epochs=trunk_every(job)), Every(epochs=1)
    network = seeded_network(job)
    trunk = train(
        network, data.train, builder(job, "sgd", job.lr), epochs=job.trunk_epochs, folder=folder / TRUNK,
        stop=[settled], record=replace(seldom, start=True),
        measures=[Measure(quick, seldom, options=quick_options(job))], **common,
    )  # fmt: skip
    found = with_full(rows_of(trunk, TRUNK), trunk, job)
    if trunk.outcome == "diverged" or trunk.checkpoint is None:
        return found
    builds = {rate: builder(job, kind, float(lr)) for rate in job.rates for kind, _, lr in [rate.partition("@")]}
    runs = branch(
        trunk.checkpoint, network, data.train, builds, folder=folder, epochs=job.epochs,
        measures=[Measure(quick, each, options=quick_options(job))], **common,
    )  # fmt: skip
    for name, run in runs.items():
        own = [row for row in rows_of(run, name) if row["step"] > run.origin]
        found += with_full(own, run, job)
    return found


def settled(rows: list[Row]) -> str | None:
    """Whether a trunk is past the sharp drop of its loss, and loss and λ̂ are flat."""
    if not rows or rows[-1]["train_loss"] > _DROP * rows[0]["train_loss"]:
        return None
    return Flat(("train_loss", "llc_paper"), window=_WINDOW, tolerance=_FLAT)(rows)


def rows_of(run: Run, name: str) -> list[Row]:
    """The rows of a run with its name and how it ended; a run that ended before its first row says so in one."""
    rows = run.rows or [{"step": run.step, "epoch": run.epoch}]
    rows = [{"rate" if column == "lr" else column: value for column, value in row.items()} for row in rows]
    return [{"run": name, "outcome": run.outcome, "moment": "training", "origin": run.origin, **row} for row in rows]


def with_full(rows: list[Row], run: Run, job: Training) -> list[Row]:
    """The rows with the last one measured in full, where the job asks for that and there is something to measure."""
    if job.full_every and rows and run.outcome != "diverged":
        land = Landscape(run.model, "cross_entropy", data_of(job).train)
        rows[-1] |= Measure(full, options=full_options(job)).columns(land)
    return rows


# ---------------------------------------------------------------------- as a population


@dataclass(frozen=True)
class Moment:
    """A population at one moment: its weights on the CPU, and the training loss of each member."""

    step: int
    parameters: Parameters
    loss: Tensor


@dataclass(frozen=True)
class Trained:
    """Members that were trained together, and the moments kept of them."""

    jobs: list[Training]
    moments: list[Moment]
    lost: frozenset[int]
    per_epoch: int


def run_population(jobs: Sequence[Training]) -> list[list[Row]]:
    """Jobs that differ in seed and optimizer alone: measured at the end and, where there are two, at equal loss.

    For every seed the training losses of the two optimizers are compared: the one that ended lower is measured once
    more at the moment when its loss was nearest to where the other ended.
    """
    groups = [
        trained([job for job in jobs if job.optimizer == kind]) for kind in dict.fromkeys(j.optimizer for j in jobs)
    ]
    rows: dict[Training, list[Row]] = {job: [] for job in jobs}
    for group in groups:
        chosen = {m: group.moments[-1] for m in range(len(group.jobs)) if m not in group.lost}
        _measure(group, chosen, "end", rows)
    if len(groups) == 2:
        for one, other in (groups, groups[::-1]):
            _measure(one, matching(one, other), "matched", rows)
    for group in groups:
        for m in group.lost:
            rows[group.jobs[m]] = [{"run": group.jobs[m].optimizer, "outcome": "diverged", "moment": "end"}]
    return [rows[job] for job in jobs]


def trained(jobs: list[Training]) -> Trained:
    """A population trained to its end, with its weights at up to four moments an epoch."""
    first, data = jobs[0], data_of(jobs[0])
    members = [Member(seed=job.seed, lr=job.lr, batch_size=job.batch_size) for job in jobs]
    group = Population(lambda: network_of(first), members, data.train, optimizer=stacked(first), device=device())
    per_epoch = math.ceil(len(data.train[0]) / first.batch_size)
    looks = max(1, min(_LOOKS, per_epoch // _STRETCH))
    stops = [round(look * per_epoch / looks) for look in range(1, first.epochs * looks + 1)]
    if first.part == "smoothing":
        stops = stops[-1:]  # nothing to match there
    moments = []
    for stop in dict.fromkeys(stops):
        group.train(stop, progress=False)
        kept = {name: stacked_.to("cpu", copy=True) for name, stacked_ in group.parameters.items()}
        moments.append(Moment(stop, kept, group.evaluate().loss))
    return Trained(jobs, moments, frozenset(group.diverged), per_epoch)


def matching(one: Trained, other: Trained) -> dict[int, Moment]:
    """The members of `one` that ended below their twins in `other`, each at the moment nearest to the twin's end."""
    found = {}
    for m, twin in enumerate(other.moments[-1].loss.tolist()):
        ended = float(one.moments[-1].loss[m])
        if ended < twin:  # never for diverged ones, whose loss is NaN
            found[m] = min(one.moments, key=lambda moment: abs(float(moment.loss[m]) - twin))
    return found


def _measure(group: Trained, chosen: Mapping[int, Moment], moment: str, rows: dict[Training, list[Row]]) -> None:
    """Measure members at chosen moments, the paper's way all at once, and append the rows."""
    if not chosen:
        return
    first, data = group.jobs[0], data_of(group.jobs[0])
    base = Landscape(seeded_network(first), "cross_entropy", data.train)
    lands = {
        m: base.at({name: stacked_[m].to(base.device) for name, stacked_ in at.parameters.items()})
        for m, at in chosen.items()
    }
    papers = paper_llcs(list(lands.values()), **quick_options(first))
    test = Landscape(seeded_network(first), "cross_entropy", data.test)
    for (m, land), paper in zip(lands.items(), papers, strict=True):
        job, at = group.jobs[m], chosen[m]
        row: Row = {
            "run": job.optimizer, "outcome": "finished", "moment": moment, "step": at.step,
            "epoch": at.step / group.per_epoch, "train_loss": float(at.loss[m]),
            "validation_loss": float(test.per_sample(land.parameters).mean()),
            **columns(paper), **columns({"hessian_trace": hessian_trace(land, rtol=0.02, progress=False)}),
        }  # fmt: skip
        if job.full_every:
            row |= Measure(full, options=full_options(job)).columns(land)
        rows[job].append(row)
