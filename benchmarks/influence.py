"""Influences and susceptibilities of a linear regression beside exact ones: error against cost, ours and those of
devinterp 2.0.1.

    python benchmarks/influence.py     writes benchmarks/results/influence.md and .csv

A pass over all data counts as one for each chain, whether it takes a gradient or only losses.
"""

from __future__ import annotations

import argparse
import math
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

import ledger
import numpy as np
import torch
from samplers.counting import counted
from samplers.elsewhere import TWO, answer

import basinscope as bs
from basinscope.files import write_whole

RESULTS = Path(__file__).parent / "results"
SAMPLES, INPUTS = 100, 5
GAMMA = 1.0
PASSES = (400, 1600, 6400)
DRAWS = (16, 64, 256)  # of 48 chains, ours
METHODS: tuple[Literal["draws", "controlled"], ...] = ("draws", "controlled")
QUANTITIES = ("influence", "susceptibilities")
STEPS = (0.5, 0.1)  # of devinterp, in units of the inverse of the stiffest curvature


@dataclass(frozen=True)
class Row:
    """The error of one matrix of influences, relative to the exact one."""

    method: str
    passes: float
    seed: int
    error: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="write the page anew from the file of rows")
    parser.add_argument("--seeds", type=int, default=2, metavar="K", help="of each run")
    parser.add_argument("--out", type=Path, default=RESULTS / "influence.md", metavar="FILE", help="where to write")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    kept = options.out.with_suffix(".csv")
    if not options.page:
        kept.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            for row in measured(Path(folder) / "problem.npz", options.seeds):
                print(f"{row.method}, {row.passes:,.0f} passes: {row.error:.1%} off", flush=True)
                ledger.add(kept, row)
    rows = ledger.read(kept, Row)
    write_whole(options.out, page(rows).encode())
    print(f"wrote {options.out}")
    return 0


def measured(path: Path, seeds: int) -> Iterator[Row]:
    """Rows of both tools, ours first."""
    land, exact = problem()
    pulls = susceptible(exact)
    x, y = land.samples.inputs, land.samples.target
    np.savez(path, kind="linear", powers=np.array([], dtype=int), inputs=x.numpy(), target=y.numpy(), exact=exact,
             susceptibilities=pulls, **{"weight weight": land.parameters["weight"].numpy()})  # fmt: skip
    nbeta = float(land.n)
    for draws, seed in product(DRAWS, range(seeds)):
        given: dict[str, Any] = {"nbeta": nbeta, "gamma": GAMMA, "sampler": "hmc", "chains": 48, "draws": draws,
                                 "budget": bs.Nominal(0.2), "seed": seed, "progress": False}  # fmt: skip
        for method in METHODS:
            with counted() as count:
                found = bs.influence(land, method=method, **given)
            yield Row(f"bs.influence, {method}", count.gradients, seed, _apart(found.values, -exact))
            with counted() as count:
                found = bs.susceptibilities(land, {"whole": "*"}, (x, y), method=method, **given)
            yield Row(f"bs.susceptibilities, {method}", count.gradients, seed, _apart(found.values[0], pulls))
    stiffest = nbeta * float(torch.linalg.eigvalsh(x.T @ x / len(x))[-1]) + GAMMA
    for share, passes, seed in product(STEPS, PASSES, range(seeds)):
        settings = {"passes": passes, "seed": seed, "nbeta": nbeta, "gamma": GAMMA, "step_size": share / stiffest}
        for quantity in QUANTITIES:
            yield Row(f"devinterp 2.0.1 {quantity}, ε = {share:g}/stiffest", passes, seed,
                      answer(TWO, f"devinterp_2_{quantity}", path, settings))  # fmt: skip


def _apart(found: np.ndarray, exact: np.ndarray) -> float:
    """The distance relative to the exact one's norm."""
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


def susceptible(covariances: np.ndarray) -> np.ndarray:
    """−Cov(L_n, ℓ_i − L_n) from the covariances of all losses: the whole of the weights as the only part.

    Examples:
        >>> susceptible(np.array([[2.0, 0.0], [0.0, 4.0]])).tolist()
        [0.5, -0.5]
    """
    rows: np.ndarray = covariances.mean(0)
    return rows.mean() - rows


