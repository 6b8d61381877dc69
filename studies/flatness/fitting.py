"""Training: the networks of a unit as one population, to be gone on with at any time; and their cross-validation."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from basinscope.errors import InputError
from basinscope.files import whole_file
from basinscope.landscape import Parameters
from basinscope.runs.scratch import Unfinished
from basinscope.training.population import Adam, Member, Population
from studies.common.measuring import device

from .cases import data_set, inputs, network_of
from .jobs import Network

_STATE, _WEIGHTS, _CLOCK = "state.npz", "weights.npz", "clock.json"


@dataclass(frozen=True)
class Fitted:
    """Trained networks.

    Attributes:
        weights: the parameters of all networks as rows, in the order of the jobs.
        diverged: for each the step at which it was given up, or −1.
        seconds: of training, for each network.
    """

    weights: Tensor
    diverged: list[int]
    seconds: float

    def point(self, number: int, like: nn.Module) -> Parameters:
        """One network's parameters, by the names that they have in `like`."""
        shapes = {name: tensor.shape for name, tensor in like.named_parameters()}
        pieces = self.weights[number].split([shape.numel() for shape in shapes.values()])
        return {name: piece.view(shapes[name]) for name, piece in zip(shapes, pieces, strict=True)}


def pooled(jobs: Sequence[Network]) -> tuple[tuple[Tensor, Tensor], dict[str, int]]:
    """The training samples of all jobs as one set, and where each data set starts in it."""
    images, labels, starts, total = [], [], {}, 0
    for name in dict.fromkeys(job.data for job in jobs):
        most = max(job.samples for job in jobs if job.data == name)
        training = data_set(name, jobs[0].inputs).first(train=most).train
        starts[name] = total
        images.append(inputs(training[0], jobs[0].architecture))
        labels.append(training[1])
        total += most
    return (torch.cat(images), torch.cat(labels)), starts


def fitted(jobs: Sequence[Network], folder: Path, seconds: float = math.inf) -> Fitted:
    """The networks of `jobs`, trained as one population; `Unfinished` if `seconds` were too few.

    Unfinished work is kept in `folder`, and in the end the weights alone, about a third of it.
    """
    file = folder / _WEIGHTS
    if file.is_file():
        return _loaded(file, jobs)
    data, starts = pooled(jobs)
    members = [
        Member(
            job.seed, job.lr, job.weight_decay, job.batch_size, range(starts[job.data], starts[job.data] + job.samples)
        )
        for job in jobs
    ]
    population, spent = _train(jobs, members, data, folder, seconds)
    weights = torch.cat([tensor.flatten(1) for tensor in population.parameters.values()], 1).cpu()
    diverged = [population.diverged.get(m, -1) for m in range(len(jobs))]
    _save(file, weights=weights.numpy(), diverged=np.array(diverged), seconds=spent / len(jobs), seeds=_seeds(jobs))
    (folder / _STATE).unlink(missing_ok=True)
    return Fitted(weights, diverged, spent / len(jobs))


def cross_validated(jobs: Sequence[Network], folder: Path, seconds: float = math.inf) -> list[dict[str, Any]]:
    """k-fold cross-validation of every job: a row each; `Unfinished` if `seconds` were too few.

    Every fold is left out once. `cv_loss` is the mean loss on what was left out, `cv_gap` that less the loss on what
    was not, `cv_stderr` the standard error of the gap over folds.
    """
    data, starts = pooled(jobs)
    members, left_out = [], []
    for job in jobs:
        numbers = torch.arange(starts[job.data], starts[job.data] + job.samples)
        for fold in range(job.folds):
            out = torch.arange(job.samples) % job.folds == fold
            left_out.append(numbers[out])
            members.append(Member(job.seed + 1 + fold, job.lr, job.weight_decay, job.batch_size, numbers[~out]))
    population, spent = _train(jobs, members, data, folder, seconds)
    within, without = population.evaluate(), population.evaluate(subsets=left_out)
    assert without.accuracy is not None
    rows, start = [], 0
    for job in jobs:
        models = slice(start, start + job.folds)
        start += job.folds
        gaps = without.loss[models] - within.loss[models]
        rows.append(
            {
                "outcome": "finished" if bool(gaps.isfinite().all()) else "diverged",
                "cv_loss": float(without.loss[models].mean()),
                "cv_train_loss": float(within.loss[models].mean()),
                "cv_accuracy": float(without.accuracy[models].mean()),
                "cv_gap": float(gaps.mean()),
                "cv_stderr": float(gaps.std() / math.sqrt(job.folds)),
                "cv_seconds": spent / len(jobs),
            }
        )
    (folder / _STATE).unlink(missing_ok=True)
    return rows


def _train(
    jobs: Sequence[Network], members: list[Member], data: tuple[Tensor, Tensor], folder: Path, seconds: float
) -> tuple[Population, float]:
    """The population at its end and the seconds it took, those of earlier calls included."""
    folder.mkdir(parents=True, exist_ok=True)
    began, clock = time.monotonic(), folder / _CLOCK
    before = json.loads(clock.read_text())["seconds"] if clock.is_file() else 0.0
    job = jobs[0]
    adam = Adam(cosine=job.steps if job.schedule == "cosine" else 0)
    population = Population(lambda: network_of(job), members, data, optimizer=adam, device=device())
    limit = None if math.isinf(seconds) else max(1e-3, seconds - (time.monotonic() - began))
    done = population.train(job.steps, checkpoint=folder / _STATE, seconds=limit, progress=False)
    spent = before + time.monotonic() - began
    clock.write_text(json.dumps({"seconds": spent, "step": population.step}))
    if not done:
        raise Unfinished
    return population, spent


def _seeds(jobs: Sequence[Network]) -> np.ndarray[Any, Any]:
    return np.array([[job.seed, job.steps] for job in jobs])


def _save(path: Path, **arrays: Any) -> None:
    with whole_file(path) as stream:
        np.savez(stream, **arrays)


def _loaded(path: Path, jobs: Sequence[Network]) -> Fitted:
    with np.load(path, allow_pickle=False) as arrays:
        if arrays["seeds"].tolist() != _seeds(jobs).tolist():
            raise InputError(f"{path} holds the weights of other networks — delete it")
        return Fitted(torch.from_numpy(arrays["weights"]), arrays["diverged"].tolist(), float(arrays["seconds"]))
