"""What the study shows: a page whose first line is the answer, and the figures that decide it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from basinscope.figure_style import BULK, LINE, POINT, panels
from studies.common.files import csv_files, readme
from studies.common.pages import run_again

from .cases import valley_exact

ENGINE = "#e08214"
BLUES = ("#c6dbef", "#6baed6", "#08519c")
SHOWN = (1.0, 10.0, 100.0)  # γ of the pictures


def write(table: pd.DataFrame, origin: Mapping[str, Any], folder: Path) -> Sequence[Path]:
    """Tables, figures and page; their paths."""
    made = tables(table)
    pictures = [folder / "coefficients.png", folder / "gamma.png"]
    coefficients(made).savefig(pictures[0], dpi=130)
    local(made["gamma"]).savefig(pictures[1], dpi=130)
    return [*csv_files(made, folder), *pictures, readme(page(made, origin), folder)]


def tables(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The rows of each part; of ladders every T, with the error of λ̂ relative to λ."""
    columns = {
        "depth": ["layers", "parameters", "exact", "multiplicity", "t", "llc", "stderr"],
        "relu": ["network", "parameters", "exact", "multiplicity", "t", "llc", "stderr"],
        "engine": ["layers", "t", "llc", "stderr", "verdict"],
        "gamma": ["nbeta", "gamma", "exact", "llc", "stderr", "verdict"],
    }
    made = {}
    for part, names in columns.items():
        rows = table[table["part"] == part].reindex(columns=names).reset_index(drop=True)
        if part in ("depth", "relu"):
            rows["error"] = rows["llc"] / rows["exact"] - 1
        made[part] = rows
    return made


def last(ladders: pd.DataFrame) -> pd.DataFrame:
    """The coldest rung of each network."""
    return ladders[ladders["t"] == ladders["t"].max()]


def coefficients(made: Mapping[str, pd.DataFrame]) -> Any:
    """Left: λ over depth. Right: λ̂ of ReLU networks over the additive rule."""
    fig, (left, right) = panels(2, 2, width=5.2, height=4.2)
    depth, cold = made["depth"], last(made["depth"])
    left.plot(cold["layers"], cold["exact"], color=LINE, linewidth=1.8, label="λ, exact")
    left.errorbar(cold["layers"], cold["llc"], 2 * cold["stderr"], color=POINT, marker="o", linestyle="none", capsize=3,
                  label=f"Gibbs, {_power(cold['t'].max())}")  # fmt: skip
    engine = made["engine"]
    warm = depth[depth["t"].isin(engine["t"])]
    left.plot(warm["layers"], warm["llc"], color=BULK, linestyle="--", linewidth=1.2,
              label=f"Gibbs, {_power(engine['t'].max())}")  # fmt: skip
    left.errorbar(engine["layers"], engine["llc"], 2 * engine["stderr"], color=ENGINE, marker="s", markersize=5,
                  linestyle="none", capsize=3, label=f"bs.llc, {_power(engine['t'].max())}")  # fmt: skip
    left.set(xlabel="layers of a deep linear network", ylabel="learning coefficient")
    left.set_xticks(sorted(cold["layers"].unique()))
    left.legend(frameon=False, fontsize=8)
    relu = last(made["relu"])
    ends = [0, 1.1 * float(relu["exact"].max())] if len(relu) else [0, 1]
    right.plot(ends, ends, color=LINE, linewidth=1.5, label="λ̂ = λ")
    right.errorbar(relu["exact"], relu["llc"], 2 * relu["stderr"], color=POINT, marker="o", linestyle="none", capsize=3,
                   label=f"Gibbs, {_power(relu['t'].max())}")  # fmt: skip
    right.set(xlabel="λ by the additive rule", ylabel="λ̂ of a ReLU network")
    right.legend(frameon=False, fontsize=8)
    return fig


def _power(t: float) -> str:
    return f"T = $10^{{{np.log10(t):.0f}}}$" if t == t else "no T"


