"""Does the temperature regression find learning coefficients that are known, and do NUTS and the engine agree?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

from basinscope.landscape import Landscape
from basinscope.measures.temperature import TemperatureRegression, judged, temperature_regression
from basinscope.runs.results import Results
from basinscope.runs.scratch import Scratch
from basinscope.runs.study import Job, Result, Settings, Study
from basinscope.sampling.clock import Nominal
from basinscope.sampling.tempered import TemperedMean
from studies.common.planted import PLANTED, averaged_tanh

Model = Literal["reduced-rank", "tanh", "mixture"]


class TemperatureSettings(Settings):
    """How many data sets, how large, at which temperatures.

    Attributes:
        models: which.
        samples: observations n of the regression and of the mixture.
        tanh_samples: observations of the tanh network, whose λ_t nears λ slowly; they are averaged at 50 places.
        temperatures: 1/β in units of log n.
        data_sets: per model, sampled by the engine.
        nuts_data_sets: of these, sampled by NUTS as well.
        budget: nominal seconds per data set.
        nuts_draws: draws of each of four chains of NUTS, after as many of warm-up.
    """

    models: tuple[Model, ...] = ("reduced-rank", "tanh", "mixture")
    samples: int = 2000
    tanh_samples: int = 1_000_000
    temperatures: tuple[float, ...] = (0.5, 0.875, 1.25, 1.625, 2.0)
    data_sets: int = 10
    nuts_data_sets: int = 1
    budget: float = 120.0
    nuts_draws: int = 500


class DataSet(Job):
    """One data set at all temperatures."""

    model: Model
    samples: int
    temperatures: tuple[float, ...]
    sampler: Literal["auto", "nuts"]
    budget: float
    draws: int | None
    seed: int


class TemperatureStudy(Study):
    """Slopes of E[nL_n] against 1/β over several data sets, beside the exact λ."""

    name = "temperature-regression"
    title = "λ̂ as the slope of the loss in temperature, beside exact values"
    Settings = TemperatureSettings
    Job = DataSet
    scales: Mapping[str, Mapping[str, Any]] = {
        "smoke": {
            "samples": 300, "temperatures": [0.5, 2.0], "data_sets": 2, "nuts_data_sets": 1, "budget": 4.0,
            "nuts_draws": 50,
        },
        "paper": {},
    }  # fmt: skip

    def jobs(self, settings: TemperatureSettings) -> Iterator[DataSet]:
        for model in settings.models:
            for seed in range(settings.data_sets):
                for sampler in ("auto", "nuts") if seed < settings.nuts_data_sets else ("auto",):
                    yield DataSet(
                        model=model,
                        samples=settings.tanh_samples if model == "tanh" else settings.samples,
                        temperatures=settings.temperatures,
                        sampler=sampler,
                        budget=settings.budget,
                        draws=settings.nuts_draws if sampler == "nuts" else None,
                        seed=seed,
                    )

    def cost(self, job: DataSet) -> float:
        return 5.0 if job.sampler == "nuts" else 1.0

    def run(self, job: DataSet, scratch: Scratch) -> Result:
        land, per = landscape(job)
        scale = math.log(job.samples)
        estimate = temperature_regression(
            land,
            betas=[per / (step * scale) for step in job.temperatures],
            gamma=PLANTED[job.model].gamma,
            sampler=job.sampler,
            draws=job.draws,
            budget=Nominal(job.budget),
            seed=1000 * job.seed,
            progress=False,
        )
        rows = []
        for point in estimate.diagnostics["points"]:
            # The sampler's own name and draws would hide the job's settings of the same name.
            renamed = {"sampler": "kernel", "draws": "kept"}
            row = {renamed.get(name, name): value for name, value in point.items() if name != "data_set"}
            # As for single observations: β smaller and energies larger by one factor, which leaves the slope alone.
            scaled = {"beta": row["beta"] / per, **{name: row[name] * per for name in ("mean", "stderr", "drift")}}
            rows.append({**row, **scaled, "slope": estimate.value})
        return Result(rows)

    def report(self, results: Results, folder: Path) -> Sequence[Path]:
        """`summary.csv`: λ̂ of every model and sampler beside λ; `slopes.png`: the lines."""
        import pandas as pd
        from matplotlib.figure import Figure

        from basinscope.measures.temperature_figure import draw_lines

        table = results.table
        rows = []
        found = {key: regression(part) for key, part in table.groupby(["model", "sampler"], sort=False)}
        for (model, sampler), estimate in found.items():
            value, theta = PLANTED[model].coefficient
            rows.append(
                {
                    "model": model,
                    "sampler": "engine" if sampler == "auto" else "nuts",
                    "data_sets": estimate.diagnostics["data_sets"],
                    "n": estimate.diagnostics["n"][0],
                    "llc": estimate.value,
                    "stderr": estimate.stderr,
                    "exact": float(value),
                    "multiplicity": theta,
                    "relative_error": estimate.value / float(value) - 1,
                    "r_squared": estimate.diagnostics["r_squared"],
                    "rhat": estimate.diagnostics["rhat"],
                    "divergences": estimate.diagnostics["divergences"],
                }
            )
        summary = folder / "summary.csv"
        pd.DataFrame(rows).to_csv(summary, index=False)
        engine = [(model, estimate) for (model, sampler), estimate in found.items() if sampler == "auto"]
        drawn = Figure(figsize=(4.2 * len(engine), 4), layout="constrained")
        for axes, (model, estimate) in zip(drawn.subplots(1, len(engine), squeeze=False)[0], engine, strict=True):
            draw_lines(axes, estimate)
            exact = PLANTED[model].coefficient[0]
            axes.set_title(
                f"{PLANTED[model].title}\nλ̂ = {estimate.value:.3f} ± {estimate.stderr:.3f},  λ = {exact}", fontsize=10
            )
        picture = folder / "slopes.png"
        drawn.savefig(picture, dpi=130)
        return [summary, picture]


def landscape(job: DataSet) -> tuple[Landscape, float]:
    """The data set's landscape, and by what factor β is larger on it than on single observations."""
    if job.model == "tanh":
        land = averaged_tanh(job.samples, job.seed)
        return land, job.samples / land.n
    return PLANTED[job.model].draw(job.samples, job.seed), 1.0


def regression(table: Any) -> TemperatureRegression:
    """The pooled regression of the rows of one model and sampler."""
    renamed = {"sampler": "kernel", "draws": "kept"}
    names = {field.name: renamed.get(field.name, field.name) for field in fields(TemperedMean)}
    sets, sizes, gammas = [], [], []
    for _, part in table.groupby("seed", sort=True):
        sets.append(
            [
                TemperedMean(**{name: row[column] for name, column in names.items() if column in row})
                for row in part.to_dict("records")
            ]
        )
        sizes.append(int(part["samples"].iloc[0]))
        gammas.append(PLANTED[part["model"].iloc[0]].gamma)
    return judged(sets, sizes, gammas)


STUDY = TemperatureStudy()
