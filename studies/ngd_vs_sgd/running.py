"""How a unit of jobs is computed: many as populations, single ones with `train`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from basinscope.training import Every, Measure, Run, train

from .cases import builder, data_of, seeded_network
from .measuring import full, full_options, quick, quick_options
from .plan import Training, together
from .populations import Row, run_branches, run_population


def run_unit(jobs: Sequence[Training], folder: Path) -> list[list[Row]]:
    """The rows of every job of a unit; `folder` takes weights that are kept, and partial work of a single job."""
    if together(jobs[0]) is None:
        return [run_alone(job, folder) for job in jobs]
    return run_branches(jobs) if jobs[0].part == "branches" else run_population(jobs, folder)


def run_alone(job: Training, folder: Path) -> list[Row]:
    """One network followed through its training, a row for every epoch."""
    data, each = data_of(job), Every(epochs=1)
    measures = [Measure(quick, each, options=quick_options(job))]
    if job.full_every:
        measures.append(Measure(full, Every(epochs=job.full_every), options=full_options(job)))
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