def local(gammas: pd.DataFrame) -> Any:
    """Left: K and the local posterior at three γ. Right: λ̂ over γ."""
    nbeta = float(gammas["nbeta"].iloc[0])
    fig, axes = panels(len(SHOWN) + 1, len(SHOWN) + 1, width=3.1, height=3.8, ratios=[1] * len(SHOWN) + [1.6])
    x, y = np.meshgrid(np.linspace(-1, 1, 401), np.linspace(-0.6, 1.8, 401))
    loss = 0.5 * (x * y**2) ** 2
    for each, gamma in zip(axes, SHOWN, strict=False):
        log_density = -nbeta * loss - 0.5 * gamma * (x**2 + (y - 1) ** 2)
        each.contour(x, y, np.log10(loss + 1e-12), levels=[-6, -4, -2, -1], colors=BULK, linewidths=0.6, linestyles="-")
        density = np.exp(log_density - log_density.max())
        each.contourf(x, y, density, levels=[np.exp(-4.5), np.exp(-2), np.exp(-0.5), 1.01], colors=BLUES)
        each.plot([0], [1], marker="x", color=LINE, markersize=7, linestyle="none")
        each.annotate("w*", (0, 1), (6, 0), textcoords="offset points", va="center", fontsize=10, color=LINE)
        each.set_title(f"γ = {gamma:g}: λₜ = {valley_exact(nbeta, gamma):.2f}", fontsize=10)
        each.set(xlabel="x", xticks=[-0.5, 0, 0.5])
    axes[0].set_ylabel("y")
    right = axes[-1]
    grid = np.geomspace(gammas["gamma"].min() / 3, gammas["gamma"].max() * 3, 60)
    right.plot(grid, [valley_exact(nbeta, float(gamma)) for gamma in grid], color=POINT, label="λₜ, exact")
    right.errorbar(gammas["gamma"], gammas["llc"], 2 * gammas["stderr"], color=ENGINE, marker="s", markersize=4,
                   linestyle="none", capsize=2, label="bs.llc")  # fmt: skip
    for level, words in ((0.5, "λ at w*"), (0.25, "λ at y = 0")):
        right.axhline(level, color=LINE, linewidth=0.9, linestyle=":")
        right.annotate(words, (grid[-1], level), ha="right", va="bottom", fontsize=8, color=LINE)
    right.set(xscale="log", xlabel="γ", ylabel="λ̂", ylim=(0, 0.6))
    right.legend(frameon=False, fontsize=8, loc="lower left")
    return fig


def page(made: Mapping[str, pd.DataFrame], origin: Mapping[str, Any]) -> str:
    """`README.md`."""
    settings = origin["settings"]
    engine, depth = made["engine"], made["depth"]
    warm = depth[depth["t"].isin(engine["t"])].set_index("layers")
    return "\n".join([
        "# Does sampling find the learning coefficients that formulas give?", "",
        answer(made), "",
        "![λ over depth, and of ReLU networks](coefficients.png)", "",
        f"## Depth: linear networks of width {settings['width']}, true map of rank {settings['rank']}", "",
        "More layers never raise λ (Aoyagi 2024), although the number of weights grows. T = nβσ/γ is the resolution, σ "
        "the second moment of the inputs. At finite T, λ_T lies below λ by some (θ − 1)/log T. `bs.llc` runs at a T "
        "where its chains are in equilibrium, and stands beside Gibbs sampling at the same T.", "",
        f"| layers | weights | λ | θ | Gibbs, T = {depth['t'].max():.0e} | error | Gibbs, T = {settings['engine']:g} | "
        f"bs.llc, T = {settings['engine']:g} | verdict |",
        "|---|---|---|---|---|---|---|---|---|",
        *(
            f"| {row['layers']:.0f} | {row['parameters']:.0f} | {row['exact']:g} | {row['multiplicity']:.0f} | "
            f"{_with(row)} | {row['error']:+.1%} | {_beside(warm, engine, row['layers'])} |".replace("-", "−")
            for row in last(depth).to_dict("records")
        ), "",
        "## ReLU: the additive rule", "",
        "Where every unit keeps its side of the kink on every input, units that are active on the same inputs form a "
        "linear network, and their coefficients add up. Gibbs draws of a layer are accepted by the ReLU network's own "
        f"outputs; γ = {settings['relu_gamma']:g} keeps the units on their sides.", "",
        "| network | weights | λ | θ | λ̂ | error |", "|---|---|---|---|---|---|",
        *(
            f"| {row['network']} | {row['parameters']:.0f} | {row['exact']:g} | {row['multiplicity']:.0f} | "
            f"{_with(row)} | {row['error']:+.1%} |".replace("-", "−")
            for row in last(made["relu"]).to_dict("records")
        ), "",
        "## γ in two dimensions", "",
        "![The local posterior, and λ̂ over γ](gamma.png)", "",
        "Lau et al. ask how λ̂ depends on γ in a simple example. K = x²y⁴/2 has λ = ½ at w* = (0, 1), but ¼ where the "
        "valley meets y = 0. A large γ holds the chain so tightly that not even the regular direction shows; a "
        f"small one lets it wander to the more singular place. nβ = {settings['nbeta']:,.0f}.", "",
        "| γ | λ_t, exact | bs.llc | verdict |", "|---|---|---|---|",
        *(
            f"| {row['gamma']:g} | {row['exact']:.3f} | {_with(row)} | {row['verdict']} |"
            for row in made["gamma"].to_dict("records")
        ), "",
        *_unseen(made["gamma"]),
        "## Run it again", "",
        f"{run_again(origin)} Gibbs samplers have {settings['chains']} chains of {settings['sweeps']} sweeps at every "
        f"T; `bs.llc` has {settings['budget']:g} nominal seconds a value.", "",
        "## Limits", "",
        "Small networks, no noise, orthonormal inputs (depth) or inputs in clusters (ReLU). With inputs on both "
        "sides of a kink the additive rule does not hold. All T are in `depth.csv` and `relu.csv`.", "",
    ])  # fmt: skip


