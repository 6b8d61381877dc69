"""Do the soft rank's propositions hold, and is it any good as a penalty?

Of Shoham, Mor-Yosef and Avron (2025, https://arxiv.org/abs/2506.17809): the limits of Propositions 4.1 and 4.2, the
bounds of Proposition 6.1 and of Theorems C.2 and C.3, and training with the soft rank as a penalty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from basinscope.runs.results import Results
from basinscope.runs.scratch import Scratch
from basinscope.runs.study import Job, Result, Settings, Study

from . import bounds, limits, penalised

Network = Literal["mlp", "deep mlp", "cnn"]


class PropositionSettings(Settings):
    """Settings of the study.

    Attributes:
        models: regressions whose truth is known.
        decays: of these.
        samples: sizes of their data sets.
        scales: of their inputs, at the largest size and `scaled_decay`.
        sets: data sets of each kind.
        data: images that networks are trained on.
        networks: those whose Fisher matrices are looked at.
        network_decays, network_samples, network_steps, network_seeds: of their training.
        batches: sizes of the parts that matrices are summed over.
        decay_strengths: weight decays of a convolutional network.
        radii: of SAM.
        strengths: of the penalty, in units of the gap that is predicted.
        trained_samples, held, test: images to train on, to choose strengths by, and to judge by.
        gradients: of one sample's loss that a training may take.
        seeds: of each training.
    """

    models: tuple[str, ...] = (limits.FIXED, "ridge", "logistic")
    decays: tuple[float, ...] = (0.001, 0.01, 0.1, 1.0)
    samples: tuple[int, ...] = (256, 1024, 4096, 16384)
    scales: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
    scaled_decay: float = 0.1
    sets: int = 20_000
    data: str = "mnist"
    networks: tuple[Network, ...] = ("mlp", "deep mlp", "cnn")
    network_decays: tuple[float, ...] = (0.001, 0.1)
    network_samples: int = 200
    network_steps: int = 300
    network_seeds: int = 2
    batches: tuple[int, ...] = (20, 100)
    decay_strengths: tuple[float, ...] = (1e-3, 3e-3, 1e-2, 3e-2)
    radii: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2)
    strengths: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3)
    trained_samples: int = 1000
    held: int = 2000
    test: int = 10_000
    gradients: int = 250_000
    seeds: int = 3


class Limits(Job):
    """Many data sets of one regression."""

    model: str
    scale: float
    decay: float
    samples: int
    sets: int
    seed: int
    part: Literal["limits"] = "limits"


class Bounds(Job):
    """The Fisher matrix of one trained network."""

    network: Network
    data: str
    decay: float
    samples: int
    steps: int
    batches: tuple[int, ...]
    seed: int
    part: Literal["bounds"] = "bounds"


class Penalised(Job):
    """One training of the convolutional network."""

    arm: Literal["weight decay", "SAM", "soft rank"]
    strength: float
    data: str
    samples: int
    held: int
    test: int
    gradients: int
    seed: int
    part: Literal["penalised"] = "penalised"


AnyJob = Limits | Bounds | Penalised


class Propositions(Study):
    """The propositions about the soft rank, measured."""

    name = "soft-rank-propositions"
    title = "The soft rank's propositions, measured: limits of the gap, bounds on networks, and the penalty at work"
    Settings = PropositionSettings
    Job = AnyJob
    scales: Mapping[str, Mapping[str, Any]] = {
        "smoke": {
            "decays": [0.001, 0.1], "samples": [256, 1024], "scales": [0.1, 1.0], "sets": 500, "data": "digits",
            "networks": ["mlp"], "network_decays": [0.01], "network_samples": 60, "network_steps": 50,
            "network_seeds": 1, "batches": [20], "decay_strengths": [1e-3], "radii": [0.05], "strengths": [0.03],
            "trained_samples": 200, "held": 200, "test": 300, "gradients": 10_000, "seeds": 2,
        },
        "paper": {},
    }  # fmt: skip

    def jobs(self, settings: PropositionSettings) -> Iterator[AnyJob]:
        s = settings
        for model in s.models:
            for decay in s.decays:
                for samples in s.samples:
                    yield Limits(model=model, scale=1.0, decay=decay, samples=samples, sets=s.sets, seed=0)
            for scale in s.scales:
                if scale != 1 or s.scaled_decay not in s.decays:
                    yield Limits(model=model, scale=scale, decay=s.scaled_decay, samples=s.samples[-1], sets=s.sets,
                                 seed=0)  # fmt: skip
        for network in s.networks:
            for decay in s.network_decays:
                for seed in range(s.network_seeds):
                    yield Bounds(network=network, data=s.data, decay=decay, samples=s.network_samples,
                                 steps=s.network_steps, batches=s.batches, seed=seed)  # fmt: skip
        grid: dict[Literal["weight decay", "SAM", "soft rank"], tuple[float, ...]] = {
            "weight decay": s.decay_strengths, "SAM": s.radii, "soft rank": s.strengths
        }  # fmt: skip
        for arm, strengths in grid.items():
            for strength in strengths:
                for seed in range(s.seeds):
                    yield Penalised(arm=arm, strength=strength, data=s.data, samples=s.trained_samples, held=s.held,
                                    test=s.test, gradients=s.gradients, seed=seed)  # fmt: skip

    def run(self, job: AnyJob, scratch: Scratch) -> Result:
        if isinstance(job, Limits):
            return Result([limits.measured(job.model, job.scale, job.decay, job.samples, job.sets, job.seed)])
        if isinstance(job, Bounds):
            return Result(bounds.measured(job.network, job.data, job.decay, job.samples, job.steps, job.batches,
                                          job.seed))  # fmt: skip
        return Result([penalised.measured(job.arm, job.strength, job.data, job.samples, job.held, job.test,
                                          job.gradients, job.seed)])  # fmt: skip

    def report(self, results: Results, folder: Path) -> Sequence[Path]:
        """A table for each part, a figure and `README.md`."""
        from .report import write

        return write(results.table, results.provenance(), folder)


STUDY = Propositions()
