"""What the study shows: a page whose first line is the answer, and the figure that decides it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from basinscope.figure_style import INK, LINE, POINT, panels
from studies.common.files import csv_files, readme
from studies.common.pages import run_again

from .cases import NETWORKS, coefficient, title
from .measuring import ENGINE_CHAINS
from .tables import METHODS, summary

MARKS = {"engine": ("s", "#e08214"), "nuts": ("D", "#542788")}
NEAR = 0.05  # share of λ within which a slope counts as λ
MAX_RHAT = 1.05  # of chains from which something is concluded
AGREEMENT = 3.0  # standard errors
PUBLISHED = 0.55  # λ̂ of Murfet et al. (2020) for the network with 21 weights, as Seyoum (2025) reports it


def write(table: pd.DataFrame, origin: Mapping[str, Any], folder: Path) -> Sequence[Path]:
    """The table, the figure and the page; their paths."""
    made = summary(table)
    picture = folder / "slopes.png"
    figure(table, made).savefig(picture, dpi=130)
    return [*csv_files({"summary": made}, folder), picture, readme(page(table, made, origin), folder)]


def figure(table: pd.DataFrame, made: pd.DataFrame) -> Any:
    """Left: slopes of all data sets over λ. Right: the lines of one network on all data sets."""
    drawn, (left, right) = panels(2, 2, width=6.0, height=4.6, ratios=(3, 2))
    models = list(dict.fromkeys(made["model"]))
    exact = table[table["method"] == "exact"]
    for place, model in enumerate(models):
        _slopes(left, place, model, exact, made)
    left.set_yticks(range(len(models)), [title(model) for model in models], fontsize=8)
    left.invert_yaxis()
    left.set_xlabel("slope of E[nLₙ] in temperature")
    left.set_xlim(left=0)
    left.legend(frameon=False, fontsize=8, loc="best")
    shown = next((model for model in reversed(models) if coefficient(model) and model in NETWORKS), models[-1])
    _lines(right, shown, exact[exact["model"] == shown], made)
    return drawn


def _slopes(axes: Any, place: int, model: str, exact: pd.DataFrame, made: pd.DataFrame) -> None:
    first = place == 0
    slopes = exact[exact["model"] == model].groupby("seed")["slope"].first()
    axes.scatter(slopes, np.full(len(slopes), place), s=10, color=POINT, alpha=0.5, linewidths=0,
                 label="integration, one data set" if first else None)  # fmt: skip
    for method, (mark, colour) in MARKS.items():
        part = made[(made["model"] == model) & (made["method"] == method)]
        axes.errorbar(
            part["llc"], np.full(len(part), place + (0.18 if method == "engine" else 0.33)), xerr=2 * part["stderr"],
            color=colour, marker=mark, markersize=4, linestyle="none", capsize=2, elinewidth=0.8,
            label=METHODS[method] if first and len(part) else None,
        )  # fmt: skip
    known = coefficient(model)
    if known:
        axes.plot([float(known[0])] * 2, [place - 0.35, place + 0.35], color=LINE, linewidth=2,
                  label="λ" if first else None)  # fmt: skip


def _lines(axes: Any, model: str, exact: pd.DataFrame, made: pd.DataFrame) -> None:
    for number, (_, rows) in enumerate(exact.groupby("seed")):
        axes.plot(1 / rows["beta"], rows["mean"] - rows["mean"].mean(), color=POINT, alpha=0.3, linewidth=0.8,
                  label="data sets" if number == 0 else None)  # fmt: skip
    ends = np.array([1 / exact["beta"].max(), 1 / exact["beta"].min()])
    centred = ends - (1 / exact["beta"]).mean()
    slope = float(made[(made["model"] == model) & (made["method"] == "exact")]["llc"].iloc[0])
    axes.plot(ends, slope * centred, color=INK, linewidth=1.5, label=f"slope {slope:.2f}")
    known = coefficient(model)
    if known:
        axes.plot(ends, float(known[0]) * centred, color=LINE, linewidth=1.8, label=f"λ = {known[0]}")
    axes.set_xlabel("temperature 1/β")
    axes.set_ylabel("E[nLₙ] less its mean over temperatures")
    axes.set_title(title(model), fontsize=10)
    axes.legend(frameon=False, fontsize=8)


def page(table: pd.DataFrame, made: pd.DataFrame, origin: Mapping[str, Any]) -> str:
    """`README.md`."""
    settings = origin["settings"]
    steps = ", ".join(f"{step:g}" for step in settings["temperatures"])
    return "\n".join([
        "# Is the slope of the loss in temperature the learning coefficient?", "",
        answer(made), "",
        "Over the posterior at inverse temperature β, E[nLₙ] = nLₙ(w₀) + λ/β + smaller terms: the slope of the mean "
        "loss in temperature estimates the learning coefficient λ (Watanabe 2013). Murfet et al. (2020) applied this "
        "to networks with one hidden layer and tens of weights. Here the same posteriors are integrated, so that the "
        "slope itself can be told from errors of a sampler, and sampled as a check.", "",
        "![Slopes and lines](slopes.png)", "",
        f"## Slopes at temperatures 1/β of {steps} times log n", "",
        *_table(made), "",
        "λ̂ is the mean over data sets, with its standard error. R² is the least of all lines. *Off* compares a sampler "
        "with integration on the same data: the root mean square over all means E[nLₙ], and the largest of the "
        "slopes, both in standard errors. R̂ is the largest of all temperatures.", "",
        "## Beside the published table", "",
        *_published(made), "",
        "With ReLU and the truth zero, λ = ½ for every width: the prior gives positive probability to weights of which "
        "no hidden unit is active on [−1, 1]², and only the output's bias is left. With the truth a polygon, λ is at "
        "least half the rank of the Hessian there. A straight line shows that the slope hardly changes over "
        "these temperatures; it does not show that the slope is λ.", "",
        "## How it is done, and run again", "",
        f"{run_again(origin)} The prior is "
        "N(0, 1) on every weight. Reduced-rank regression, tanh units and the mixture are integrated by quadrature, as "
        f"in the study of learning curves. Networks are integrated over {settings['prior_draws']:,} draws of their "
        "inner weights from the prior, the outer ones in closed form; two halves of the draws tell the error. "
        + _sampled(set(made["method"]), settings), "",
        "## Limits", "",
        "Murfet et al. took 20,000 draws of NUTS at each of five temperatures on many data sets. That takes days of "
        "one core. Here integration takes the place of long chains, and samplers run as a check on few data sets. "
        "Truth and prior are those of the authors' published code, in which the truth zero is the default. The survey "
        "does not say which truth stands behind the published number.", "",
    ])  # fmt: skip


def _sampled(methods: Set[str], settings: Mapping[str, Any]) -> str:
    """How much each sampler drew, or that its jobs are still to be run."""
    own = {
        "engine": f"Basinscope's engine takes {settings['engine_draws']:,} draws of each of {ENGINE_CHAINS} chains at "
        "every temperature, the first half of which is burn-in.",
        "nuts": f"NUTS takes {settings['nuts_draws']} draws of each of four chains, after as many of warm-up.",
    }
    missing = [METHODS[each] for each in own if each not in methods]
    said = [words for each, words in own.items() if each in methods]
    return " ".join([*said, *(f"No job of this sampler has a result yet: {name}." for name in missing)])


def answer(made: pd.DataFrame) -> str:
    """The first line: where the slope is λ, where not, and whether samplers agree with integration."""
    exact = made[(made["method"] == "exact") & made["exact"].notna()]
    exact = exact.assign(error=(exact["llc"] / exact["exact"] - 1).abs())
    near, far = exact[exact["error"] <= NEAR], exact[exact["error"] > NEAR]
    said = []
    if len(near):
        said.append(
            f"{'Sometimes' if len(far) else 'Yes'}: for {len(near)} of {len(exact)} models whose λ is known, the slope "
            f"of the loss in temperature is λ to within {near['error'].max():.1%}."
        )
    if len(far):
        start = f"For the other {len(far)} it" if len(near) else "No: the slope of the loss in temperature"
        said.append(
            f"{start} is {_times(far)} times λ ({'; '.join(far['title'])}), although lines are straight there, with "
            f"R² ≥ {far['least_r_squared'].min() - 5e-4:.3f}."
        )
    return " ".join([*said, *_agreement(made[made["method"] != "exact"])])


def _times(far: pd.DataFrame) -> str:
    """The least and the largest ratio of slope and λ."""
    least, most = (f"{ratio:.1f}" for ratio in ((far["llc"] / far["exact"]).min(), (far["llc"] / far["exact"]).max()))
    return least if least == most else f"{least} to {most}"


def _agreement(chains: pd.DataFrame) -> list[str]:
    """Samplers beside integration, wherever their chains agree with each other."""
    mixed = chains[chains["rhat"] < MAX_RHAT]
    apart = len(chains) - len(mixed)
    said = []
    if len(mixed):
        names = " and ".join(METHODS[each] for each in dict.fromkeys(mixed["method"]))
        said.append(
            f"Sampling ({names}) finds the slopes of exact integration within {AGREEMENT:g} standard errors in "
            f"{int((mixed['slope_off'] <= AGREEMENT).sum())} of {len(mixed)} cases whose chains have mixed "
            f"(R̂ < {MAX_RHAT:g})."
        )
    if apart:
        said.append(f"In {apart} further cases they have not, and nothing is concluded from these.")
    return said


def _table(made: pd.DataFrame) -> list[str]:
    lines = [
        "| model | d/2 | n | λ | by | data sets | λ̂ | R² | R̂ | divergences | means off | slope off |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in made.to_dict("records"):
        cells = [
            row["title"], f"{row['parameters'] / 2:g}", f"{row['n']:,}", _number(row["exact"], ".3f"),
            METHODS[row["method"]], str(row["data_sets"]), _with(row["llc"], row["stderr"]),
            f"{row['least_r_squared']:.4f}", _number(row["rhat"], ".2f"), _number(row["divergences"], ".0f"),
            _number(row["means_off"], ".1f"), _number(row["slope_off"], ".1f"),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _published(made: pd.DataFrame) -> list[str]:
    rows = made[made["parameters"] == 21]
    return [
        "| network with 21 weights | by | λ̂ | R² | d/2 |", "|---|---|---|---|---|",
        f"| Murfet et al. (2020), as Seyoum (2025) reports it | NUTS | ≈ {PUBLISHED} | > 0.99 | 10.5 |",
        *(
            f"| {row['title']} | {METHODS[row['method']]} | {_with(row['llc'], row['stderr'])} | "
            f"{row['least_r_squared']:.4f} | 10.5 |"
            for row in rows.to_dict("records")
        ),
    ]  # fmt: skip


def _number(value: float, form: str) -> str:
    return "" if math.isnan(value) else format(value, form)


def _with(value: float, stderr: float) -> str:
    digits = 3 if stderr >= 5e-4 else 5
    return f"{value:.{digits}f} ± {stderr:.{digits}f}"