def problem() -> tuple[bs.Landscape, np.ndarray]:
    """A regression at its fit, and Cov(ℓ_i, ℓ_j) = r_i r_j x_iᵀΣx_j + ½ (x_iᵀΣx_j)²."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(SAMPLES, INPUTS, generator=generator) * torch.linspace(0.3, 1.5, INPUTS)
    y = x.sum(1, keepdim=True) + 0.5 * torch.randn(SAMPLES, 1, generator=generator)
    net = torch.nn.Linear(INPUTS, 1, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.linalg.lstsq(x.double(), y.double()).solution.T)
    land = bs.Landscape(net, "mse", (x, y))
    residual = (y - net(x)).detach().double()
    sigma = torch.linalg.inv(x.double().T @ x.double() + GAMMA * torch.eye(INPUTS))
    between = x.double() @ sigma @ x.double().T
    return land, (residual @ residual.T * between + 0.5 * between**2).numpy()


def price(rows: Sequence[Row], method: str) -> float:
    """Passes that an error of 1 would take if errors fell with the root of passes all the way: the mean of error² times
    passes, over the runs that took the most."""
    own = sorted((row for row in rows if row.method == method), key=lambda row: row.passes)
    most = own[-len({row.seed for row in own}) :]
    return float(np.mean([row.error**2 * row.passes for row in most]))


def longest(rows: Sequence[Row], method: str) -> tuple[float, float]:
    """Passes and error of the longest runs, medians over seeds."""
    own = sorted((row for row in rows if row.method == method), key=lambda row: row.passes)
    most = own[-len({row.seed for row in own}) :]
    return float(np.median([row.passes for row in most])), float(np.median([row.error for row in most]))


def page(rows: Sequence[Row]) -> str:
    """Markdown, with the answer first."""
    return "\n".join([
        "# Influence and susceptibilities: error against cost", "",
        " ".join(answered(rows, quantity) for quantity in QUANTITIES) + " Ours takes some thousands of passes before "
        "its first draw.", "",
        f"A linear regression of {INPUTS} parameters on {SAMPLES} samples, nβ = n, γ = {GAMMA:g}: the covariances of "
        "all losses are known in closed form. The error is that of the whole matrix of influences, or of the "
        "susceptibilities of all weights to each sample, relative to its norm. A pass over all data counts as one for "
        "each chain, whether it takes a gradient or only losses. Curvature, tuning and convergence count for ours; "
        "devinterp is told the stiffest curvature. The chains on all weights that its susceptibilities walk besides "
        "are not counted. Passes at equal error are compared by error² times passes of the longest runs.", "",
        *(line for quantity in QUANTITIES for line in _table(rows, quantity)),
        "## Where the numbers come from", "",
        f"- basinscope {bs.__version__}, torch {torch.__version__}, Python {platform.python_version()}; devinterp "
        "2.0.1 from PyPI in an environment of its own", "- `python benchmarks/influence.py`", "",
    ])  # fmt: skip


def answered(rows: Sequence[Row], quantity: str) -> str:
    """Ours beside devinterp's, each at its best."""
    names = [name for name in dict.fromkeys(row.method for row in rows) if quantity in name]
    ours = min((name for name in names if name.startswith("bs.")), key=lambda name: price(rows, name))
    theirs = min((name for name in names if not name.startswith("bs.")), key=lambda name: price(rows, name))
    ratio = price(rows, theirs) / price(rows, ours)
    return (
        f"With {longest(rows, ours)[0]:,.0f} passes over the data `{ours}` is {longest(rows, ours)[1]:.1%} off. The "
        f"better of two step sizes of devinterp 2.0.1 is {longest(rows, theirs)[1]:.1%} off with "
        f"{longest(rows, theirs)[0]:,.0f}, and would take {ratio:.2g} times as many passes as ours for the same error, "
        "if its errors went on falling with the root of them."
    )


def _table(rows: Sequence[Row], quantity: str) -> list[str]:
    names = [name for name in dict.fromkeys(row.method for row in rows) if quantity in name]
    return [f"## {quantity.capitalize()}", "", "| method | passes | error, median of seeds |", "|---|---:|---:|",
            *(line for name in names for line in _lines(rows, name)), ""]  # fmt: skip


def _lines(rows: Sequence[Row], name: str) -> Iterator[str]:
    own = sorted((row for row in rows if row.method == name), key=lambda row: row.passes)
    seeds = len({row.seed for row in own})
    for start in range(0, len(own), seeds):
        group = own[start : start + seeds]
        error, passes = (float(np.median([getattr(row, key) for row in group])) for key in ("error", "passes"))
        shown = f"{error:.1%}" if math.isfinite(error) else "—"
        yield f"| {name} | {passes:,.0f} | {shown} |"


if __name__ == "__main__":
    sys.exit(main())
