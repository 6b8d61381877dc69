"""The study as `basinscope study` runs it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from basinscope.runs.results import Results
from basinscope.runs.scratch import Scratch
from basinscope.runs.study import Finding, Job, Result, Settings, Study
from studies.common.files import csv_files, readme

from . import coin
from .measuring import fluctuation, laws, symmetries
from .report import draw, law_distances, page, tables


class CriteriaSettings(Settings):
    """Settings of the study.

    Attributes:
        models: of the coin, `coin.KINDS`.
        sizes: numbers n of tosses.
        betas: inverse temperatures β of the coin.
        network_betas: those at which ν̂ of a network on the digits is taken; 1/log n is that of WBIC.
        shares: minibatches have one in so many samples.
        draws: kept, of each of 16 chains.
        seeds: repetitions.
        networks: activation and widths of networks whose flat directions are looked for.
    """

    models: tuple[str, ...] = tuple(coin.KINDS)
    sizes: tuple[int, ...] = (300, 10**3, 3000, 10**4, 3 * 10**4, 10**5, 3 * 10**5, 10**6)
    betas: tuple[float, ...] = (0.5, 1.0, 2.0)
    network_betas: tuple[float, ...] = (1.0, 1 / math.log(1797))
    shares: tuple[int, ...] = (2, 8, 32, 128, 512)
    draws: int = 150
    seeds: int = 4
    networks: tuple[str, ...] = (
        "relu 1-3-1", "relu 2-4-3-1", "relu 4-8-3", "linear 4-3-4", "linear 3-3-3-3", "silu 2-4-1",
    )  # fmt: skip


class Laws(Job):
    """The coin at one size and temperature, exact means over data sets."""

    model: str
    samples: int
    beta: float
    part: Literal["coin"] = "coin"


class Minibatches(Job):
    """ν̂ on minibatches of several sizes, from one set of draws."""

    beta: float
    shares: tuple[int, ...]
    draws: int
    seed: int
    part: Literal["fluctuation"] = "fluctuation"


class Symmetries(Job):
    """The flat directions of one network."""

    network: str
    seed: int
    part: Literal["symmetries"] = "symmetries"


class Criteria(Study):
    """Information criteria where their means are integrals, and what minibatches and symmetries say of a network."""

    name = "criteria"
    title = "Criteria and their asymptotic laws: what theory predicts beside what is found"
    Settings = CriteriaSettings
    Job = Laws | Minibatches | Symmetries
    scales: Mapping[str, Mapping[str, Any]] = {
        "smoke": {
            "models": ["regular", "square"], "sizes": [1000, 10_000], "betas": [1.0], "network_betas": [1.0],
            "shares": [8], "draws": 16, "seeds": 1, "networks": ["relu 1-3-1"],
        },
        "paper": {},
    }  # fmt: skip

    def jobs(self, settings: CriteriaSettings) -> Iterator[Laws | Minibatches | Symmetries]:
        for model in settings.models:
            for beta in settings.betas:
                for samples in settings.sizes:
                    yield Laws(model=model, samples=samples, beta=beta)
        for beta in settings.network_betas:
            for seed in range(settings.seeds):
                yield Minibatches(beta=beta, shares=settings.shares, draws=settings.draws, seed=seed)
        for network in settings.networks:
            yield Symmetries(network=network, seed=1)

    def cost(self, job: Laws | Minibatches | Symmetries) -> float:
        return job.samples**0.5 / 1000 if isinstance(job, Laws) else 10.0

    def run(self, job: Laws | Minibatches | Symmetries, scratch: Scratch) -> Result:
        if isinstance(job, Laws):
            return Result([laws(job.model, job.samples, job.beta)])
        if isinstance(job, Minibatches):
            return Result(fluctuation(job.beta, job.shares, job.draws, job.seed))
        return Result([symmetries(job.network, job.seed)])

    def report(self, results: Results, folder: Path) -> Sequence[Path]:
        """`laws.csv`, `rates.csv`, `fluctuation.csv` and `symmetries.csv`, a figure of the first two, `README.md`."""
        made = tables(results.table)
        files = [*csv_files(made, folder), draw(made, folder)]
        return [*files, readme(page(made, results.provenance()), folder)]

    def findings(self, results: Results) -> Sequence[Finding]:
        """The laws of the errors, at the largest n."""
        distances = law_distances(tables(results.table)["laws"])
        worst = max(row["distance"] for row in distances if row["model"] != "product")
        return [
            Finding(
                "Errors, WAIC and functional variance obey the laws of singular learning theory",
                "n E[Bg] → (λ − ν)/β + ν, n E[Bt] → (λ − ν)/β − ν, n E[Gg] → λ/β + ν, E[V] → 2ν/β, n E[Bg + Cv] − "
                "(β − 1) E[V] → 2λ/β (Watanabe 2010)",
                f"within {worst:.1g} of the limits at the largest n, the model with a logarithm in its law aside",
                "ok" if worst < 0.01 else "doubtful",
                distances,
            )
        ]


STUDY = Criteria()
