"""Error against time on deep linear networks whose λ is known."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truth.case import default_resolution
from truth.network import Network
from truth.references import ReferenceBook

import basinscope as bs

from .job import Job, Result
from .networks import saved
from .tools import FIRST, OURS, SECOND, Tool

BATCH = 128


@dataclass(frozen=True)
class Truth:
    """A network with its answers."""

    case: Network
    land: bs.Landscape
    problem: str
    coefficient: float  # λ
    nbeta: float
    gamma: float
    stiffest: float  # nβ·h_max + γ

    @property
    def name(self) -> str:
        return self.case.name


@dataclass(frozen=True)
class Plan:
    """A tool and its settings; a setting may depend on the network."""

    tool: Tool
    label: str
    settings: Mapping[str, Any]

    def job(self, truth: Truth) -> Job:
        return Job(
            truth.problem,
            {name: value(truth) if callable(value) else value for name, value in self.settings.items()},
        )


@dataclass(frozen=True)
class Score:
    """One estimate beside λ and, where the localiser is known and positive, λ_t at its own resolution."""

    tool: str
    label: str
    network: str
    parameters: int
    coefficient: float
    reference: float
    value: float
    cpu: float
    wall: float
    verdict: str
    remark: str

    @property
    def error(self) -> float:
        """Relative to λ."""
        return abs(self.value / self.coefficient - 1)

    @property
    def sampling_error(self) -> float:
        """Relative to λ_t."""
        return abs(self.value / self.reference - 1)


def _informed(steps: int, fraction: float) -> dict[str, Any]:
    """SGLD at Watanabe's temperature with our γ and a step size from the true curvature; half is burn-in."""
    return {
        "nbeta": lambda truth: truth.nbeta,
        "gamma": lambda truth: truth.gamma,
        "step_size": lambda truth: fraction / truth.stiffest,
        "batch_size": BATCH,
        "chains": 4,
        "draws": steps // 2,
        "burn_in": steps // 2,
    }


README = {"step_size": 1e-3, "nbeta": 30.0, "chains": 4, "draws": 200}
PLANS = (
    Plan(OURS, "nothing set", {}),
    Plan(OURS, "γ = 1", {"gamma": 1.0}),
    Plan(FIRST, "defaults", {"batch_size": BATCH}),
    Plan(
        FIRST,
        "introduction notebook",
        {"step_size": 4e-4, "gamma": 100.0, "batch_size": 256, "nbeta": 256 / math.log(256), "chains": 3, "draws": 100},
    ),
    Plan(SECOND, "README, SGLD", README),
    Plan(SECOND, "README, RMSProp-SGLD", {**README, "sampling_method": "rmsprop_sgld"}),
    *(Plan(FIRST, f"nβ = n/log n, {steps:,} steps", _informed(steps, 0.1)) for steps in (500, 2000, 8000)),
    Plan(FIRST, "nβ = n/log n, 8,000 steps five times as large", _informed(8000, 0.5)),
)


def truths(cases: list[Network], folder: Path) -> Iterator[Truth]:
    for number, case in enumerate(cases):
        land = case.landscape()
        nbeta, gamma = default_resolution(land)
        sharpest = bs.operator_norm(land, matrix="hessian", progress=False).value
        coefficient = case.coefficient()
        assert coefficient is not None
        problem = saved(land, folder, f"network {number}")
        yield Truth(case, land, problem, float(coefficient), nbeta, gamma, nbeta * sharpest + gamma)


def measure(plan: Plan, networks: list[Truth], book: ReferenceBook) -> list[Score]:
    """The plan on every network."""
    jobs = [plan.job(truth) for truth in networks]
    pairs = zip(networks, jobs, plan.tool.run(jobs), strict=True)
    return [_score(plan, truth, job, result, book) for truth, job, result in pairs]


def _score(plan: Plan, truth: Truth, job: Job, result: Result, book: ReferenceBook) -> Score:
    known = {**job.settings, **result.details}
    nbeta, gamma = known.get("nbeta"), known.get("gamma")
    reference = book.lookup(truth.case, truth.land, nbeta, gamma).value if nbeta and gamma else math.nan
    return Score(
        plan.tool.label,
        plan.label,
        truth.name,
        truth.land.dimension,
        truth.coefficient,
        reference,
        result.value,
        result.cpu,
        result.wall,
        result.details.get("verdict", ""),
        result.remark,
    )
