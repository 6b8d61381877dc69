"""λ̂ through the training of image classifiers of three kinds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import basinscope as bs
from basinscope.measures.checkpoint_series import series_of
from basinscope.runs.results import Results
from basinscope.runs.scratch import Scratch, Unfinished
from basinscope.runs.study import Job, Result, Settings, Study
from basinscope.sampling.calibration import resolution
from studies.common.checkpoints import FEW, checkpoints, moments
from studies.common.classifiers import images, standardized
from studies.common.keeping import one_by_one
from studies.common.pages import scale_of

from .cases import network
from .measuring import measured


class ImageSettings(Settings):
    """Settings of the study.

    Attributes:
        networks, data: pairs of a network of `cases.NETWORKS` and a data set.
        samples: to train on, 0 for all.
        measured: of these, on which λ̂ is taken.
        seeds: of each network.
        checkpoints: of a training, at equal ratios of steps; of the first ones some fall together.
        epochs, batch, rate: of Adam.
        nbeta, gamma: of all checkpoints of a training; 0 for n/log n and d/‖w*‖² of the last.
        sampler, draws, chains, sampled: of λ̂: steps of a chain, how many there are, and images of a batch; 0 for what
            the budget affords.
        budget: nominal seconds of each λ̂.
        rtol: its wanted standard error.
    """

    networks: tuple[str, ...] = ("mlp", "cnn", "vit", "resnet20", "vit")
    data: tuple[str, ...] = ("mnist", "mnist", "mnist", "cifar10", "cifar10")
    samples: int = 0
    measured: int = 10_000
    seeds: tuple[int, ...] = (0,)
    checkpoints: int = 34
    epochs: int = 20
    batch: int = 128
    rate: float = 1e-3
    nbeta: float = 100.0
    gamma: float = 0.0
    sampler: str = "lean"
    draws: int = 150
    chains: int = 4
    sampled: int = 256
    budget: float = 60.0
    rtol: float = 0.05


class Classifier(Job):
    """One training."""

    network: str
    data: str
    samples: int
    measured: int
    seed: int
    checkpoints: int
    epochs: int
    batch: int
    rate: float
    nbeta: float
    gamma: float
    sampler: str
    draws: int
    chains: int
    sampled: int
    budget: float
    rtol: float


class ImageStudy(Study):
    """Image classifiers through training."""

    name = "images"
    title = "Image classifiers through training: λ̂, basin and drop, and architectures at one test loss"
    Settings = ImageSettings
    Job = Classifier
    stops_in_time = True
    gpus = 1.0
    scales: Mapping[str, Mapping[str, Any]] = {
        "smoke": {
            "networks": ["mlp"], "data": ["digits"], "samples": 100, "measured": 100, "checkpoints": 3, "epochs": 2,
            "batch": 20, "draws": 16, "sampled": 20,
        },
        "digits": {
            "networks": ["mlp", "cnn", "vit"], "data": ["digits", "digits", "digits"], "measured": 500, "epochs": 40,
            "batch": 32, "nbeta": 10.0, "draws": 240, "sampled": 96,
        },
        "paper": {},
    }  # fmt: skip

    def jobs(self, settings: ImageSettings) -> Iterator[Classifier]:
        s = settings
        for seed in s.seeds:
            for name, data in zip(s.networks, s.data, strict=True):
                yield Classifier(
                    network=name, data=data, samples=s.samples, measured=s.measured, seed=seed,
                    checkpoints=s.checkpoints, epochs=s.epochs, batch=s.batch, rate=s.rate, nbeta=s.nbeta,
                    gamma=s.gamma, sampler=s.sampler, draws=s.draws, chains=s.chains, sampled=s.sampled,
                    budget=s.budget, rtol=s.rtol,
                )  # fmt: skip

    def run(self, job: Classifier, scratch: Scratch) -> Result:
        data = standardized(images(job.data, job.samples))
        net, (x, y) = network(job.network, data, job.seed), data.train
        when = moments(job.epochs * -(-len(y) // job.batch), job.checkpoints)
        folder = checkpoints(
            net, (x, y), "cross_entropy", when, rate=job.rate, batch=job.batch, seed=job.seed, scratch=scratch
        )
        series = series_of(folder, model=net, data=(x[: job.measured], y[: job.measured]))
        at = resolution(series.load(len(series) - 1), job.nbeta or None, job.gamma or None)
        how: dict[str, Any] = {
            "nbeta": at.nbeta, "gamma": at.gamma, "sampler": job.sampler, "draws": job.draws or None,
            "chains": job.chains or None, "batch_size": job.sampled or None, "budget": bs.Nominal(job.budget),
            "rtol": job.rtol, "seed": job.seed,
        }  # fmt: skip

        def of(place: str) -> dict[str, Any]:
            if scratch.seconds_left < FEW:
                raise Unfinished
            return {"step": series.steps[int(place)], **measured(series.load(int(place)), net, data, how)}

        return Result(one_by_one(map(str, range(len(series))), of, scratch.folder / "measured.json"))

    def report(self, results: Results, folder: Path) -> Sequence[Path]:
        """`checkpoints.csv`, `equal_loss.csv`, a figure and `README.md`."""
        from .report import write

        return write(results.table, {**results.provenance(), "scale": scale_of(self, results.settings)}, folder)


STUDY = ImageStudy()
