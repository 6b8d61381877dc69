"""Tables, the figure and the page, from the rows of all jobs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import coin

if TYPE_CHECKING:
    import pandas as pd

ROUNDING = 3e-11  # differences of criteria below this are rounding
_SHOWN = 1000  # tosses from which the laws are shown, at powers of ten

Row = dict[str, Any]


def tables(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The tables by name."""
    import pandas as pd

    coins = table[table["part"] == "coin"]
    made = {"laws": pd.DataFrame(_laws(coins)), "rates": pd.DataFrame(_rates(coins))}
    columns = {
        "fluctuation": ["beta", "seed", "samples", "of", "visits", "value", "stderr", "full", "full_stderr", "off"],
        "symmetries": [
            "network", "parameters", "rescaling", "mixing", "idle", "flat", "residual", "bound", "llc", "llc_stderr",
            "verdict",
        ],
    }  # fmt: skip
    whole = {"seed", "samples", "of", "parameters", "rescaling", "mixing", "idle", "flat"}
    for name, own in columns.items():
        part = table[table["part"] == name].reindex(columns=own)
        made[name] = part.astype({column: int for column in own if column in whole}).reset_index(drop=True)
    return made


def _laws(coins: pd.DataFrame) -> Iterator[Row]:
    """Every law's left-hand side beside its limit."""
    for row in coins.to_dict("records"):
        n, beta, lam = int(row["samples"]), row["beta"], coin.KINDS[row["model"]]
        if n < _SHOWN or not math.log10(n).is_integer():
            continue
        nu = coin.fluctuation(row["model"], beta)
        limits = {
            "bayes": (lam - nu) / beta + nu,
            "bayes_training": (lam - nu) / beta - nu,
            "gibbs": lam / beta + nu,
            "gibbs_training": lam / beta - nu,
            "variance": 2 * nu / beta,
            "symmetry": 2 * lam / beta,
        }
        for name, limit in limits.items():
            yield {
                "model": row["model"], "lambda": lam, "nu": nu, "beta": beta, "n": n, "quantity": name,
                "value": row[name], "limit": limit, "correlation": row["correlation"],
            }  # fmt: skip


def _rates(coins: pd.DataFrame) -> Iterator[Row]:
    """Root mean square of CvL − WAIC over data sets, and the exponent of n from one size to the next."""
    for (model, beta), part in coins.groupby(["model", "beta"], sort=False):
        before: tuple[int, float] | None = None
        for n, gap in zip(part["samples"].astype(int), part["gap"], strict=True):
            if gap < ROUNDING:
                break
            slope = math.nan if before is None else math.log(gap / before[1]) / math.log(n / before[0])
            yield {"model": model, "beta": beta, "n": n, "gap": gap, "exponent": slope}
            before = n, gap


def law_distances(laws: pd.DataFrame) -> list[Row]:
    """How far each model is from any of its limits at the largest n."""
    last = laws[laws["n"] == laws["n"].max()]
    far = (last["value"] - last["limit"]).abs().groupby(last["model"], sort=False).max()
    return [{"model": model, "n": int(last["n"].iloc[0]), "distance": float(value)} for model, value in far.items()]


def draw(made: Mapping[str, pd.DataFrame], folder: Path) -> Path:
    """The laws' approach and the rates."""
    from matplotlib.figure import Figure

    plot = Figure(figsize=(10, 4), layout="constrained")
    left, right = plot.subplots(1, 2)
    laws, rates = made["laws"], made["rates"]
    betas = list(dict.fromkeys(rates["beta"]))
    colours = {beta: f"C{place}" for place, beta in enumerate(betas)}
    for (beta, quantity), part in laws[laws["model"] == "square"].groupby(["beta", "quantity"], sort=False):
        style = {"bayes": "-", "bayes_training": "--", "variance": ":"}.get(quantity)
        if style:
            left.plot(part["n"], part["value"], style, color=colours[beta], marker=".")
            left.axhline(part["limit"].iloc[0], color=colours[beta], linewidth=0.5)
    left.set(xscale="log", xlabel="n", title="square: n E[Bg] (—), n E[Bt] (- -), E[V] (···); limits thin")
    for (model, beta), part in rates.groupby(["model", "beta"], sort=False):
        style = {"square": "-", "product": "--", "regular": ":"}[model]
        right.plot(part["n"], part["gap"], style, color=colours[beta], marker=".", label=f"{model}, β = {beta:g}")
    right.set(xscale="log", yscale="log", xlabel="n", title="root mean square of CvL − WAIC")
    right.legend(fontsize=7)
    path = folder / "criteria.png"
    plot.savefig(path, dpi=120)
    return path