def answer(made: Mapping[str, pd.DataFrame]) -> str:
    """The first line: the largest errors over depth and of ReLU networks, and the γ at which λ̂ is that of w*."""
    said = []
    depth, relu, gammas = last(made["depth"]), last(made["relu"]), made["gamma"]
    if len(depth):
        ends = depth.sort_values("layers")["exact"]
        said.append(
            f"Sampled λ̂ of linear networks is within {depth['error'].abs().max():.1%} of λ at every depth from "
            f"{depth['layers'].min():.0f} to {depth['layers'].max():.0f} layers, over which λ falls from "
            f"{ends.iloc[0]:g} to {ends.iloc[-1]:g}"
        )
    both = made["engine"].merge(made["depth"], on=["layers", "t"], suffixes=("", "_gibbs"))
    if len(both):
        apart = (both["llc"] / both["llc_gibbs"] - 1).abs().max()
        said.append(f"`bs.llc` is within {apart:.1%} of Gibbs sampling where both run, at T = {both['t'].max():g}")
    if len(relu):
        said.append(f"ReLU networks follow the additive rule within {relu['error'].abs().max():.1%}")
    near = gammas[(gammas["exact"] - 0.5).abs() < 0.025]
    if len(near):
        said.append(
            f"In two dimensions λ̂ is the coefficient at w* for γ from {near['gamma'].min():g} to "
            f"{near['gamma'].max():g} only, and that of a more singular place below"
        )
    return ". ".join(said) + "."


def _with(row: Mapping[str, Any]) -> str:
    return f"{row['llc']:.3f} ± {row['stderr']:.3f}"


def _beside(warm: pd.DataFrame, engine: pd.DataFrame, layers: float) -> str:
    cold = engine[engine["layers"] == layers].iloc[0]
    return f"{_with(warm.loc[layers].to_dict())} | {_with(cold.to_dict())} | {cold['verdict']}"


def _unseen(gammas: pd.DataFrame) -> list[str]:
    """What is to be said of values that passed all checks and are wrong: chains did not find the other place."""
    off = (gammas["llc"] - gammas["exact"]).abs() > 4 * gammas["stderr"]
    missed = gammas[off & (gammas["verdict"] == "ok")]
    if missed.empty:
        return []
    listed = " and ".join(f"{gamma:g}" for gamma in missed["gamma"])
    return [
        f"At γ = {listed} `bs.llc` passes its checks and is more than four standard errors from the integral: the "
        "other place holds a part of the posterior that no chain reached. No check can see what no chain visits.", "",
    ]  # fmt: skip
