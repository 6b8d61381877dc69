"""Loss against bits and against rank of each layer, beside λ̂ of that layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from basinscope.runs.results import Results
from basinscope.runs.scratch import Scratch
from basinscope.runs.study import Job, Result, Settings, Study

from .cases import NETWORKS, landscape
from .measuring import measured


class CompressionSettings(Settings):
    """Settings of the study.

    Attributes:
        networks: of `cases.NETWORKS`.
        images: data set of the networks that see images.
        samples: to train on.
        epochs: of training.
        seeds: of each network.
        bits: lowest and highest, and how many in between at equal steps.
        thresholds: rises of the loss that count as too much, in nats; the first is the one of the page.
        budget: nominal seconds for each λ̂.
    """

    networks: tuple[str, ...] = NETWORKS
    images: str = "mnist"
    samples: int = 1000
    epochs: int = 40
    seeds: tuple[int, ...] = (0, 1, 2)
    bits: tuple[float, float, int] = (1.0, 9.0, 33)
    thresholds: tuple[float, ...] = (0.05, 0.01, 0.25)
    budget: float = 2.0


class Squeezed(Job):
    """One trained network, layer by layer."""

    network: str
    images: str
    samples: int
    epochs: int
    seed: int
    bits: tuple[float, float, int]
    thresholds: tuple[float, ...]
    budget: float


class Compression(Study):
    """Bits and ranks that layers need, and their learning coefficients."""

    name = "compression"
    title = "How far each layer of a network can be squeezed, in bits and in rank, beside its learning coefficient"
    Settings = CompressionSettings
    Job = Squeezed
    scales: Mapping[str, Mapping[str, Any]] = {
        "smoke": {
            "networks": ["mlp"], "images": "digits", "samples": 100, "epochs": 5, "seeds": [0], "bits": [1.0, 8.0, 8],
            "budget": 0.2,
        },
        "digits": {"images": "digits", "samples": 600, "budget": 1.0},
        "paper": {},
    }  # fmt: skip

    def jobs(self, settings: CompressionSettings) -> Iterator[Squeezed]:
        s = settings
        for network in s.networks:
            for seed in s.seeds:
                yield Squeezed(
                    network=network, images=s.images, samples=s.samples, epochs=s.epochs, seed=seed, bits=s.bits,
                    thresholds=s.thresholds, budget=s.budget,
                )  # fmt: skip

    def run(self, job: Squeezed, scratch: Scratch) -> Result:
        land = landscape(job.network, job.images, job.samples, job.epochs, job.seed)
        low, high, count = job.bits
        return Result(measured(land, np.linspace(low, high, count).tolist(), job.thresholds, job.budget, job.seed))

    def report(self, results: Results, folder: Path) -> Sequence[Path]:
        """`layers.csv`, `curves.csv`, `correlations.csv`, two figures and `README.md`."""
        from .report import write

        return write(results.table, results.provenance(), folder)


STUDY = Compression()
