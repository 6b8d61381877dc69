"""Which criterion picks the model that made the data?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from basinscope.measures.criteria import criteria
from basinscope.runs.results import Results
from basinscope.runs.scratch import Scratch
from basinscope.runs.study import Job, Result, Settings, Study
from basinscope.sampling.local import Settings as Sampling
from basinscope.sampling.tempered import tempered_means

from .candidates import FAMILIES, fitted

Family = Literal["reduced-rank", "tanh", "relu"]

CRITERIA = ("aic", "bic", "wbic", "waic", "loo")
DRAWN = ("aic", "bic", "waic", "loo")
RTOL = 0.02  # of the mean excess loss, at either temperature


class SelectionSettings(Settings):
    """Which families, sizes and repetitions.

    Attributes:
        families: of candidates.
        samples: sizes n of the data.
        widths: numbers of hidden units to choose among.
        true_width: that of the network which made the data.
        seeds: data sets of each size.
        gamma: precision γ of the prior around each candidate's best fit.
        budget: nominal seconds for each of the two posteriors of a candidate, at β = 1 and at β = 1/log n.
    """

    families: tuple[Family, ...] = ("reduced-rank", "tanh", "relu")
    samples: tuple[int, ...] = (50, 100, 200, 500)
    widths: tuple[int, ...] = (1, 2, 3, 4)
    true_width: int = 2
    seeds: int = 20
    budget: float = 4.0
    gamma: float = 1.0


class Choice(Job):
    """One data set and all candidates."""

    family: Family
    samples: int
    widths: tuple[int, ...]
    true_width: int
    budget: float
    gamma: float
    seed: int


class Selection(Study):
    """AIC, BIC, WBIC, WAIC and leave-one-out choose the width of reduced-rank regressions and small networks."""

    name = "wbic-selection"
    title = "Which of AIC, BIC, WBIC, WAIC and leave-one-out finds the width of the true network"
    Settings = SelectionSettings
    Job = Choice
    scales: Mapping[str, Mapping[str, Any]] = {
        "smoke": {"samples": [100], "widths": [1, 2, 3], "seeds": 2, "budget": 1.0},
        "paper": {},
    }

    def jobs(self, settings: SelectionSettings) -> Iterator[Choice]:
        for family in settings.families:
            for samples in settings.samples:
                for seed in range(settings.seeds):
                    yield Choice(
                        family=family,
                        samples=samples,
                        widths=settings.widths,
                        true_width=settings.true_width,
                        budget=settings.budget,
                        gamma=settings.gamma,
                        seed=seed,
                    )

    def cost(self, job: Choice) -> float:
        return len(job.widths) * (1 + job.samples / 500)

    def run(self, job: Choice, scratch: Scratch) -> Result:
        data = FAMILIES[job.family].draw(job.samples, job.true_width, job.seed)
        settings = Sampling("hmc", rtol=RTOL, budget=job.budget, seed=job.seed)
        rows = []
        for width in job.widths:
            land = fitted(job.family, width, data, job.seed)
            found = criteria(
                land, only=DRAWN, gamma=job.gamma, budget=job.budget, rtol=RTOL, seed=job.seed, progress=False
            )
            warm = tempered_means(land, [1 / math.log(land.n)], job.gamma, settings, lambda fraction, text: None)[0]
            loss = land.n * found["bic"].diagnostics["loss"]
            rows.append(
                {
                    "width": width,
                    "parameters": land.dimension,
                    "loss": loss,
                    "llc": warm.mean / math.log(land.n),
                    "bic": found["bic"].value,
                    "wbic": loss + warm.mean,
                    "wbic_stderr": warm.stderr,
                    "wbic_rhat": warm.rhat,
                    **{name: land.n * found[name].value for name in ("aic", "waic", "loo")},
                    "waic_stderr": land.n * found["waic"].stderr,
                    "rhat": found["waic"].diagnostics["rhat"],
                    "bad_weights": found["loo"].verdict == "failed",
                }
            )
        return Result(rows)

    def report(self, results: Results, folder: Path) -> Sequence[Path]:
        """`choices.csv`: how often each criterion picks the truth, or less, or more; `choices.png`: over n."""
        from .figure import figure

        table = chosen(results.table)
        path, picture = folder / "choices.csv", folder / "choices.png"
        table.to_csv(path, index=False)
        figure(table).savefig(picture, dpi=130)
        return [path, picture]


def chosen(table: Any) -> Any:
    """Per family, n and criterion: the share of data sets whose minimum is at the true width, below and above it.

    `stderr` is that of the share, with a success and a failure added (Agresti and Coull), so that it is never zero.
    """
    import pandas as pd

    rows = []
    for (family, n), part in table.groupby(["family", "samples"], sort=False):
        for name in CRITERIA:
            picks = part.loc[part.groupby("seed")[name].idxmin()]
            right = (picks["width"] == picks["true_width"]).mean()
            count = len(picks)
            softened = (right * count + 1) / (count + 2)
            rows.append(
                {
                    "family": family,
                    "n": n,
                    "criterion": name,
                    "data_sets": count,
                    "right": right,
                    "stderr": (softened * (1 - softened) / (count + 2)) ** 0.5,
                    "too_small": (picks["width"] < picks["true_width"]).mean(),
                    "too_large": (picks["width"] > picks["true_width"]).mean(),
                    "mean_width": picks["width"].mean(),
                }
            )
    return pd.DataFrame(rows)


STUDY = Selection()
