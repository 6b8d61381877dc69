"""Learning coefficients that formulas give, beside those that samples give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from basinscope.runs.results import Results
from basinscope.runs.scratch import Scratch
from basinscope.runs.study import Job, Result, Settings, Study

from .cases import GROUPS
from .measuring import additive, depth, depth_by_engine, resolved

LADDER = (1e2, 1e3, 1e4, 1e6, 1e8, 1e10, 1e12)


class CoefficientSettings(Settings):
    """Settings of the study.

    Attributes:
        width, rank: of the linear networks.
        layers: numbers of them.
        ladder: T = nβσ/γ that chains go up; the last is compared with λ.
        chains, sweeps: of the Gibbs samplers, sweeps at each rung.
        engine: T at which `bs.llc` samples the same linear networks.
        groups: ReLU networks, of `cases.GROUPS`.
        relu_gamma: γ of these.
        gammas: of the landscape in two dimensions.
        nbeta: nβ there.
        budget: nominal seconds of every call of `bs.llc`.
        seed: of everything.
    """

    width: int = 5
    rank: int = 1
    layers: tuple[int, ...] = (1, 2, 3, 4, 5)
    ladder: tuple[float, ...] = LADDER
    chains: int = 64
    sweeps: int = 300
    engine: float = 100.0
    groups: tuple[str, ...] = tuple(GROUPS)
    relu_gamma: float = 400.0
    gammas: tuple[float, ...] = (0.1, 1.0, 3.0, 10.0, 30.0, 100.0, 1e3, 1e4, 1e5)
    nbeta: float = 1e4
    budget: float = 20.0
    seed: int = 0


class Depth(Job):
    """A deep linear network by Gibbs sampling."""

    width: int
    rank: int
    layers: int
    ladder: tuple[float, ...]
    chains: int
    sweeps: int
    seed: int
    part: Literal["depth"] = "depth"


class Engine(Job):
    """The same by `bs.llc`."""

    width: int
    rank: int
    layers: int
    engine: float
    budget: float
    seed: int
    part: Literal["engine"] = "engine"


class Additive(Job):
    """A ReLU network by Gibbs sampling."""

    network: str
    gamma: float
    ladder: tuple[float, ...]
    chains: int
    sweeps: int
    seed: int
    part: Literal["relu"] = "relu"


class Resolved(Job):
    """The landscape in two dimensions at one γ."""

    nbeta: float
    gamma: float
    budget: float
    seed: int
    part: Literal["gamma"] = "gamma"


class Coefficients(Study):
    """λ over depth, of ReLU networks, and over γ: exact and sampled."""

    name = "exact-coefficients"
    title = "λ from formulas beside λ̂ from samples: depth, ReLU groups, and what γ decides"
    Settings = CoefficientSettings
    Job = Depth | Engine | Additive | Resolved
    scales: Mapping[str, Mapping[str, Any]] = {
        "smoke": {
            "width": 3, "layers": [1, 2], "ladder": [100.0, 1e4], "sweeps": 60, "groups": ["1 output, 3 units"],
            "gammas": [10.0], "budget": 1.0,
        },
        "paper": {},
    }  # fmt: skip

    def jobs(self, settings: CoefficientSettings) -> Iterator[Depth | Engine | Additive | Resolved]:
        s = settings
        for layers in s.layers:
            yield Depth(
                width=s.width, rank=s.rank, layers=layers, ladder=s.ladder, chains=s.chains, sweeps=s.sweeps,
                seed=s.seed,
            )  # fmt: skip
            yield Engine(
                width=s.width, rank=s.rank, layers=layers, engine=s.engine, budget=s.budget, seed=s.seed
            )  # fmt: skip
        for name in s.groups:
            yield Additive(
                network=name, gamma=s.relu_gamma, ladder=s.ladder, chains=s.chains, sweeps=s.sweeps, seed=s.seed
            )
        for gamma in s.gammas:
            yield Resolved(nbeta=s.nbeta, gamma=gamma, budget=s.budget, seed=s.seed)

    def run(self, job: Depth | Engine | Additive | Resolved, scratch: Scratch) -> Result:
        if isinstance(job, Depth):
            return Result(depth(job.width, job.rank, job.layers, job.ladder, job.chains, job.sweeps, job.seed))
        if isinstance(job, Engine):
            return Result([depth_by_engine(job.width, job.rank, job.layers, job.engine, job.budget, job.seed)])
        if isinstance(job, Additive):
            return Result(additive(job.network, job.gamma, job.ladder, job.chains, job.sweeps, job.seed))
        return Result([resolved(job.nbeta, job.gamma, job.budget, job.seed)])

    def report(self, results: Results, folder: Path) -> Sequence[Path]:
        """`depth.csv`, `relu.csv`, `gamma.csv`, two figures and `README.md`."""
        from .report import write

        return write(results.table, results.provenance(), folder)


STUDY = Coefficients()
