"""Learning coefficients from how volumes shrink, beside exact ones; and NUTS and the engine beside exact moments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from basinscope.runs.results import Results
from basinscope.runs.scratch import Scratch
from basinscope.runs.study import Finding, Job, Result, Settings, Study
from studies.common.files import csv_files, readme

from .cases import CASES
from .measuring import energy, volumes
from .report import figure, page, sampler_table, volume_table


class VolumeSettings(Settings):
    """Settings of the study.

    Attributes:
        landscapes: of `CASES`.
        particles: of each of sixteen groups.
        smallest: loss ε to go down to.
        hyperbola, banana: nβ at which the two densities are sampled.
        acceptances: that NUTS aims at; 0 for the engine instead.
        seed: of everything.
    """

    landscapes: tuple[str, ...] = tuple(CASES)
    particles: int = 512
    smallest: float = 1e-10
    hyperbola: tuple[float, ...] = (4.0, 200.0)
    banana: tuple[float, ...] = (1.0, 20.0)
    acceptances: tuple[float, ...] = (0.8, 0.95, 0.0)
    seed: int = 0


class Volume(Job):
    """The volumes of one landscape."""

    landscape: str
    particles: int
    smallest: float
    seed: int
    part: Literal["volumes"] = "volumes"


class Energy(Job):
    """The mean energy of one density by one sampler."""

    density: Literal["hyperbola", "banana"]
    nbeta: float
    acceptance: float
    seed: int
    part: Literal["samplers"] = "samplers"


class VolumeStudy(Study):
    """Landscapes on which the law V(ε) ∝ ε^λ (log 1/ε)^(θ−1) holds down to ε = 0."""

    name = "volume-scaling"
    title = "λ̂ from how volumes shrink, and samplers, beside exact values"
    Settings = VolumeSettings
    Job = Volume | Energy
    scales: Mapping[str, Mapping[str, Any]] = {
        "smoke": {
            "landscapes": ["hyperbola (xy)²"], "particles": 64, "hyperbola": [4.0], "banana": [],
            "acceptances": [0.0],
        },
        "paper": {},
    }  # fmt: skip

    def jobs(self, settings: VolumeSettings) -> Iterator[Volume | Energy]:
        for name in settings.landscapes:
            yield Volume(landscape=name, particles=settings.particles, smallest=settings.smallest, seed=settings.seed)
        densities: dict[Literal["hyperbola", "banana"], tuple[float, ...]] = {
            "hyperbola": settings.hyperbola, "banana": settings.banana
        }  # fmt: skip
        for density, temperatures in densities.items():
            for nbeta in temperatures:
                for acceptance in settings.acceptances:
                    yield Energy(density=density, nbeta=nbeta, acceptance=acceptance, seed=settings.seed)

    def run(self, job: Volume | Energy, scratch: Scratch) -> Result:
        if isinstance(job, Volume):
            return Result(volumes(job.landscape, job.particles, job.smallest, job.seed))
        return Result([energy(job.density, job.nbeta, job.acceptance, job.seed)])

    def report(self, results: Results, folder: Path) -> Sequence[Path]:
        """`volumes.csv` with λ̂ beside λ, `samplers.csv` with means beside exact ones, a figure and `README.md`."""
        made = {"volumes": volume_table(results.table), "samplers": sampler_table(results.table)}
        picture = folder / "volumes.png"
        figure(results.table).savefig(picture, dpi=120)
        return [*csv_files(made, folder), picture, readme(page(made, results.provenance()), folder)]

    def findings(self, results: Results) -> Sequence[Finding]:
        """The exponents beside λ."""
        made = volume_table(results.table)
        worst = float(made["relative_error"].abs().max())
        return [
            Finding(
                "The exponent of V(ε) is the learning coefficient",
                "V(ε) ∝ ε^λ (log 1/ε)^(θ−1) as ε → 0",
                f"λ̂ within {worst:.1%} of λ on {len(made)} landscapes",
                "ok" if worst < 0.05 else "doubtful",
                made[["landscape", "llc", "stderr", "exact", "multiplicity"]].to_dict("records"),
            )
        ]


STUDY = VolumeStudy()
