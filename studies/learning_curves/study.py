"""How fast do singular models learn: n·G(n) beside λ, and what leave-one-out knows of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from basinscope.measures.pointwise import Stream
from basinscope.measures.psis import Tails
from basinscope.runs.results import Results
from basinscope.runs.scratch import Scratch
from basinscope.runs.study import Job, Settings, Study
from basinscope.sampling.calibration import Resolution
from basinscope.sampling.chains import ChainLosses
from basinscope.sampling.draws import draws
from basinscope.sampling.local import Sampler
from basinscope.sampling.local import Settings as Sampling
from studies.common.planted import PLANTED

Model = Literal["reduced-rank", "tanh", "mixture"]


class CurveSettings(Settings):
    """Which sizes, and how often.

    Attributes:
        models: which.
        samples: sizes n of the data.
        seeds: data sets of each size.
        test_samples: size of the test sets that stand for expectations over new data.
        draws: of the posterior, all chains together.
        budget: nominal seconds for the chains to converge.
    """

    models: tuple[Model, ...] = ("reduced-rank", "tanh", "mixture")
    samples: tuple[int, ...] = (50, 100, 200, 400, 800)
    seeds: int = 40
    test_samples: int = 4000
    draws: int = 1600
    budget: float = 2.0


class Posterior(Job):
    """One data set and its posterior at β = 1."""

    model: Model
    samples: int
    test_samples: int
    draws: int
    budget: float
    seed: int


class LearningCurves(Study):
    """Bayes and Gibbs generalization errors and the leave-one-out error, relative to the truth, over n."""

    name = "learning-curves"
    title = "n times the generalization error beside λ, and its anti-correlation with leave-one-out"
    Settings = CurveSettings
    Job = Posterior
    scales: Mapping[str, Mapping[str, Any]] = {
        "smoke": {"samples": [50, 100], "seeds": 4, "test_samples": 1000, "draws": 480, "budget": 0.5},
        "paper": {},
    }

    def jobs(self, settings: CurveSettings) -> Iterator[Posterior]:
        for model in settings.models:
            for samples in settings.samples:
                for seed in range(settings.seeds):
                    yield Posterior(
                        model=model,
                        samples=samples,
                        test_samples=settings.test_samples,
                        draws=settings.draws,
                        budget=settings.budget,
                        seed=seed,
                    )

    def cost(self, job: Posterior) -> float:
        return 1 + job.samples / 400

    def run(self, job: Posterior, scratch: Scratch) -> Mapping[str, Any]:
        planted = PLANTED[job.model]
        land = planted.draw(job.samples, 10_000 + job.seed)
        new = ChainLosses(planted.test(job.test_samples, 20_000 + job.seed))
        sampler = Sampler(land, Sampling("hmc", rtol=0.02, budget=job.budget, seed=job.seed))
        outcome = sampler.run(Resolution(land.n, planted.gamma), lambda fraction, text: None)
        chains = len(outcome.displacement)
        count = -(-job.draws // chains)
        seen, unseen = Stream(land.n, groups=chains), Stream(new.land.n, groups=chains)
        tails = Tails(land.n, chains * count)
        for delta, _ in draws(sampler, outcome, count, seed=job.seed + 1, thin=2):
            rows = -sampler.losses.per_sample(delta)
            seen.add(rows)
            tails.add(rows)
            unseen.add(-new.per_sample(delta))
        trained, tested = seen.pooled(), unseen.pooled()
        truth, test_truth = float(sampler.losses.base.mean()), float(new.base.mean())
        smoothed = tails.smoothed()
        return {
            "bayes_error": tested.bayes_training_loss - test_truth,
            "gibbs_error": tested.gibbs_training_loss - test_truth,
            "bayes_training_error": trained.bayes_training_loss - truth,
            "gibbs_training_error": trained.gibbs_training_loss - truth,
            "leave_one_out_error": -float(smoothed.log_leave_one_out.mean()) - truth,
            "waic_error": trained.waic - truth,
            "functional_variance": trained.functional_variance,
            "largest_shape": float(smoothed.shape.max()),
            "rhat": outcome.rhat,
            "chains": chains,
        }

    def report(self, results: Results, folder: Path) -> Sequence[Path]:
        """`summary.csv`: means over data sets at each size; `curves.png`: n·G(n), and G beside leave-one-out."""
        from .figure import figure

        summary = summarized(results.table)
        path, picture = folder / "summary.csv", folder / "curves.png"
        summary.to_csv(path, index=False)
        figure(summary, results.table).savefig(picture, dpi=130)
        return [path, picture]


def summarized(table: Any) -> Any:
    """Per model and n: n times the errors with standard errors, n(Bg + Cv) beside 2λ, and their correlation."""
    import pandas as pd

    rows = []
    for (model, n), part in table.groupby(["model", "samples"], sort=False):
        both = n * (part["bayes_error"] + part["leave_one_out_error"])
        row: dict[str, Any] = {
            "model": model,
            "n": n,
            "data_sets": len(part),
            "exact": float(PLANTED[model].coefficient[0]),
        }
        errors = ("bayes_error", "gibbs_error", "bayes_training_error", "gibbs_training_error", "leave_one_out_error")
        for name in errors:
            row[name] = n * part[name].mean()
            row[f"{name}_stderr"] = n * part[name].std() / len(part) ** 0.5
        half = part["functional_variance"] / 2
        row |= {
            "fluctuation": half.mean(),
            "fluctuation_stderr": half.std() / len(part) ** 0.5,
            "sum": both.mean(),
            "sum_stderr": both.std() / len(part) ** 0.5,
            "sum_spread": both.std(),
            "correlation": part["bayes_error"].corr(part["leave_one_out_error"]),
        }
        rows.append(row)
    return pd.DataFrame(rows)


STUDY = LearningCurves()
