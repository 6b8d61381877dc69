"""Cases that hypothesis makes: arguments, landscapes and formulas at random, with what must come out of them."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

import basinscope as bs
from hostile.arguments import EIGENVALUES, LAND, truth
from hostile.landscapes import HMC, basin, quadrature, spectrum
from hostile.mutations import KINDS, file_case, store_case
from hostile.outcomes import CLEAR, RIGHT, Case, honest

NAN, INF = float("nan"), float("inf")
BARRIER = 5.0  # nats that few chains pass

_ODD: list[Any] = [
    None, True, False, "", "1", "a", "nan", b"1", (), [], {}, {"*": 1.0}, [1.0], (1, 2), object(), 1j, NAN, INF, -INF, 0, -1, 1.5, -0.0, 2**31, 2**63, 2**64, -(2**63), 10**400,
    1e300, 1e-300, 5e-324, np.float32(1), np.float64(NAN), np.int64(3), np.int8(-1), np.bool_(True), np.array([1.0]), np.array(2.0), torch.tensor(1.0), torch.tensor([1.0, 2.0]),
    torch.tensor(NAN), Fraction(1, 3), int, len, "auto", "exact", "hmc", "fisher", "hessian", slice(2), range(3), "\0", "é", "../x",
]  # fmt: skip
# Numbers are small, or so large that they must be refused: two million draws that were asked for are no hang.
odd = st.one_of(st.sampled_from(_ODD), st.integers(-500, 500), st.floats(-500, 500), st.text(max_size=5))

_LLC = ["nbeta", "gamma", "sampler", "chains", "draws", "step_size", "batch_size", "budget", "seed", "burn_in", "rtol"]
_DECAYED = {"soft_rank": bs.soft_rank, "log_det": bs.log_det, "tic": bs.tic, "gap": bs.gap}
_OPTIONS = ["matrix", "method", "rtol", "seed"]


def _spelled(options: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}"[:60] for name, value in options.items())


def _llc(options: dict[str, Any]) -> Case:
    """λ̂ with one or two odd settings: right, refused, or not ok."""

    def attempt(_: Path) -> Any:
        settings = {"chains": 2, "draws": 32, "budget": 0.2, "sampler": "hmc", "progress": False, **options}
        measured = bs.llc(LAND, **settings)
        return measured, truth(measured.diagnostics["nbeta"], measured.diagnostics["gamma"])

    return honest(f"llc: {_spelled(options)}", attempt)


def _decayed(name: str, decay: Any, options: dict[str, Any]) -> Case:
    """A measure with an odd weight decay; a soft rank of the Hessian is known at any."""

    def attempt(_: Path) -> Any:
        estimate = _DECAYED[name](LAND, weight_decay=decay, progress=False, **options)
        if isinstance(estimate, list):  # of a sequence of weight decays
            return estimate[0], float(estimate[0])
        if name != "soft_rank" or "order" in options or options.get("matrix") == "covariance":
            return estimate, float(estimate)
        given = float(decay["*"] if isinstance(decay, dict) else decay)
        return estimate, float((EIGENVALUES / (EIGENVALUES + given)).sum())

    return honest(f"{name}: {_spelled({'weight_decay': decay, **options})}", attempt)


def _plain(name: str, call: Callable[[], Any]) -> Case:
    """A call that must be refused in a sentence or do something."""
    return Case(name, lambda _: (call(), None)[1], (CLEAR, RIGHT))


def _exact(name: str, values: list[Any]) -> Case:
    return _plain(f"exact.{name}{tuple(values)!r}"[:90], lambda: getattr(bs.exact, name)(*values))


@st.composite
def arguments(draw: st.DrawFn) -> Case:
    """A public function with a few arguments that nobody should give."""
    kind = draw(st.sampled_from(["llc", "decay", "trace", "landscape", "exact"]))
    if kind == "llc":
        return _llc(draw(st.dictionaries(st.sampled_from(_LLC), odd, min_size=1, max_size=2)))
    if kind == "decay":
        decay = draw(st.one_of(odd, st.floats(1e-12, 1e12)))
        options = draw(st.dictionaries(st.sampled_from(_OPTIONS), odd, max_size=1))
        return _decayed(draw(st.sampled_from(sorted(_DECAYED))), decay, options)
    if kind == "trace":
        measure = draw(st.sampled_from([bs.trace, bs.spectrum, bs.operator_norm]))
        names = [name for name in signature(measure).parameters if name not in ("land", "hessian_trace", "progress")]
        options = draw(st.dictionaries(st.sampled_from(names), odd, min_size=1, max_size=2))
        return _plain(f"{measure.__name__}: {_spelled(options)}", lambda: measure(LAND, **options))
    if kind == "landscape":
        method = draw(st.sampled_from(["restrict", "subset", "at", "relabel", "on"]))
        value = draw(odd)
        return _plain(f"land.{method}({value!r})"[:90], lambda: getattr(LAND, method)(value))
    name = draw(st.sampled_from(["deep_linear", "reduced_rank", "normal_crossing", "newton", "brieskorn", "regular"]))
    wanted = [entry for entry in signature(getattr(bs.exact, name)).parameters.values() if entry.default is entry.empty]
    small = st.one_of(odd, st.integers(-1, 5), st.lists(st.one_of(odd, st.integers(-1, 5)), max_size=4))
    return _exact(name, draw(st.lists(small, min_size=len(wanted), max_size=len(wanted))))


def _sizes(least: int, most: int) -> st.SearchStrategy[list[float]]:
    """Eigenvalues over twelve decades, zeros and equal ones among them."""
    size = st.one_of(st.just(0.0), st.just(1.0), st.floats(-6, 6).map(lambda power: 10**power))
    return st.lists(size, min_size=least, max_size=most)


@st.composite
def quadratics(draw: st.DrawFn) -> Case:
    """A quadratic basin, turned and moved, at any resolution: λ̂ by formula."""
    eigenvalues = torch.tensor(draw(_sizes(1, 5)), dtype=torch.float64)
    dtype = draw(st.sampled_from([torch.float64, torch.float64, torch.float32]))
    gamma = 10 ** draw(st.floats(-2, 4))
    n = draw(st.sampled_from([3, 4, 30, 400, 10_000]))
    where = draw(st.lists(st.floats(-10, 10, width=16), min_size=len(eigenvalues), max_size=len(eigenvalues)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    turn = torch.linalg.qr(torch.randn(len(where), len(where), dtype=torch.float64, generator=generator))[0]

    def energy(w: torch.Tensor) -> torch.Tensor:
        centre = torch.tensor(where, dtype=w.dtype)
        along = turn.to(w.dtype).T @ (w - centre)
        return 0.5 * (eigenvalues.to(w.dtype) * along**2).sum()

    def attempt(_: Path) -> Any:
        measured = bs.llc(basin(energy, where, n, dtype), **{**HMC, "gamma": gamma})
        return measured, spectrum(eigenvalues)(measured.diagnostics["nbeta"], gamma)

    return honest(f"quadratic {eigenvalues.tolist()} at {where}, γ = {gamma:.3g}, n = {n}, {dtype}", attempt)


@st.composite
def curves(draw: st.DrawFn) -> Case:
    """A polynomial of one or two weights, at a minimum, on a slope, a saddle or a ridge: λ̂ by quadrature over all, or
    over the basin of w* where another lies behind a barrier, which the page on trust says that chains do not see."""
    dimension = draw(st.integers(1, 2))
    term = st.tuples(*[st.integers(0, 4)] * dimension, st.sampled_from([-0.3, 0.05, 0.3, 1.0, 3.0]))
    terms = draw(st.lists(term, min_size=1, max_size=3))
    where = draw(st.lists(st.sampled_from([0.0, 0.0, 0.5, -1.0]), min_size=dimension, max_size=dimension))
    gamma = draw(st.sampled_from([1.0, 10.0, 100.0]))

    def energy(w: torch.Tensor) -> torch.Tensor:
        inside = sum(c * torch.stack([w[i] ** k for i, k in enumerate(powers)]).prod(0) for *powers, c in terms)
        # Bounded below by the last part, whatever the first is.
        return inside + 0.1 * sum(w[i] ** 6 for i in range(dimension))

    def attempt(_: Path) -> Any:
        measured = bs.llc(basin(energy, where, 100), **{**HMC, "gamma": gamma})
        nbeta = measured.diagnostics["nbeta"]
        truths = [quadrature(energy, where, nbeta, gamma, barrier) for barrier in (None, BARRIER)]
        return measured, min(truths, key=lambda truth: abs(float(measured) - truth))

    return honest(f"polynomial {terms} at {where}, γ = {gamma:g}", attempt)


@st.composite
def formulas(draw: st.DrawFn) -> Case:
    """A text for `exact.polynomial`: pieces of formulas in any order, or a normal crossing, whose λ is a theorem."""
    if draw(st.booleans()):
        pieces = [
            "x",
            "y",
            "z",
            "**",
            "*",
            "+",
            "-",
            "(",
            ")",
            "/",
            "^",
            "2",
            "4",
            "3/2",
            "1e3",
            " ",
            "0",
            "99",
            ",",
            "_",
            ".",
            "__import__",
            "os.system('touch trap')",
            "'",
            '"',
            "[",
            "lambda",
            "\n",
            "≤",
        ]
        text = "".join(draw(st.lists(st.sampled_from(pieces), min_size=1, max_size=9)))
        return _plain(f"polynomial({text!r})", lambda: bs.exact.polynomial(text))
    powers = draw(st.lists(st.integers(0, 4), min_size=1, max_size=3).filter(any))
    text = "*".join(f"x{i}**{2 * k}" for i, k in enumerate(powers) if k)

    def judge(bound: Any) -> str:
        known = bs.exact.normal_crossing([k for k in powers if k])
        return "" if (bound.value, bound.multiplicity) == known and bound.exact else f"{bound}, not {known}"

    return Case(f"polynomial({text!r})", lambda _: bs.exact.polynomial(text), (RIGHT,), judge)


FUZZERS: dict[str, tuple[st.SearchStrategy[Case], int]] = {
    "arguments": (arguments(), 400),
    "quadratic basins": (quadratics(), 60),
    "polynomial losses": (curves(), 40),
    "formulas": (formulas(), 300),
    **{
        f"files: {kind}": (st.builds(file_case, st.just(kind), st.randoms(use_true_random=False)), 300)
        for kind in KINDS
    },
    "files of a store, its index among them": (st.builds(store_case, st.randoms(use_true_random=False)), 150),
}
"""Strategies by what they attack, with how many cases a run of the tests makes of each."""
