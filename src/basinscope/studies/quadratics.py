"""The smallest study: does λ̂ agree with the exact value on quadratic basins, and are its error bars honest?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ..exact import finite
from ..landscape import Landscape, watanabe_nbeta
from ..measures.llc import llc
from ..runs.results import Results
from ..runs.scratch import Scratch
from ..runs.study import Finding, Job, Settings, Study
from ..sampling.clock import Nominal


class QuadraticSettings(Settings):
    """Which basins, and how often.

    Attributes:
        dimensions: numbers of parameters.
        conditions: largest eigenvalue of the Hessian over the smallest; they are evenly spaced in the logarithm.
        seeds: repetitions with other noise.
        samples: size n of the data.
        gamma: localisation γ.
    """

    dimensions: tuple[int, ...] = (2, 8, 32)
    conditions: tuple[float, ...] = (1.0, 100.0)
    seeds: int = 20
    samples: int = 500
    gamma: float = 1.0


class Basin(Job):
    """One basin, sampled once."""

    dimension: int
    condition: float
    samples: int
    gamma: float
    seed: int


class Quadratics(Study):
    """λ̂ by sampling beside ½ Σ nβσ/(nβσ + γ), for linear regression with chosen eigenvalues σ."""

    name = "quadratics"
    title = "λ̂ of quadratic basins beside its exact value"
    Settings = QuadraticSettings
    Job = Basin
    scales: Mapping[str, Mapping[str, Any]] = {
        "smoke": {"dimensions": [2, 8], "seeds": 3, "samples": 200},
        "paper": {},
    }

    def jobs(self, settings: QuadraticSettings) -> Iterator[Basin]:
        for dimension in settings.dimensions:
            for condition in settings.conditions:
                for seed in range(settings.seeds):
                    yield Basin(
                        dimension=dimension,
                        condition=condition,
                        samples=settings.samples,
                        gamma=settings.gamma,
                        seed=seed,
                    )

    def cost(self, job: Basin) -> float:
        return float(1 + job.dimension / 8)

    def run(self, job: Basin, scratch: Scratch) -> Mapping[str, Any]:
        land = basin(job.dimension, job.condition, job.samples, job.seed)
        estimate = llc(land, gamma=job.gamma, budget=Nominal(5.0), seed=job.seed, progress=False)
        exact = finite.quadratic(eigenvalues(job.dimension, job.condition), watanabe_nbeta(job.samples), job.gamma)
        return {
            "llc": estimate.value,
            "stderr": estimate.stderr,
            "verdict": estimate.verdict,
            "exact": exact,
            "off": (estimate.value - exact) / estimate.stderr,
        }

    def report(self, results: Results, folder: Path) -> Sequence[Path]:
        """`summary.csv`: per basin, the mean relative error and how many standard errors it is off."""
        grouped = results.table.assign(relative=lambda table: table.llc / table.exact - 1).groupby(
            ["dimension", "condition"]
        )
        summary = grouped.agg(
            runs=("llc", "size"),
            exact=("exact", "first"),
            relative_error=("relative", "mean"),
            rms_off=("off", lambda off: float((off**2).mean() ** 0.5)),
        )
        path = folder / "summary.csv"
        summary.to_csv(path)
        return [path]

    def findings(self, results: Results) -> Sequence[Finding]:
        """How far λ̂ is from the exact value, in standard errors."""
        table = results.table
        off, relative = table["off"], table["llc"] / table["exact"] - 1
        spread = float((off**2).mean() ** 0.5)
        return [
            Finding(
                "λ̂ of a quadratic basin",
                "Theory: λ = ½ Σ nβσ/(nβσ + γ) exactly; estimates should be off by about one standard error.",
                f"{len(table)} runs are off by {spread:.2f} standard errors (root mean square) and by "
                f"{abs(relative).max():.2%} at most.",
                "ok" if spread < 2 else "doubtful" if spread < 4 else "failed",
                [
                    {
                        "dimension": dimension,
                        "condition": condition,
                        "exact": float(part["exact"].iloc[0]),
                        "λ̂, mean": float(part["llc"].mean()),
                        "runs": len(part),
                    }
                    for (dimension, condition), part in table.groupby(["dimension", "condition"])
                ],
            )
        ]


def eigenvalues(dimension: int, condition: float) -> list[float]:
    """From `condition` down to 1, evenly spaced in the logarithm.

    Examples:
        >>> [round(value, 6) for value in eigenvalues(3, 100.0)]
        [100.0, 10.0, 1.0]
    """
    return [condition ** (1 - place / max(1, dimension - 1)) for place in range(dimension)]


def basin(dimension: int, condition: float, samples: int, seed: int) -> Landscape:
    """Noiseless linear regression at its minimum, whose Hessian XᵀX/n has the chosen eigenvalues exactly.

    Examples:
        >>> basin(2, 4.0, 50, seed=0).dimension
        2
    """
    generator = torch.Generator().manual_seed(seed)
    orthogonal, _ = torch.linalg.qr(torch.randn(samples, dimension, generator=generator, dtype=torch.float64))
    roots = torch.tensor(eigenvalues(dimension, condition), dtype=torch.float64).mul(samples).sqrt()
    inputs = orthogonal * roots
    net = torch.nn.Linear(dimension, 1, bias=False, dtype=torch.float64)
    torch.nn.init.ones_(net.weight)
    with torch.no_grad():
        targets = net(inputs)
    return Landscape(net, "mse", (inputs, targets))


STUDY = Quadratics()
