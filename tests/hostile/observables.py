"""Hostile observables of a posterior, and posteriors that know too little."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch

import basinscope as bs
from hostile.arguments import LAND, NET
from hostile.networks import R, X
from hostile.outcomes import Case, refused, works

NAN = float("nan")
QUIET = {"progress": False}


@cache
def posterior() -> bs.Posterior:
    return bs.posterior(LAND, sampler="hmc", chains=4, draws=32, budget=1, **QUIET)


def observed(function: Any) -> Callable[[Path], Any]:
    return lambda _: posterior().observe(function, **QUIET)


class Growing:
    """An observable that returns more at every call."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, parameters: Any) -> torch.Tensor:
        self.calls += 1
        return torch.zeros(3 + self.calls // 10)


class Late:
    """An observable that is not finite after some calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, parameters: Any) -> torch.Tensor:
        self.calls += 1
        return torch.full((3,), NAN if self.calls > 20 else 0.0)


_FUNCTIONS: dict[str, Any] = {
    "NaN": lambda p: torch.full((3,), NAN), "infinity": lambda p: torch.tensor([float("inf")]), "NaN after some draws": Late(), "another shape after some draws": Growing(), "text": lambda p: "x", "a float": lambda p: 1.0,
    "nothing": lambda p: None, "no entries": lambda p: torch.ones(0), "complex numbers": lambda p: torch.ones(3, dtype=torch.complex64), "an exception": lambda p: 1 / 0, "a name that is not there": lambda p: p["nothing"], "no arguments": lambda: torch.ones(3),
    "a list of tensors": lambda p: [torch.ones(3)], "data of another width": (X[:, :2], R), "data of NaN": (X.double() * NAN, R.double()), "text for data": "abc", "a number for data": 3, "a model for data": NET, "no samples": (X[:0], R[:0]),
}  # fmt: skip

_CALLS: dict[str, Callable[[Path], Any]] = {
    "influence of None": lambda _: bs.influence(None), "influence of a model": lambda _: bs.influence(NET), "influence with an unknown method": lambda _: bs.influence(posterior(), method="x", **QUIET), "influence on text": lambda _: bs.influence(posterior(), "abc", **QUIET),
    "a kernel of None": lambda _: bs.loss_kernel(None), "a kernel of text": lambda _: bs.loss_kernel("abc"), "covariance of None": lambda _: bs.covariance(None, None), "covariance with NaN": lambda _: bs.covariance(posterior(), lambda p: torch.full((3,), NAN), **QUIET),
    "susceptibilities of a list": lambda _: bs.susceptibilities(LAND, ["weight"], {"a": (X, R)}, **QUIET), "susceptibilities without probes": lambda _: bs.susceptibilities(LAND, {"a": "weight"}, {}, **QUIET),
    "susceptibilities of parts that are not there": lambda _: bs.susceptibilities(LAND, {"a": "nothing"}, {"b": (X.double(), R.double())}, **QUIET), "a posterior of one draw": lambda _: bs.posterior(LAND, draws=1), "a posterior of None": lambda _: bs.posterior(None),
    "a posterior and settings of its own": lambda _: bs.llc(posterior(), gamma=1.0), "a setting that is none": lambda _: bs.posterior(LAND, gama=1.0),
    "a posterior kept where a file is": lambda folder: ((folder / "run.zarr").write_text("x"), posterior().save(folder / "run.zarr")), "a posterior kept nowhere": lambda _: posterior().save(""),
}  # fmt: skip

CASES: list[Case] = [
    *(refused(f"observable: {name}", observed(function)) for name, function in _FUNCTIONS.items()),
    *(refused(name, call) for name, call in _CALLS.items()),
    works("an observable of whole numbers", lambda _: bool(torch.as_tensor(observed(lambda p: torch.ones(3, dtype=torch.int64))(_).mean).eq(1).all())),
]  # fmt: skip