def page(made: Mapping[str, pd.DataFrame], origin: Mapping[str, Any]) -> str:
    """The page as Markdown."""
    versions = ", ".join(origin["basinscope"])
    lines = [
        "# Criteria: theory beside what is found",
        "",
        "Written by `basinscope study report criteria`; do not edit. "
        f"{origin['results']} of {origin['jobs']} jobs, Basinscope {versions}. All rows are in the CSV files beside "
        "this page.",
    ]
    laws, rates, parts, flat = (made[name] for name in ("laws", "rates", "fluctuation", "symmetries"))
    if len(laws):
        lines += [*_law_section(laws), *_rate_section(rates)]
    if len(parts):
        lines += _minibatch_section(parts)
    if len(flat):
        lines += _symmetry_section(flat)
    return "\n".join(lines) + "\n"


def _law_section(laws: pd.DataFrame) -> list[str]:
    largest = int(laws["n"].max())
    return [
        "", f"## Laws of the errors at n = {largest:,}, exact means over data sets", "",
        "A coin with log-odds θ₀ + c(w), see `studies/criteria/coin.py`: c = a (λ = ½), a² (λ = ¼), ab (λ = ½, θ = 2,",
        "whose approach is logarithmic). `symmetry` is n(Bg + Cv) − (β − 1)V.", "",
        "| model | β | quantity | value | limit |", "|---|---|---|---|---|",
        *(
            f"| {r['model']} | {r['beta']} | {r['quantity']} | {r['value']:.5f} | {r['limit']:.5f} |"
            for r in laws[laws["n"] == largest].to_dict("records")
        ),
    ]  # fmt: skip


def _rate_section(rates: pd.DataFrame) -> list[str]:
    last = rates.groupby(["model", "beta"], sort=False).tail(1)
    return [
        "", "## CvL − WAIC: exponent of n at the largest n above rounding", "",
        "Theory: −3/2 in general, −2 at β = 1. A regular posterior is symmetric at leading order, and does better.", "",
        "| model | β | n | root mean square | exponent |", "|---|---|---|---|---|",
        *(
            f"| {r['model']} | {r['beta']} | {r['n']} | {r['gap']:.2e} | {r['exponent']:.3f} |"
            for r in last.to_dict("records")
        ),
    ]  # fmt: skip


def _minibatch_section(parts: pd.DataFrame) -> list[str]:
    n = int(parts["of"].iloc[0])
    lines = [
        "", f"## ν̂ on minibatches, network 64-16-10 on digits (n = {n}, d = 1210)", "",
        "Same draws, their losses taken on m samples per draw and chain; mean over seeds of the difference from all",
        "samples, its root mean square, and the Monte Carlo error of either.", "",
        "| β | m | m/n | times a sample is seen | mean off | rms off | stderr | stderr of all | ν̂ of all |",
        "|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for (beta, samples), rows in sorted(parts.groupby(["beta", "samples"]), reverse=True, key=lambda each: each[0]):
        full, off = rows["full"].mean(), rows["off"]
        errors = [rows[column].mean() / full for column in ("stderr", "full_stderr")]
        lines.append(
            f"| {beta:.3g} | {samples} | {samples / n:.2%} | {rows['visits'].iloc[0]:.1f} | {off.mean():+.2%} | "
            f"{math.sqrt((off**2).mean()):.2%} | {errors[0]:.2%} | {errors[1]:.2%} | {full:.2f} |"
        )
    return lines


def _symmetry_section(flat: pd.DataFrame) -> list[str]:
    return [
        "", "## Flat directions and the bound on λ, truth expressible, nβ = 10⁴, γ = 1", "",
        "| network | d | flat directions | largest residual | (d − k)/2 | λ̂ |", "|---|---|---|---|---|---|",
        *(
            f"| {r['network']} | {r['parameters']} | {r['flat']} | {r['residual']:.1e} | {r['bound']} | "
            f"{r['llc']:.3f} ± {r['llc_stderr']:.3f} ({r['verdict']}) |"
            for r in flat.to_dict("records")
        ),
    ]  # fmt: skip
