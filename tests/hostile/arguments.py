"""Hostile arguments of the public functions."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import basinscope as bs
from hostile.networks import R, X, Y
from hostile.outcomes import GOOD, Case, honest, refused, right, works

NAN, INF = float("nan"), float("inf")


def _fitted() -> bs.Landscape:
    """A linear regression at its minimum: λ̂ is known exactly."""
    design = torch.cat([X, torch.ones(len(X), 1)], 1).double()
    weights = torch.linalg.lstsq(design, R.double()).solution
    net = nn.Linear(4, 3).double()
    with torch.no_grad():
        net.weight.copy_(weights[:4].T)
        net.bias.copy_(weights[4])
    return bs.Landscape(net, "mse", (X.double(), R.double()))


LAND = _fitted()
NET = nn.Linear(4, 3)
EIGENVALUES = torch.linalg.eigvalsh(
    torch.cat([X, torch.ones(len(X), 1)], 1).double().T.cov(correction=0) * 0
    + torch.cat([X, torch.ones(len(X), 1)], 1).double().T @ torch.cat([X, torch.ones(len(X), 1)], 1).double() / len(X)
).repeat(3)
QUIET = {"progress": False}


def truth(nbeta: float, gamma: float) -> float:
    """λ̂ of the regression: ½ Σ nβσ/(nβσ + γ)."""
    return float((nbeta * EIGENVALUES / (nbeta * EIGENVALUES + gamma)).sum()) / 2


def llc(**options: Any) -> Callable[[Path], Any]:
    """λ̂ and its exact value."""

    def attempt(_: Path) -> Any:
        measured = bs.llc(LAND, **{"chains": 4, "draws": 64, "budget": 1, "sampler": "hmc", **QUIET, **options})
        return measured, truth(measured.diagnostics["nbeta"], measured.diagnostics["gamma"])

    return attempt


def rank(**options: Any) -> Callable[[Path], Any]:
    return lambda _: bs.soft_rank(LAND, **{**QUIET, **options})


def scaled(function: Callable[..., Any], size: float) -> Callable[[Path], Any]:
    """A trace function of a regression on inputs of any size, and its exact value by singular values."""

    def attempt(_: Path) -> Any:
        measured = function(
            bs.Landscape(nn.Linear(4, 3).double(), "mse", (X.double() * size, R.double())), weight_decay=0.1, **QUIET
        )
        steep = size**2 * torch.linalg.svdvals(X.double() - X.double().mean(0)) ** 2 / len(X)
        within = torch.cat([X.double(), torch.ones(len(X), 1) / size], 1)
        sizes = size**2 * torch.linalg.svdvals(within) ** 2 / len(X)
        if size > 1:  # the least is below rounding of the others: the determinants' quotient
            sizes = torch.cat([sizes[:4], steep.prod()[None] / sizes[:4].prod()])
        truth = (sizes / (sizes + 0.1)).sum() if function is bs.soft_rank else torch.log1p(sizes / 0.1).sum() / 2
        return measured, 3 * float(truth)

    return attempt


def _spelled(options: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in options.items())


_LLC_REFUSED: list[dict[str, Any]] = [
    {"gamma": -1}, {"gamma": 0}, {"gamma": INF}, {"gamma": NAN}, {"gamma": "1"}, {"gamma": True}, {"gamma": [1]},
    {"gamma": 1 + 0j}, {"nbeta": -1}, {"nbeta": 0}, {"nbeta": NAN}, {"nbeta": "a"}, {"chains": 1}, {"chains": 0}, {"chains": -3},
    {"chains": 2.5}, {"chains": "4"}, {"chains": NAN}, {"chains": INF}, {"chains": 10**9}, {"draws": 0}, {"draws": 15}, {"draws": 1e300},
    {"draws": 10**12, "chains": 2}, {"step_size": 0}, {"step_size": -1}, {"step_size": NAN}, {"batch_size": 8},
    {"sampler": "minibatch", "batch_size": 0}, {"sampler": "minibatch", "batch_size": 1.5},
    {"sampler": "minibatch", "draws": 100, "chains": None}, {"burn_in": 1}, {"burn_in": -0.1}, {"burn_in": NAN},
    {"burn_in": True}, {"burn_in": "a"}, {"burn_in": 0.999}, {"burn_in": 0.8, "draws": 16, "chains": 2}, {"rtol": 0}, {"rtol": -1}, {"rtol": NAN}, {"budget": 0},
    {"budget": -1}, {"budget": INF}, {"budget": "x"}, {"seed": 2**80}, {"seed": 1e300}, {"seed": 1.5}, {"seed": "a"}, {"seed": None},
    {"seed": True}, {"seed": -(2**70)}, {"sampler": "x"}, {"sampler": None}, {"sampler": ["hmc"]}, {"sampler": "mala", "batch_size": 8},
    {"gamma": 1e300}, {"gamma": 1e-300}, {"nbeta": 1e300},
]  # fmt: skip

_LLC_HONEST: list[dict[str, Any]] = [
    {"gamma": np.float32(1)}, {"gamma": np.float64(2)}, {"gamma": 1e12}, {"gamma": 1e-12}, {"nbeta": 1e-300}, {"nbeta": 1e9},
    {"nbeta": Fraction(7, 2)}, {"chains": 4.0}, {"chains": np.int64(4)}, {"draws": 64.0}, {"draws": np.int32(64)},
    {"step_size": 1e6}, {"burn_in": np.float32(0.5)}, {"burn_in": 0},
    {"rtol": 1e9}, {"budget": 1e-9}, {"budget": np.float32(1)}, {"seed": np.int64(3)}, {"seed": 1.0}, {"seed": -1},
    {"sampler": "sgld", "step_size": 1e9, "draws": 50}, {"sampler": "sgld", "step_size": 1e-9, "draws": 50},
    {"sampler": "mala", "step_size": 1e-9, "draws": 50}, {"sampler": "mala", "step_size": 1e9, "draws": 50},
]  # fmt: skip

_LLC = [
    *(refused(f"llc: {_spelled(options)}", llc(**options)) for options in _LLC_REFUSED),
    *(honest(f"llc: {_spelled(options)}", llc(**options)) for options in _LLC_HONEST),
    refused("llc: seed=2**63", llc(seed=2**63)),
    honest("llc: the largest seed", llc(seed=10**18 - 1)),
]

_WITH_DECAY = {"soft_rank": bs.soft_rank, "tic": bs.tic, "gap": bs.gap, "log_det": bs.log_det}
_BAD_DECAY: list[Any] = [
    0,
    -1,
    NAN,
    INF,
    "a",
    None,
    True,
    [],
    {"nomatch": 1},
    {"*": torch.ones(3)},
    {"*": -1},
    {"*": NAN},
]
_LANDLESS: dict[str, Any] = {
    "llc": bs.llc, "trace": bs.trace, "spectrum": bs.spectrum, "operator_norm": bs.operator_norm, "waic": bs.waic,
    "loo": bs.loo, "wbic": bs.wbic, "fluctuation": bs.fluctuation, "criteria": bs.criteria, "measure": bs.measure,
}  # fmt: skip

_MEASURES = [
    *(
        refused(f"{name}: weight_decay={decay!r}", lambda _, f=function, d=decay: f(LAND, weight_decay=d, **QUIET))
        for name, function in _WITH_DECAY.items()
        for decay in _BAD_DECAY
    ),
    *(
        refused(f"{name} of {what}", lambda _, f=function, w=value: f(w, weight_decay=0.1))
        for name, function in _WITH_DECAY.items()
        for what, value in (("None", None), ("a model", NET))
    ),
    *(
        refused(f"{name} of {what}", lambda _, f=function, w=value: f(w))
        for name, function in _LANDLESS.items()
        for what, value in (("None", None), ("a model", NET), ("text", "abc"))
    ),
    *(
        refused(f"{name}: {_spelled(options)}", lambda _, f=function, o=options: f(LAND, **{"budget": 0.5, **QUIET, **o}))
        for name, function in (("waic", bs.waic), ("loo", bs.loo), ("wbic", bs.wbic), ("fluctuation", bs.fluctuation), ("criteria", bs.criteria), ("measure", bs.measure))
        for options in ({"seed": "a"}, {"seed": 2**70}, {"seed": 1.5}, {"budget": -1}, {"budget": "x"})
    ),
    refused("soft_rank: an unknown method", rank(weight_decay=0.1, method="zzz")),
    refused("soft_rank: an unknown matrix", rank(weight_decay=0.1, matrix="zzz")),
    refused("soft_rank: order 3", rank(weight_decay=0.1, order=3)),
    *(
        refused(f"soft_rank by Lanczos: {_spelled(options)}", rank(weight_decay=0.1, method="lanczos", **options))
        for options in ({"rtol": 0}, {"rtol": -1}, {"rtol": NAN}, {"rtol": "a"}, {"seed": "a"}, {"seed": 2**70}, {"seed": 0.5})
    ),
    *(refused(f"soft_rank, exactly: rtol={value!r}", rank(weight_decay=0.1, rtol=value)) for value in (-1, NAN, "a", torch.tensor([1.0, 2.0]))),
    works("spectrum: rtol as a fraction of whole numbers", lambda _: bool(torch.isfinite(torch.as_tensor(bs.spectrum(LAND, rtol=Fraction(1, 3), progress=False).largest)).all())),
    right("soft_rank: weight decay as NumPy's float", rank(weight_decay=np.float32(0.5)), float((EIGENVALUES / (EIGENVALUES + 0.5)).sum())),
    right("soft_rank: weight decay of 1e300", rank(weight_decay=1e300), 0.0),
    honest("soft_rank: weight decay of 1e-300", lambda _: (rank(weight_decay=1e-300)(_), 15.0)),
    *(honest(f"{name} of inputs of size {size:g}", scaled(function, size), rtol=1e-3) for size in (1e-30, 1e3, 1e7, 1e15) for name, function in (("soft_rank", bs.soft_rank), ("log_det", bs.log_det))),
    refused("gap: held out of another network", lambda _: bs.gap(LAND, weight_decay=0.1, held_out=bs.Landscape(nn.Linear(4, 2), "mse", (X, R[:, :2])))),
    refused("gap: held out as a number", lambda _: bs.gap(LAND, weight_decay=0.1, held_out=3)),
    refused("gap: an unknown method", lambda _: bs.gap(LAND, weight_decay=0.1, method="z")),
    *(
        refused(f"trace: {_spelled(options)}", lambda _, o=options: bs.trace(LAND, **{**QUIET, **o}))
        for options in ({"rtol": 0}, {"rtol": "a"}, {"rtol": NAN}, {"max_products": 0}, {"max_products": "a"}, {"memory": 0}, {"memory": -5}, {"memory": "a"}, {"matrix": "x"}, {"seed": "a"}, {"seed": 2**70})
    ),
    *(
        refused(f"spectrum: {_spelled(options)}", lambda _, o=options: bs.spectrum(LAND, **o))
        for options in ({"seed": "a"}, {"seed": 2**70}, {"matrix": "z"})
    ),
    refused("measure: weight_decay=-1", lambda _: bs.measure(LAND, weight_decay=-1)),
    refused("measure: nbeta='a'", lambda _: bs.measure(LAND, nbeta="a")),
]  # fmt: skip

_ARRAYS: list[tuple[str, Any]] = [
    ("one draw", np.zeros((1, 5))), ("one axis", np.zeros(5)), ("NaN", np.full((4, 100, 5), NAN)), ("infinite", np.full((4, 100, 5), INF)),
    ("text", "abc"), ("no samples", np.zeros((4, 100, 0))), ("no draws", np.zeros((4, 0, 5))), ("objects", np.array([[None] * 5] * 100)),
    ("complex", np.zeros((4, 100, 5), dtype=complex)),
]  # fmt: skip

_POINTWISE = [
    *(refused(f"{name} of log-likelihoods: {what}", lambda _, f=function, v=value: f(v)) for name, function in (("waic", bs.waic), ("loo", bs.loo)) for what, value in _ARRAYS),
    Case("loo of log-likelihoods with heavy tails", lambda _: (bs.loo(np.random.default_rng(0).standard_cauchy((4, 250, 5)) * 10), NAN), GOOD, lambda _: "it is ok"),
    right("waic of constant log-likelihoods", lambda _: bs.waic(np.full((4, 100, 5), -1.0)).value, 1.0),
    right("loo of constant log-likelihoods", lambda _: bs.loo(np.full((4, 100, 5), -1.0)).value, 1.0),
]  # fmt: skip

_LANDSCAPE = [
    refused("restrict: nothing", lambda _: LAND.restrict()),
    refused("restrict: a number", lambda _: LAND.restrict(3)),
    refused("restrict: no match", lambda _: LAND.restrict("zzz"), "weight"),
    refused("restrict: an open bracket", lambda _: LAND.restrict("[")),
    refused("subset: out of range", lambda _: LAND.subset([100])),
    refused("subset: negative", lambda _: LAND.subset([-1])),
    refused("subset: halves", lambda _: LAND.subset([0.5])),
    refused("subset: text", lambda _: LAND.subset("abc")),
    refused("subset: nothing", lambda _: LAND.subset(slice(5, 5))),
    refused("subset: two axes", lambda _: LAND.subset([[1, 2]])),
    refused("subset: None", lambda _: LAND.subset(None)),
    works("subset: a sample three times", lambda _: LAND.subset([1, 1, 1]).n == 3),
    refused("at: NaN", lambda _: LAND.at({"weight": torch.full((3, 4), NAN), "bias": torch.zeros(3)}), "NaN"),
    refused("at: a name is missing", lambda _: LAND.at({"weight": torch.zeros(3, 4)}), "bias"),
    refused("at: another shape", lambda _: LAND.at({"weight": torch.zeros(4, 3), "bias": torch.zeros(3)}), "shape"),
    refused("at: a number", lambda _: LAND.at(3)),
    refused("at: text", lambda _: LAND.at({"weight": "a", "bias": "b"})),
    works("at: NumPy's arrays", lambda _: LAND.at({"weight": np.zeros((3, 4)), "bias": np.zeros(3)}).dimension == 15),
    refused("at: complex", lambda _: LAND.at({"weight": torch.zeros(3, 4, dtype=torch.complex64), "bias": torch.zeros(3)})),
    refused("relabel: too few", lambda _: LAND.relabel(R[:5])),
    refused("relabel: None", lambda _: LAND.relabel(None)),
    refused("relabel: another width", lambda _: LAND.relabel(R[:, :1])),
    refused("relabel: NaN", lambda _: LAND.relabel(torch.full((24, 3), NAN))),
    refused("relabel: classes for a regression", lambda _: LAND.relabel(Y)),
    refused("relabel: an array of texts", lambda _: LAND.relabel(["a"] * 24)),
    refused("interval: a level of 2", lambda _: rank(weight_decay=0.1)(_).interval(2)),
    refused("interval: a level of NaN", lambda _: rank(weight_decay=0.1)(_).interval(NAN)),
    refused("interval: text", lambda _: rank(weight_decay=0.1)(_).interval("a")),
]  # fmt: skip

CASES = [*_LLC, *_MEASURES, *_POINTWISE, *_LANDSCAPE]
