"""Networks trained as published, by either optimizer; λ̂ of each by chains of several lengths, and calibrated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import basinscope as bs
from basinscope.landscape import watanabe_nbeta
from basinscope.sampling.calibration import Resolution
from basinscope.zoo.data import DataSet
from studies.common.classifiers import classifier, seeded
from studies.common.descents import trained, untrained
from studies.common.measuring import device, sgld_walks

Row = dict[str, Any]
LATE = 0.5  # of the longest chain, what is left out at its beginning


@dataclass(frozen=True)
class Training:
    """One network's training, as `studies.common.descents` has it."""

    optimizer: str
    seed: int
    widths: tuple[int, ...]
    train_batch: int
    lr: float
    inner_steps: int


def networks(jobs: Sequence[Training], epochs: int, data: DataSet) -> list[tuple[bs.Landscape, Row]]:
    """The trained networks, and how well each does; they are trained together."""
    population = untrained(jobs, data)
    trained(population, epochs, jobs[0], data)
    on_train, on_test = population.evaluate(), population.evaluate(data.test)
    assert on_train.accuracy is not None
    assert on_test.accuracy is not None
    base = bs.Landscape(seeded(lambda: classifier(data, jobs[0].widths), 0), "cross_entropy", data.train)
    found = []
    for member, job in enumerate(jobs):
        land = base.at({name: stacked[member].to(device()) for name, stacked in population.parameters.items()})
        found.append((land, {
            "seed": job.seed, "parameters": land.dimension, "n": land.n,
            "train_loss": float(on_train.loss[member]), "train_accuracy": float(on_train.accuracy[member]),
            "test_loss": float(on_test.loss[member]), "test_accuracy": float(on_test.accuracy[member]),
        }))  # fmt: skip
    return found


def published(
    lands: Sequence[bs.Landscape], lengths: Sequence[int], *, gamma: float, step_size: float, chains: int, batch: int,
    seed: int,
) -> list[Row]:  # fmt: skip
    """λ̂ by SGLD from w* at nβ = n/log n with all draws kept, for several lengths; and by the late draws of the longest.

    Columns are `sgld_400` and so on, and `sgld_late`, each with its standard error; a chain that diverged has none.
    """
    at = Resolution(watanabe_nbeta(lands[0].n), gamma)
    rows: list[Row] = [{} for _ in lands]
    for length in lengths:
        shares = (0.0, LATE) if length == max(lengths) else (0.0,)
        walks = sgld_walks(
            lands, at, step_size=step_size, chains=chains, draws=length, batch_size=batch, seed=seed, discard=shares
        )
        for row, walk in zip(rows, walks, strict=True):
            for name, each in zip((f"sgld_{length}", "sgld_late"), walk.means, strict=False):
                row |= {name: at.nbeta * each.mean, f"{name}_stderr": at.nbeta * each.stderr}
    return rows


def calibrated(land: bs.Landscape, gamma: float, budget: float, seed: int) -> Row:
    """λ̂ at that γ, with basin and drop: columns `at_100_…`."""
    estimate = bs.llc(land, gamma=gamma, budget=bs.Nominal(budget), rtol=0.01, seed=seed, progress=False)
    return estimate.columns(f"at_{gamma:g}")
