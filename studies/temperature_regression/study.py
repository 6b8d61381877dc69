"""Does the temperature regression find learning coefficients that are known, and do NUTS and the engine agree?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from basinscope.runs.results import Results
from basinscope.runs.scratch import Scratch
from basinscope.runs.study import Job, Result, Settings, Study

from .cases import MODELS, NETWORKS
from .measuring import integrated, sampled

Method = Literal["exact", "engine", "nuts"]


class TemperatureSettings(Settings):
    """Which models, at which temperatures, on how many data sets by which method.

    Attributes:
        models: of `cases.MODELS`.
        samples: observations n of the regression and of the mixture.
        tanh_samples: observations of the tanh network, whose λ_t nears λ slowly; they are averaged at 50 places.
        network_samples: observations of the networks of Murfet et al.
        temperatures: 1/β in units of log n.
        data_sets: per model, integrated exactly.
        engine_data_sets: of these, sampled by the engine as well.
        nuts_models, nuts_data_sets: models that NUTS samples, and on how many of the data sets.
        prior_draws: of inner weights of networks, for the integration.
        engine_draws: draws of each of the engine's eight chains, the first half of which is burn-in.
        nuts_draws: draws of each of four chains of NUTS, after as many of warm-up.
    """

    models: tuple[str, ...] = MODELS
    samples: int = 2000
    tanh_samples: int = 1_000_000
    network_samples: int = 1000
    temperatures: tuple[float, ...] = (0.5, 0.875, 1.25, 1.625, 2.0)
    data_sets: int = 40
    engine_data_sets: int = 2
    nuts_models: tuple[str, ...] = ("reduced-rank", "mixture", "relu-5")
    nuts_data_sets: int = 1
    prior_draws: int = 40_000
    engine_draws: int = 800
    nuts_draws: int = 100


class DataSet(Job):
    """One data set at all temperatures by one method; `effort` is its draws."""

    model: str
    samples: int
    temperatures: tuple[float, ...]
    method: Method
    effort: float
    seed: int


class TemperatureStudy(Study):
    """Slopes of E[nL_n] against 1/β over several data sets, beside the exact λ."""

    name = "temperature-regression"
    title = "λ̂ as the slope of the loss in temperature, beside exact values"
    version = 2
    Settings = TemperatureSettings
    Job = DataSet
    scales: Mapping[str, Mapping[str, Any]] = {
        "smoke": {
            "models": ["mixture", "relu-3"], "samples": 300, "network_samples": 200, "temperatures": [0.5, 1.0, 2.0],
            "data_sets": 2, "engine_data_sets": 1, "prior_draws": 2000, "nuts_models": ["mixture"],
            "engine_draws": 60, "nuts_draws": 50,
        },
        "paper": {},
    }  # fmt: skip

    def jobs(self, settings: TemperatureSettings) -> Iterator[DataSet]:
        for model in settings.models:
            own = {"tanh": settings.tanh_samples}
            samples = settings.network_samples if model in NETWORKS else own.get(model, settings.samples)
            methods: tuple[tuple[Method, float, int], ...] = (
                ("exact", float(settings.prior_draws if model in NETWORKS else 0), settings.data_sets),
                ("engine", float(settings.engine_draws), settings.engine_data_sets),
                ("nuts", float(settings.nuts_draws), settings.nuts_data_sets * (model in settings.nuts_models)),
            )
            for method, effort, data_sets in methods:
                for seed in range(data_sets):
                    yield DataSet(
                        model=model, samples=samples, temperatures=settings.temperatures, method=method,
                        effort=effort, seed=seed,
                    )  # fmt: skip

    def cost(self, job: DataSet) -> float:
        return {"exact": 0.05, "engine": 1.0, "nuts": 5.0}[job.method]

    def run(self, job: DataSet, scratch: Scratch) -> Result:
        betas = [1 / (step * math.log(job.samples)) for step in job.temperatures]
        if job.method == "exact":
            return Result(integrated(job.model, job.samples, job.seed, betas, int(job.effort)))
        return Result(sampled(job.model, job.samples, job.seed, betas, job.method == "nuts", int(job.effort)))

    def report(self, results: Results, folder: Path) -> Sequence[Path]:
        """`summary.csv`: λ̂ of every model and method beside λ; `slopes.png`: the lines; `README.md`."""
        from .report import write

        return write(results.table, results.provenance(), folder)


STUDY = TemperatureStudy()
