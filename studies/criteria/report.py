"""Tables, the figure and the page, from the rows of all jobs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from basinscope.figure_style import INK, panels
from studies.common.pages import run_again

from . import coin

if TYPE_CHECKING:
    import pandas as pd

ROUNDING = 3e-11  # differences of criteria below this are rounding
SMALL_OFF = 0.03  # share of ν̂ by which minibatches may be off
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
    for name, wanted in columns.items():
        part = table[table["part"] == name].reindex(columns=wanted)
        made[name] = part.astype({column: int for column in wanted if column in whole}).reset_index(drop=True)
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
    """Left: distances from the limits over n. Right: the rates."""
    plot, (left, right) = panels(2, 2, width=5.0, height=4.0)
    laws, rates = made["laws"], made["rates"]
    colours = {beta: f"C{place}" for place, beta in enumerate(dict.fromkeys(rates["beta"]))}
    marks = {"square": ("-", "o"), "product": ("--", "s"), "regular": (":", "^")}
    words = {"regular": "a, regular", "square": "a², λ = ¼", "product": "ab, θ = 2"}
    for (model, beta), part in laws.groupby(["model", "beta"], sort=False):
        far = (part["value"] - part["limit"]).abs().groupby(part["n"]).max()
        line, mark = marks[model]
        left.plot(far.index, far, line, marker=mark, markersize=4, color=colours[beta])
    left.set(xscale="log", yscale="log", xlabel="n", ylabel="largest distance of an error from its limit")
    left.set_title("laws of the errors", fontsize=10)
    low, high = left.get_ylim()
    left.set_ylim(low / 300, high)  # room for the legend
    for model in dict.fromkeys(laws["model"]):
        line, mark = marks[model]
        left.plot([], [], line, marker=mark, markersize=4, color=INK, label=f"log-odds θ₀ + {words[model]}")
    left.legend(fontsize=8, frameon=False, loc="lower left")
    for (model, beta), part in rates.groupby(["model", "beta"], sort=False):
        line, mark = marks[model]
        rows = part.sort_values("n")
        right.plot(rows["n"], rows["gap"], line, marker=mark, markersize=4, color=colours[beta])
    right.set(xscale="log", yscale="log", xlabel="n", ylabel="root mean square of CvL − WAIC")
    right.set_title("leave-one-out less WAIC", fontsize=10)
    for beta, colour in colours.items():
        right.plot([], [], color=colour, linewidth=2, label=f"β = {beta:g}")
    right.legend(fontsize=8, frameon=False)
    path = folder / "criteria.png"
    plot.savefig(path, dpi=130)
    return path


def page(made: Mapping[str, pd.DataFrame], origin: Mapping[str, Any]) -> str:
    """The page as Markdown."""
    laws, rates, parts, flat = (made[name] for name in ("laws", "rates", "fluctuation", "symmetries"))
    lines = ["# Do information criteria and errors obey the laws of singular learning theory?", "", answer(made)]
    if len(laws):
        lines += ["", "![Laws and rates](criteria.png)", *_law_section(laws), *_rate_section(rates)]
    if len(parts):
        lines += _minibatch_section(parts)
    if len(flat):
        lines += _symmetry_section(flat)
    lines += [
        "", "## Run it again", "", run_again(origin), "",
        "## Limits", "",
        "The coin has at most two parameters: its laws are exact to ten digits, and say nothing of sampling. ν̂ on "
        "minibatches is that of one small network. Flat directions are those that could be proved; more of them would "
        "lower the bound. All rows are in the CSV files beside this page.",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def answer(made: Mapping[str, pd.DataFrame]) -> str:
    """The first line: how far the laws, the rates, minibatches and the bound on λ are from what theory says."""
    laws, rates, parts, flat = (made[name] for name in ("laws", "rates", "fluctuation", "symmetries"))
    said = []
    if len(laws):
        far = {row["model"]: row["distance"] for row in law_distances(laws)}
        slow = far.pop("product", None)
        near = f"within {max(far.values()):.4f} of the limits that theory gives" if far else ""
        behind = f"{slow:.2f} from them where the law has a logarithm (`product`)" if slow is not None else ""
        said.append(
            f"The laws of the errors hold. At n = {int(laws['n'].max()):,} the errors of a model of a coin, "
            f"averaged exactly over data sets, are {', but still '.join(filter(None, [near, behind]))}"
        )
    last = rates.dropna().groupby(["model", "beta"], sort=False).tail(1)
    last = last[last["model"] != "regular"]
    exponents = [
        f"n^{fits['exponent'].mean():.2f} {words} (theory: {theory})".replace("-", "−")
        for words, theory, fits in (
            ("at β = 1", -2, last[last["beta"] == 1]), ("elsewhere", -1.5, last[last["beta"] != 1])
        )
        if len(fits)
    ]  # fmt: skip
    if exponents:
        said.append(f"The difference of leave-one-out and WAIC falls as {' and as '.join(exponents)}")
    if len(parts):
        rms = parts.groupby("samples")["off"].apply(lambda off: math.sqrt((off**2).mean()))
        fine = [size for size in sorted(rms.index) if (rms[rms.index >= size] < SMALL_OFF).all()]
        if fine:
            said.append(f"ν̂ from minibatches of {fine[0]} samples or more is within {SMALL_OFF:.0%} of that from all")
    if len(flat):
        within = flat["llc"] <= flat["bound"] + 2 * flat["llc_stderr"]
        sound = flat["verdict"] == "ok"
        said.append(
            f"With k flat directions λ is at most (d − k)/2. λ̂ is no larger, within two standard errors, in "
            f"{int(within[sound].sum())} of {int(sound.sum())} networks where it passes its checks, and in "
            f"{int(within[~sound].sum())} of {int((~sound).sum())} where it is doubtful"
        )
    return ". ".join(said) + "."


def _law_section(laws: pd.DataFrame) -> list[str]:
    largest = int(laws["n"].max())
    return [
        "", f"## Laws of the errors at n = {largest:,}, exact means over data sets", "",
        "A coin has log-odds θ₀ + c(w), where c is a (`regular`, λ = ½), a² (`square`, λ = ¼) or ab (`product`, λ = ½ "
        "and θ = 2, whose approach is logarithmic). `bayes` and `gibbs` are n times these errors, `variance` is V, and "
        "`symmetry` is n(Bg + Cv) − (β − 1)V.", "",
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
        "The same draws, with losses taken on m samples per draw and chain. *Off* is the difference from ν̂ of all "
        "samples, as a mean and as a root mean square over seeds; *stderr* is the Monte Carlo error of either.", "",
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
        "", "## Flat directions and the bound on λ", "",
        "Every network with k flat directions at w* has λ ≤ (d − k)/2. The data are the network's own outputs, "
        "nβ = 10⁴ and γ = 1.", "",
        "| network | d | flat directions | largest residual | (d − k)/2 | λ̂ |", "|---|---|---|---|---|---|",
        *(
            f"| {r['network']} | {r['parameters']} | {r['flat']} | {r['residual']:.1e} | {r['bound']} | "
            f"{r['llc']:.3f} ± {r['llc_stderr']:.3f} ({r['verdict']}) |"
            for r in flat.to_dict("records")
        ),
    ]  # fmt: skip
