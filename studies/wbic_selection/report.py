"""What the study shows: a page whose first line is the answer, and the figure that decides it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from basinscope.figure_style import panels
from studies.common.files import csv_files, readme
from studies.common.pages import run_again

from .tables import CRITERIA, LARGEST, SAMPLED, choices, compared
from .truths import SIZES, TRUTHS

COLOURS = {
    "wbic": "#b2182b", "free_energy": "#ef8a62", "waic": "#2166ac", "loo": "#67a9cf", "tic": "#4dac26",
    "aic": "#999999", "bic": "#333333", LARGEST: "#c9a227",
}  # fmt: skip
NAMES = {**CRITERIA, LARGEST: "always largest"}
SHADES = ("#deebf7", "#9ecae1", "#4292c6", "#084594")


def write(table: pd.DataFrame, origin: Mapping[str, Any], folder: Path) -> Sequence[Path]:
    """Tables, figures and page; their paths."""
    made = choices(table)
    pictures = [folder / "duel.png", folder / "choices.png"]
    duel(table).savefig(pictures[0], dpi=130)
    figure(made).savefig(pictures[1], dpi=130)
    return [*csv_files({"choices": made}, folder), *pictures, readme(page(table, made, origin), folder)]


def duel(table: pd.DataFrame) -> Any:
    """Regret of WBIC less that of WAIC for every truth and n, with 95 % intervals."""
    drawn, (axes,) = panels(1, 1, width=7.0, height=4.6)
    colours = {"WAIC": COLOURS["waic"], "WBIC": COLOURS["wbic"], "neither": COLOURS["aic"]}
    words = {"WAIC": "WAIC chooses better", "WBIC": "WBIC chooses better", "neither": "neither, at 95 %"}
    truths, sizes = list(dict.fromkeys(table["truth"])), sorted(table["samples"].unique())
    ticks = []
    for row, ((name, n), part) in enumerate(table.groupby(["truth", "samples"], sort=False)):
        place = row + 0.8 * truths.index(name)
        difference, error = compared(part, "wbic", "waic")
        axes.errorbar(difference, place, xerr=1.96 * error, color=colours[_winner(difference, error)], marker="o",
                      markersize=5, capsize=3, linestyle="none")  # fmt: skip
        ticks.append((place, f"{TRUTHS[str(name)].title if n == sizes[0] else ''}   n = {n:,}"))
    axes.set_yticks([place for place, _ in ticks], [label for _, label in ticks], fontsize=9)
    axes.invert_yaxis()
    axes.axvline(0, color=COLOURS["bic"], linewidth=0.8)
    axes.set_xlabel("regret of WBIC − regret of WAIC (bars: 95 % intervals)")
    for winner, colour in colours.items():
        axes.errorbar([], [], xerr=[], color=colour, marker="o", markersize=5, linestyle="none", label=words[winner])
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    return drawn


def figure(made: pd.DataFrame) -> Any:
    """Above: the regret of every criterion over n. Below: sizes chosen at the largest n."""
    truths = list(dict.fromkeys(made["truth"]))
    fig, axes = panels(2 * len(truths), len(truths), width=3.9, height=3.6)
    for name, above, below in zip(truths, axes[: len(truths)], axes[len(truths) :], strict=True):
        rows = made[made["truth"] == name]
        _regrets(above, rows)
        _chosen(below, rows[rows["n"] == rows["n"].max()], TRUTHS[name].size)
        above.set_title(TRUTHS[name].title, fontsize=10)
    axes[0].set_ylabel("regret (bars: 2 standard errors)")
    fig.legend(*axes[0].get_legend_handles_labels(), frameon=False, fontsize=9, ncols=8, loc="outside upper center")
    fig.legend(*axes[-1].get_legend_handles_labels(), frameon=False, fontsize=9, ncols=4, loc="outside lower center")
    return fig


def _regrets(axes: Any, table: pd.DataFrame) -> None:
    for number, name in enumerate(NAMES):
        line = table[table["criterion"] == name]
        axes.errorbar(
            line["n"] * 1.05 ** (number - 3.5), line["regret"], 2 * line["regret_stderr"], color=COLOURS[name],
            marker="o", markersize=4, linewidth=1, elinewidth=0.8, capsize=2, label=NAMES[name],
        )  # fmt: skip
    sizes = sorted(table["n"].unique())
    axes.set_xscale("log")
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel("samples n")


def _chosen(axes: Any, table: pd.DataFrame, true: int | None) -> None:
    table = table[table["criterion"] != LARGEST]
    left = np.zeros(len(table))
    labels = [NAMES[name] for name in table["criterion"]]
    for size, shade in zip(SIZES, SHADES, strict=True):
        share = table[f"size_{size}"].to_numpy()
        edge = {"edgecolor": "#b2182b", "linewidth": 1.5} if size == true else {"edgecolor": "white", "linewidth": 0.5}
        axes.barh(labels, share, left=left, color=shade, label=f"size {size}", zorder=3 if size == true else 2, **edge)
        left += share
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_xlabel("share of data sets" + (" (red: the true size)" if true else ""))
    axes.set_title(f"sizes chosen at n = {table['n'].iloc[0]:,}", fontsize=10)


def page(table: pd.DataFrame, made: pd.DataFrame, origin: Mapping[str, Any]) -> str:
    """`README.md`."""
    settings = origin["settings"]
    return "\n".join([
        "# Which criterion chooses the model that predicts best?", "",
        answer(table, made), "",
        f"Candidates of sizes {SIZES[0]} to {SIZES[-1]} learn the same data under one prior, "
        f"N(0, {1 / settings['gamma']:g}) on every weight. Each criterion chooses the candidate for which it is least. "
        "The choice is scored by the Bayes prediction of the chosen candidate: its regret is n times its error on new "
        "data, less that of the best candidate for the same data. WBIC, free energy and BIC estimate the evidence; "
        "WAIC, LOO, TIC and AIC the loss on new data. The size of a candidate is its degree plus one (regular), its "
        "rank, its number of tanh units, or its number of mixture components.", "",
        "![WBIC against WAIC](duel.png)", "",
        "![Regret, and sizes chosen](choices.png)", "",
        "Averaged over n:", "",
        *extremes(made), "",
        "## Regret and size", "",
        *_table(made), "",
        "The regret of chance is that of a candidate drawn at random. Too small and too large are against the smallest "
        "candidate that contains the truth.", "",
        "## WBIC against WAIC", "",
        *_duel(table), "",
        "## How it is done, and run again", "",
        f"{run_again(origin)} Inputs and rounded "
        "observations lie on finitely many places, so that the error on new data is a sum, without a test set. "
        "Regressions are linear in their outer weights, which are integrated in closed form. Polynomials need nothing "
        "else; the inner weights of tanh units are summed over two shifted lattices, whose difference tells the error. "
        "Mixtures, whose components weigh the same, are summed over lattices of their means in the same way. Ranks "
        "are sampled by sequential Monte Carlo with Gibbs moves from the prior down a ladder of temperatures "
        f"({settings['particles']} particles, {settings['repeats']} independent repeats). The products of the ladder's "
        "steps are the free energy, its rung at β = 1/log n gives WBIC. AIC, BIC and TIC are taken at the maximum of "
        "the posterior density; AIC and BIC count all weights, also those that symmetries make idle.", "",
        "Numerical error of the difference between the candidate chosen and the next best, over that difference "
        "(medians over data sets):", "",
        *_precision(made), "",
        "## Limits", "",
        f"One prior (γ = {settings['gamma']:g}), known noise, up to 32 weights, one truth of each kind. Regret "
        "depends on what the candidates are. `choices.csv` has all shares and "
        "`table.parquet` every criterion of every candidate.", "",
    ])  # fmt: skip


def answer(table: pd.DataFrame, made: pd.DataFrame) -> str:
    """The first line: WBIC against WAIC at either end of n, and who chooses worst."""
    sizes = sorted(made["n"].unique())
    said = [f"At n = {n:,} {_won(table[table['samples'] == n])}." for n in dict.fromkeys((sizes[0], sizes[-1]))]
    worst = _means(made).idxmax(axis=1)
    most = worst.mode().iloc[0]
    said.append(
        f"Averaged over n, {NAMES[most]} chooses worst of all criteria for {int((worst == most).sum())} of "
        f"{len(worst)} truths."
    )
    return " ".join(said)


def _means(made: pd.DataFrame) -> pd.DataFrame:
    """Regret averaged over n: a row for each truth, a column for each criterion."""
    rows = made[made["criterion"] != LARGEST]
    return rows.pivot_table(index="truth", columns="criterion", values="regret", aggfunc="mean", sort=False)


def _won(table: pd.DataFrame) -> str:
    """For which truths the 95 % interval of the difference of regrets excludes zero, on either side."""
    winners = {str(name): _winner(*compared(part, "wbic", "waic")) for name, part in table.groupby("truth", sort=False)}
    by_waic, by_wbic = ([name for name in winners if winners[name] == other] for other in ("WAIC", "WBIC"))
    return (
        f"the model that WAIC chooses predicts better than that of WBIC for {_counted(by_waic)} of {len(winners)} "
        f"truths, and WBIC's predicts better for {_counted(by_wbic)}"
    )


def _counted(names: Sequence[str]) -> str:
    return f"{len(names)} ({', '.join(names)})" if names else "none"


def extremes(made: pd.DataFrame) -> list[str]:
    """The least and the largest regret for each truth, averaged over n."""
    lines = ["| truth | least regret | largest regret |", "|---|---|---|"]
    for name, mean in _means(made).iterrows():
        best = [NAMES[each] for each in NAMES if each in mean.index and mean[each] <= mean.min() + 1e-9]
        lines.append(f"| {name} | {mean.min():.2f} ({_listed(best)}) | {mean.max():.2f} ({NAMES[mean.idxmax()]}) |")
    return lines


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _winner(difference: float, error: float) -> str:
    return "neither" if abs(difference) <= 1.96 * error else "WAIC" if difference > 0 else "WBIC"


def _table(made: pd.DataFrame) -> list[str]:
    lines = [
        "| truth | n | criterion | regret | true size | too small | too large | mean size |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (name, n), part in made.groupby(["truth", "n"], sort=False):
        for row in part.to_dict("records"):
            average = sum(size * row[f"size_{size}"] for size in SIZES)
            shares = [_share(row[key]) for key in ("true_size", "too_small", "too_large")]
            regret = f"{row['regret']:.2f} ± {row['regret_stderr']:.2f}"
            lines.append(
                f"| {name} | {n} | {NAMES[row['criterion']]} | {regret} | {' | '.join(shares)} | {average:.2f} |"
            )
        lines.append(f"| {name} | {n} | chance | {part['regret_of_chance'].iloc[0]:.2f} | | | | |")
    return lines


def _precision(made: pd.DataFrame) -> list[str]:
    sampled = made[made["criterion"].isin(SAMPLED) & (made["error_beside_difference"] > 0)]
    lines = ["| truth | n | " + " | ".join(NAMES[name] for name in SAMPLED) + " |", "|---|---|" + "---|" * len(SAMPLED)]
    for (name, n), part in sampled.groupby(["truth", "n"], sort=False):
        cells = part.set_index("criterion")["error_beside_difference"]
        lines.append(f"| {name} | {n} | " + " | ".join(f"{cells[each]:.2f}" for each in SAMPLED) + " |")
    return lines


def _share(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.0%}"


def _duel(table: pd.DataFrame) -> list[str]:
    """Difference of regrets with 95 % intervals, truth by truth."""
    lines = ["| truth | n | regret of WBIC − regret of WAIC (95 %) | smaller regret |", "|---|---|---|---|"]
    for (name, n), part in table.groupby(["truth", "samples"], sort=False):
        difference, error = compared(part, "wbic", "waic")
        interval = f"{difference:.2f} ({difference - 1.96 * error:.2f} to {difference + 1.96 * error:.2f})"
        lines.append(f"| {name} | {n} | {interval.replace('-', '−')} | {_winner(difference, error)} |")
    return lines
