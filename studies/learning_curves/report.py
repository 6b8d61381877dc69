"""What the study shows: a page whose first line is the answer, and the figure that decides it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from basinscope.figure_style import panels
from studies.common.files import csv_files, readme
from studies.common.integration.cases import CASES
from studies.common.pages import run_again

from .tables import SUM, TRAINED, exact, summary, temperatures, value

BAYES, SUMS, TRAINING, EXACT = "#2166ac", "#222222", "#e08214", "#b2182b"
NEAR = 0.02  # share of the limit, or two standard errors where these are more, that counts as reached


def write(table: pd.DataFrame, origin: Mapping[str, Any], folder: Path) -> Sequence[Path]:
    """Tables, figure and page; their paths."""
    made = {"summary": summary(table), "temperatures": temperatures(table)}
    picture = folder / "curves.png"
    figure(made["summary"], table).savefig(picture, dpi=130)
    return [*csv_files(made, folder), picture, readme(page(made, origin), folder)]


def figure(made: pd.DataFrame, table: pd.DataFrame) -> Any:
    """Above: halves of the sums that tend to 2λ, and nBg. Below: Bg and Cv of each data set at the largest n."""
    models = list(dict.fromkeys(made["model"]))
    fig, axes = panels(2 * len(models), len(models), width=4.3, height=3.7)
    for model, above, below in zip(models, axes[: len(models)], axes[len(models) :], strict=True):
        _curves(above, made[made["model"] == model], model)
        _scatter(below, table[(table["model"] == model) & (table["beta"] == 1)], model)
    return fig


def _curves(axes: Any, table: pd.DataFrame, model: str) -> None:
    lines = (
        ("nBg", 1.0, BAYES, "o", "n Bg", 0.95),
        (TRAINED, 0.5, TRAINING, "^", "[n(Bg + Bt) + V] / 2", 1.05),
        (SUM, 0.5, SUMS, "s", "n(Bg + Cv) / 2", 1.0),
    )
    for name, factor, colour, mark, label, nudge in lines:
        part = table[table["quantity"] == name]
        axes.errorbar(
            part["n"] * nudge, factor * part["mean"], 2 * factor * part["stderr"], color=colour, marker=mark,
            markersize=4, capsize=2, linewidth=1, elinewidth=0.8, label=label,
        )  # fmt: skip
    axes.axhline(exact(model), color=EXACT, linewidth=1.5, label=f"λ = {CASES[model].planted.coefficient[0]}")
    sizes = sorted(table["n"].unique())
    axes.set_xscale("log")
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes], rotation=30)
    axes.minorticks_off()
    axes.set_xlabel("samples n")
    axes.set_ylabel("n × error (bars: 2 standard errors)")
    axes.set_title(CASES[model].planted.title, fontsize=10)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    low, high = axes.get_ylim()
    axes.set_ylim(low - 0.45 * (high - low), high)


def _scatter(axes: Any, table: pd.DataFrame, model: str) -> None:
    n = table["samples"].max()
    table = table[table["samples"] == n]
    axes.scatter(table["Bg"], table["Cv"], s=14, color=BAYES, alpha=0.7, linewidths=0, label="data sets")
    ends = np.array([table["Bg"].min(), table["Bg"].max()])
    axes.plot(ends, 2 * exact(model) - ends, color=EXACT, linewidth=1.2, label="n(Bg + Cv) = 2λ", zorder=0)
    axes.set_xlabel("n × Bayes error Bg")
    axes.set_ylabel("n × leave-one-out error Cv")
    axes.set_title(f"n = {n:,}: correlation {_signed(table['Bg'].corr(table['Cv']))}", fontsize=10)
    axes.legend(frameon=False, fontsize=8)


def page(made: Mapping[str, pd.DataFrame], origin: Mapping[str, Any]) -> str:
    """`README.md`."""
    whole = made["summary"]
    models = list(dict.fromkeys(whole["model"]))
    sizes = sorted(whole["n"].unique())
    return "\n".join([
        "# Do Bayes and leave-one-out errors add up to 2λ/n?", "",
        answer(whole), "",
        f"This is Watanabe's Theorem 2, on {len(models)} models whose learning coefficient λ is known. Bg is the Bayes "
        "generalization error, Cv the leave-one-out error, Bt the Bayes training error (all relative to the truth), V "
        "the functional variance. The theorem says that n(Bg + Cv) tends to 2λ for every data set, and nBg to "
        "λ on average: what Bg exceeds λ by, Cv falls short of it. At another inverse temperature β the sum is "
        "2λ/β + (β − 1)V. All posteriors are integrated exactly, with the prior N(0, 1) on every weight; no chains are "
        "run.", "",
        "![Learning curves](curves.png)", "",
        f"## At β = 1, {_sets(whole)} data sets of each size", "",
        *_main(whole, models, sizes), "",
        "V/2 at the largest n estimates the singular fluctuation ν; no closed form of it is known. Limits are 2λ for "
        "both sums, λ for nBg, λ − 2ν for nBt, λ + ν for the Gibbs error nGg, λ − ν for its training error nGt.", "",
        "## Fluctuations of Bg and Cv", "",
        *_fluctuations(whole, models, sizes), "",
        "## At other temperatures", "",
        *_tempered(made["temperatures"]), "",
        "## How it is done, and run again", "",
        f"{run_again(origin)} "
        "The mixture is a quadrature over its three parameters. Both regressions are linear in their last weights, and "
        "these are integrated in closed form; quadrature does the rest, over two inner weights and over three numbers "
        "of a 2 × 2 matrix. The error on new data is an integral over the true distribution, too. Twice as fine a rule "
        "changes no n · error by more than 5 · 10⁻⁴.", "",
        "## Limits", "",
        "Three small models; the noise is known and the truth realizable. The theorem is "
        "about large n: at small n the tables show the approach to its limits. `summary.csv` and "
        "`temperatures.csv` have all means, `table.parquet` every data set.", "",
    ])  # fmt: skip


def answer(whole: pd.DataFrame) -> str:
    """The first line: how near the sum comes to 2λ, from the smallest to the largest n."""
    models = list(dict.fromkeys(whole["model"]))
    parts: list[str] = []
    nearer = reached = 0
    for model in models:
        sizes = sorted(whole.loc[whole["model"] == model, "n"].unique())
        (first, _), (last, error) = (value(whole, model, n, SUM) for n in (sizes[0], sizes[-1]))
        limit = 2 * exact(model)
        nearer += abs(last - limit) < abs(first - limit)
        reached += abs(last - limit) <= max(NEAR * limit, 2 * error)
        parts.append(f"{first:.2f} → {last:.3f} ± {error:.3f} for 2λ = {limit:.3g} ({model})")
    first_n, last_n = whole["n"].min(), whole["n"].max()
    correlation = max(value(whole, model, last_n, "corr(Bg,Cv)")[0] for model in models)
    apart = max(abs(value(whole, model, last_n, "sd(nBg)/sd(nCv)")[0] - 1) for model in models)
    return (
        f"From n = {first_n:,} to {last_n:,} the sum of Bayes and leave-one-out errors, n(Bg + Cv), comes nearer to 2λ "
        f"in {nearer} of {len(models)} models and to within {NEAR:.0%} or two standard errors of it in {reached}: "
        f"{'; '.join(parts)}. At n = {last_n:,} the two errors are correlated at {_signed(correlation)} or below, and "
        f"their standard deviations differ by {apart:.1%} at most."
    )


def _signed(number: float) -> str:
    return f"{number:.3f}".replace("-", "−")


def _sets(whole: pd.DataFrame) -> str:
    fewest, most = whole["data_sets"].min(), whole["data_sets"].max()
    return str(fewest) if fewest == most else f"{fewest} to {most}"


def _main(whole: pd.DataFrame, models: Sequence[str], sizes: Sequence[int]) -> list[str]:
    names = [SUM, TRAINED, "nBg", "nBt", "nGg", "nGt", "V"]
    lines = ["| model | n | " + " | ".join([*names[:-1], "V/2"]) + " |", "|---|---|" + "---|" * len(names)]
    for model in models:
        for n in sizes:
            cells = [_cell(*value(whole, model, n, name), 0.5 if name == "V" else 1.0) for name in names]
            lines.append(f"| {model} | {n:,} | {' | '.join(cells)} |")
        nu = value(whole, model, sizes[-1], "V")[0] / 2
        lam = exact(model)
        limits = [2 * lam, 2 * lam, lam, lam - 2 * nu, lam + nu, lam - nu]
        lines.append(f"| | limit | {' | '.join(map(_signed, limits))} | ν |")
    return lines


def _fluctuations(whole: pd.DataFrame, models: Sequence[str], sizes: Sequence[int]) -> list[str]:
    names = ["sd(nBg)", "sd(nCv)", "sd(nBg)/sd(nCv)", "corr(Bg,Cv)"]
    lines = ["| model | n | " + " | ".join(names) + " |", "|---|---|" + "---|" * len(names)]
    for model in models:
        for n in (sizes[0], sizes[len(sizes) // 2], sizes[-1]):
            cells = [_cell(*value(whole, model, n, name)) for name in names]
            lines.append(f"| {model} | {n:,} | {' | '.join(cells)} |")
    lines.append("| all | ∞ | σ | σ | 1 | −1 |")
    return lines


def _tempered(made: pd.DataFrame) -> list[str]:
    lines = [
        "| model | n | β | n(Bg+Cv) − (β − 1)V | n(Bg+Bt) + V | limit 2λ/β | βV/2 |",
        "|---|---|---|---|---|---|---|",
    ]
    for (model, n, beta), part in made.groupby(["model", "n", "beta"], sort=False):
        cells = {row["quantity"]: _cell(row["mean"], row["stderr"]) for row in part.to_dict("records")}
        first, second, third = (cells[name] for name in ("n(Bg+Cv)-(β-1)V", TRAINED, "βV/2"))
        lines.append(f"| {model} | {n:,} | {beta:g} | {first} | {second} | {2 * exact(model) / beta:.3f} | {third} |")
    return lines


def _cell(mean: float, error: float, factor: float = 1.0) -> str:
    return f"{_signed(factor * mean)} ± {factor * error:.3f}"
