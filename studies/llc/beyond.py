"""Beyond feedforward networks: λ̂ through training, per layer and head, per class of data, and through grokking."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from basinscope.errors import InputError
from basinscope.landscape import Landscape
from basinscope.measures.llc import llc
from basinscope.measures.soft_rank import soft_rank
from basinscope.sampling.calibration import resolution
from basinscope.sampling.clock import Nominal
from basinscope.training import Every, Measure, train
from basinscope.zoo.models.transformer import Transformer
from studies.common.keeping import one_by_one
from studies.common.measuring import columns

from .cases import Subject, subject
from .jobs import Follow

Row = dict[str, Any]
# Samples times weights up to which half the soft rank is taken, too: it takes some thousand products with the matrix
# (960 for the transformer, with 12 of its samples).
_CHEAP = 3e7


def run(job: Follow, folder: Path) -> list[Row]:
    """Rows of one view of one network."""
    prepared = subject(job.case, job.size, job.seed)
    if job.view == "training":
        return through_training(job, prepared, folder)
    views = {"weights": pieces, "data": subsets}
    if job.view not in views:
        raise InputError(f"view must be 'training', 'weights' or 'data', got {job.view!r}")
    return parts(views[job.view](ended(job, prepared, folder)), job, prepared, folder / "pieces.json")


def parts(named: Mapping[str, Landscape], job: Follow, prepared: Subject, file: Path) -> list[Row]:
    """A row for each part of the weights or the data."""

    def row(name: str) -> Row:
        part = named[name]
        estimates = measured(part, job, prepared)
        return {
            "piece": name, "parameters": part.dimension, "n": part.n, "train_loss": float(part.per_sample().mean()),
            **columns(estimates), "llc_warnings": "; ".join(estimates["llc"].warnings),
        }  # fmt: skip

    return one_by_one(named, row, file)


def through_training(job: Follow, prepared: Subject, folder: Path) -> list[Row]:
    """A row for every moment, from the first weights to the last."""
    every = Every(epochs=max(1, job.epochs // job.moments), start=True)

    def look(land: Landscape) -> Mapping[str, Any]:
        return measured(land, job, prepared)

    def right(land: Landscape) -> Mapping[str, float]:
        return {"train_accuracy": accuracy(land)}

    def right_elsewhere(land: Landscape) -> Mapping[str, float]:
        return {"test_accuracy": accuracy(land)}

    run_ = train(
        prepared.network, prepared.data.train, prepared.optimizer, loss=prepared.loss, epochs=job.epochs,
        batch_size=prepared.batch_size, seed=job.seed, validation=prepared.data.test, record=every,
        measures=[
            Measure(look, every, name="look"), Measure(right, every, name="right"),
            Measure(right_elsewhere, every, name="right_elsewhere", on="validation"),
        ],
        folder=folder, progress=False,
    )  # fmt: skip
    keep = ("step", "epoch", "train_loss", "validation_loss", "train_accuracy", "test_accuracy", "llc", "llc_stderr",
            "llc_verdict", "half_soft_rank", "gamma", "nbeta", "llc_warnings")  # fmt: skip
    return [{name: row.get(name) for name in keep} for row in run_.rows]


def ended(job: Follow, prepared: Subject, folder: Path) -> Landscape:
    """The trained network on its training data."""
    run_ = train(
        prepared.network, prepared.data.train, prepared.optimizer, loss=prepared.loss, epochs=job.epochs,
        batch_size=prepared.batch_size, seed=job.seed, record=Every(epochs=job.epochs), folder=folder, progress=False,
    )  # fmt: skip
    return Landscape(run_.model, prepared.loss, prepared.data.train)


def measured(land: Landscape, job: Follow, prepared: Subject) -> dict[str, Any]:
    """λ̂ and, where a matrix product is cheap, half the Fisher matrix's soft rank at the same resolution, else NaN."""
    at = resolution(land, None, prepared.gamma)
    sampler = prepared.sampler if job.sampler == "auto" else job.sampler
    estimate = llc(
        land, gamma=at.gamma, sampler=sampler, chains=job.chains or prepared.chains, draws=job.draws or None,
        budget=Nominal(job.budget), rtol=0.05, seed=job.seed, progress=False,
    )  # fmt: skip
    half = math.nan
    if land.n * sum(weight.numel() for weight in land.module.parameters()) <= _CHEAP:
        decay = at.gamma / at.nbeta
        half = soft_rank(land, weight_decay=decay, method="lanczos", rtol=0.05, seed=job.seed, progress=False).value / 2
    return {"llc": estimate, "half_soft_rank": half, "gamma": at.gamma, "nbeta": at.nbeta}


def accuracy(land: Landscape) -> float:
    """Share of labels, tokens or indicators that the network gets right."""
    right, count = 0, 0
    with torch.no_grad():
        for batch in land.batches(1024):
            output = land.outputs(land.parameters, batch.inputs)
            target = batch.target
            assert isinstance(target, Tensor)
            if target.is_floating_point():
                target = target.argmax(-1)
            right += int((output.argmax(-1) == target).sum())
            count += target.numel()
    return right / count if count else math.nan


# ---------------------------------------------------------------------- parts of it


def pieces(land: Landscape) -> dict[str, Landscape]:
    """Parts of the weights with a name each: heads and feedforward parts of a transformer, stages of other networks."""
    module = land.module
    if isinstance(module, Transformer):
        parts_by_name: dict[str, Landscape] = {}
        for number in range(len(module.blocks)):
            heads = [part for part in land.parts("head") if part.layer == number]
            parts_by_name |= {f"block {number}, head {head.number}": land.restrict(head.name) for head in heads}
            parts_by_name[f"block {number}, feedforward"] = land.restrict(f"blocks.{number}.feedforward.*")
        parts_by_name["embedding"] = land.restrict("tokens.*", "positions")
        parts_by_name["read-out"] = land.restrict("readout.*")
        return parts_by_name
    assert isinstance(module, nn.Sequential)
    numbers = list(dict.fromkeys(name.split(".")[0] for name in land.parameters))
    return {f"{number} {type(module[int(number)]).__name__}": land.restrict(f"{number}.*") for number in numbers}


def subsets(land: Landscape) -> dict[str, Landscape]:
    """Parts of the data: classes by pairs for classifiers; for text, windows by the number of commas in them."""
    target = land.samples.target
    assert isinstance(target, Tensor)
    if target.ndim == 1:
        return {
            f"classes {low} and {low + 1}": land.subset((target == low) | (target == low + 1))
            for low in range(0, 10, 2)
        }
    commas = (target == 2).sum(1)
    cut = commas.double().median()
    low, high = commas <= cut, commas > cut
    return {name: land.subset(mask) for name, mask in (("few commas", low), ("many commas", high)) if bool(mask.any())}
