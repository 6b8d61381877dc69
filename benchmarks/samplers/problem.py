"""A landscape of the leaderboard: what a sampler is given, and the answer that it is not given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from truth.case import Case
from truth.crossing import Crossing, Monomial
from truth.network import Network
from truth.references import ReferenceBook
from truth.regression import Regression

import basinscope as bs
from basinscope.curvature.dense import dense

from .superposition import Pair, Superposition

GAMMA = 1.0
CASES: tuple[Case, ...] = (
    Regression(10, 1e2),
    Regression(50, 1e4),
    Crossing((1, 1)),
    Crossing((2, 1)),
    Crossing((2, 2, 1)),
    Network((5, 5, 5), 2),
    Network((10, 5, 10), 3, "generic"),
    Network((6, 6, 6, 6), 2, size=3),
    Network((5, 4, 4, 5), 0, "origin"),
    Pair(),
)
_LOOKS = 20  # draws at which the curvature is measured


@dataclass(frozen=True, eq=False)
class Problem:
    """A landscape at one resolution.

    Attributes:
        case: which.
        land: the landscape at w*.
        nbeta, gamma: the resolution; n/log n and 1.
        stiffest: the largest eigenvalue of nβH + γI, at nine of ten draws of the posterior no larger: samplers that
            tune nothing are told it.
        reference: λ_t, the answer.
        path: a file of model and data that other environments can read.
    """

    case: Case
    land: bs.Landscape
    nbeta: float
    gamma: float
    stiffest: float
    reference: float
    path: Path

    @cached_property
    def n(self) -> int:
        return self.land.n


def problems(folder: Path, book: ReferenceBook, pattern: str = "") -> Iterator[Problem]:
    """The landscapes whose name contains the pattern."""
    for number, case in enumerate(CASES):
        if pattern not in case.name:
            continue
        land = case.landscape()
        nbeta = land.n / float(np.log(land.n))
        path = folder / f"{number}.npz"
        keep(land, path)
        answer = book.lookup(case, land, nbeta, GAMMA).value
        yield Problem(case, land, nbeta, GAMMA, stiffest(land, nbeta, GAMMA), answer, path)


def stiffest(land: bs.Landscape, nbeta: float, gamma: float) -> float:
    """The largest eigenvalue of nβH + γI that is met, at w* and along the posterior."""
    post = bs.posterior(land, nbeta=nbeta, gamma=gamma, sampler="hmc", budget=bs.Nominal(0.5), progress=False)
    points = [delta[0] for delta, _ in post.draws(_LOOKS)]
    origin = land.flatten(land.parameters)
    found = [nbeta * float(torch.linalg.eigvalsh(dense(land, "hessian"))[-1])]
    for delta in points:
        there = land.at(land.unflatten(origin + delta))
        found.append(nbeta * float(torch.linalg.eigvalsh(dense(there, "hessian"))[-1]))
    return float(np.quantile(found, 0.9)) + gamma


def keep(land: bs.Landscape, path: Path) -> None:
    """Model and data in a file: what the model is, and its weights in the order in which they are applied."""
    kinds = {Monomial: "monomial", Superposition: "superposition"}
    kind = kinds.get(type(land.module), "linear")
    weights = {f"weight {name}": tensor.numpy() for name, tensor in land.parameters.items()}
    x, y = land.samples.inputs, land.samples.target
    powers = np.array(getattr(land.module, "powers", ()), dtype=int)
    np.savez(path, kind=kind, powers=powers, inputs=x.numpy(), target=y.numpy(), **weights)
