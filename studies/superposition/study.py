"""Toy models of superposition: sampled λ̂ of k-gons beside theory, and λ̂ along trainings that jump between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import basinscope as bs
from basinscope.runs.results import Results
from basinscope.runs.scratch import Scratch
from basinscope.runs.study import Job, Result, Settings, Study

from .kgons import BY_NAME, coefficient, place, potential
from .landscapes import at_kgon, landscape, moments, shape, trained


class SuperpositionSettings(Settings):
    """Settings of the study.

    Attributes:
        kgons: names of critical points, of `kgons.KGONS`.
        starts: where trainings begin: `random`, or near a k-gon.
        trainings: from each of these starts, with seeds from 0 on.
        steps: of a training.
        checkpoints: of a training, at equal ratios of steps.
        rate, noise: of the descent, which is w ← w − rate · (∇L + noise · ξ); the noise for each of the starts.
        each: values of μ for every feature.
        nbeta, gamma: resolution of all λ̂; nβ at k-gons, and along trainings, where weights are not at rest.
        budget: nominal seconds at a k-gon, and at a checkpoint.
        seed: of the chains.
    """

    kgons: tuple[str, ...] = tuple(BY_NAME)
    starts: tuple[str, ...] = ("random", "4")
    trainings: tuple[int, ...] = (6, 3)
    steps: int = 10_000
    checkpoints: int = 10
    rate: float = 0.3
    noise: tuple[float, ...] = (0.0, 0.03)
    each: int = 50
    nbeta: tuple[float, float] = (1e6, 1e5)
    gamma: float = 300.0
    budget: tuple[float, float] = (2.0, 0.4)
    seed: int = 0


class Point(Job):
    """λ̂ of a k-gon."""

    kgon: str
    each: int
    nbeta: float
    gamma: float
    budget: float
    chain_seed: int
    part: Literal["kgon"] = "kgon"


class Training(Job):
    """λ̂ along a training."""

    start: str
    seed: int
    moments: tuple[int, ...]
    rate: float
    noise: float
    each: int
    nbeta: float
    gamma: float
    budget: float
    chain_seed: int
    part: Literal["training"] = "training"


class SuperpositionStudy(Study):
    """λ̂ of k-gons, and along trainings that visit them."""

    name = "superposition"
    title = "Toy models of superposition: k-gons whose λ is known, and trainings that jump from one to the next"
    Settings = SuperpositionSettings
    Job = Point | Training
    scales: Mapping[str, Mapping[str, Any]] = {
        "smoke": {
            "kgons": ["5"], "starts": ["random"], "trainings": [1], "noise": [0.0], "steps": 300, "checkpoints": 3,
            "each": 10, "budget": [0.5, 0.3],
        },
        "paper": {},
    }  # fmt: skip

    def jobs(self, settings: SuperpositionSettings) -> Iterator[Point | Training]:
        s = settings
        shared: dict[str, Any] = {"each": s.each, "gamma": s.gamma, "chain_seed": s.seed}
        for kgon in s.kgons:
            yield Point(kgon=kgon, nbeta=s.nbeta[0], budget=s.budget[0], **shared)
        when = moments(10, s.steps, s.checkpoints)
        for start, count, noise in zip(s.starts, s.trainings, s.noise, strict=True):
            for seed in range(count):
                yield Training(
                    start=start, seed=seed, moments=when, rate=s.rate, noise=noise, nbeta=s.nbeta[1],
                    budget=s.budget[1], **shared,
                )  # fmt: skip

    def cost(self, job: Point | Training) -> float:
        return job.budget * (len(job.moments) if isinstance(job, Training) else 1)

    def run(self, job: Point | Training, scratch: Scratch) -> Result:
        how: dict[str, Any] = {
            "nbeta": job.nbeta, "gamma": job.gamma, "budget": bs.Nominal(job.budget), "seed": job.chain_seed,
            "progress": False,
        }  # fmt: skip
        if isinstance(job, Point):
            kgon = BY_NAME[job.kgon]
            land = at_kgon(job.kgon, job.each)
            return Result([{
                "exact": coefficient(kgon), "population_loss": potential(*place(kgon)),
                "published_loss": kgon.published, "loss": float(land.per_sample().mean()),
                **bs.llc(land, rtol=0.01, **how).columns("llc"),
            }])  # fmt: skip
        rows = []
        points = trained(job.start, job.seed, job.moments, job.rate, job.noise, job.each)
        for step, (weights, bias) in zip(job.moments, points, strict=True):
            land = landscape(weights, bias, job.each)
            loss = float(land.per_sample().mean())
            estimate = bs.llc(land, rtol=0.05, **how)
            rows.append({"step": step, "loss": loss, "shape": shape(weights, bias), **estimate.columns("llc")})
        return Result(rows)

    def report(self, results: Results, folder: Path) -> Sequence[Path]:
        """`kgons.csv`, `trainings.csv`, `jumps.csv`, two figures and `README.md`."""
        from .report import write

        return write(results.table, results.provenance(), folder)


STUDY = SuperpositionStudy()
