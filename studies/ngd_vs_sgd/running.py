"""Single jobs, trained with `train`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from basinscope.training import Every, Measure, Run, train

from .cases import builder, data_of, seeded_network
from .jobs import Training
from .measuring import full, full_options, quick, quick_options

Row = dict[str, Any]


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
