"""`README.md` of the results: Table 1 beside the paper's, where they differ and what was tried, predictions, costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from studies.common.pages import data_and_scale, in_words, markdown_table

from .measures import BASELINES, GAPS
from .tables import finished, scopes

if TYPE_CHECKING:
    import pandas as pd

PAPER_SECONDS = 5 * 86_400 * 7 / 1701  # 5 days on 7 GPUs for 1,701 networks
SHARE = 0.1  # parts of the grid with fewer networks than this decide nothing
_COUNTS = {
    "networks": "networks", "learned": "learned something", "at_minimum": "at a minimum", "diverged": "diverged",
}  # fmt: skip
DISCUSSED = (
    "soft_rank_train", "log_det_train", "log_det_kfac_train", "trace_f_train", *BASELINES,
)  # fmt: skip
MEASURED = 0.05  # a τ differs from the paper's when it is further away than this and its interval excludes it


def page(made: Mapping[str, pd.DataFrame], origin: Mapping[str, Any]) -> str:
    """The page as Markdown."""
    grid, kendall = made["networks"], made["kendall"]
    sound = finished(grid)
    parts = [
        "# Does the soft rank predict the generalization gap?",
        "",
        answer(kendall, made["conditional"]),
        "",
        f"{_census(sound, made['criterion'])} {_origin(grid, origin)}",
        "",
        "As in [Shoham, Mor-Yosef and Avron (2025)](https://arxiv.org/abs/2506.17809), networks of three architectures "
        "see 7 × 7 grey images and are trained with Adam and coupled weight decay λ. "
        "The gap is the loss on unseen data less that on training data (the penalty is the same in both). F and C are "
        "written out for each network, on training and on test data; ranks and log-dets are exact unless named "
        "otherwise.",
        "",
        "There are two kinds of unseen data. The **test set** is the official one, as in the paper; it need not be "
        "drawn as the training samples are. **Held out** are samples of the training file that no network was trained "
        "on; the formulas of the paper speak of these. Where the file ends with the training samples, the test set "
        "stands in. In brackets are 95 % intervals from a bootstrap over settings: networks that differ in batch size "
        "and learning rate alone count as one.",
        "",
        "![Kendall τ of the measures](table1.png)",
        "",
        *_adding(made["granulated"], made["conditional"]),
        *_criterion(made["criterion"]),
        *_table(kendall, "test set", "Table 1: Kendall τ of complexity measures with the gap"),
        *_differences(kendall),
        *_table(kendall, "held out", "Table 1 with the gap on held-out samples"),
        *_predictions(made["predictions"]),
        *_best(made["cells"]),
        *_sampling(sound),
        *_cost(sound),
        "## The paper's formulas, as they are read here",
        "",
        "- The prediction of Eq. 8 is (1/n)(Tr C/Tr F) rank_λ(F); where the paper says that the soft rank is the gap, "
        "the 1/n is left out, and for finite λ it is an upper bound.",
        "- λ is that of the penalty (λ/2)‖θ‖² on the mean loss; a Gaussian prior with the same optimum has precision "
        "nλ.",
        "- `rank_λ⁽²⁾` is monotone but not concave: EKFAC and diagonal are upper bounds of rank and log-det alone.",
        "- The paper's list of weight decays has 1e5 and lacks 1e3; the arm `hole-free` has 1e-2/n to 1e4/n instead.",
        "",
        "## Files",
        "",
        "`networks.parquet` has every network with all its numbers; `kendall.csv` τ by measure and part of the grid, "
        "`cells.csv` by data set and size, `conditional.csv` and `granulated.csv` with settings held fixed, "
        "`predictions.csv` the predictions of the gap. `table1.png`, `granulated.png` and `best_where.png` show these; "
        "`figure1_…` to `figure5_to_7_…` are the paper's figures; `held_out.png`, `beyond_training_data.png` and "
        "`sampling.png` are not in it. `provenance.json` says where the numbers come from.",
        "",
    ]
    return "\n".join(parts)


def answer(kendall: pd.DataFrame, conditional: pd.DataFrame) -> str:
    """The first line: how the soft rank ranks the gap, beside what costs nothing, and with settings held fixed."""
    plain = kendall[(kendall["way"] == "as printed") & (kendall["against"] == "test set")]
    whole = plain[plain["scope"] == "all"].set_index("measure")
    fixed = conditional[(conditional["scope"] == "all") & (conditional["against"] == "test set")]
    fixed = fixed[fixed["fixed"] == "data set, n, weight decay"].set_index("measure")
    soft, decay = whole.loc["soft_rank_train"], whole.loc["less_decay"]
    inside, loss = fixed.loc["soft_rank_train"], fixed.loc["less_loss_train"]
    text = (
        f"Over {int(soft['networks']):,} networks the soft rank of the Fisher matrix orders the gap on the official "
        f"test sets with Kendall τ = {_interval(soft)}, where the paper has {soft['paper']:.2f}; the weight decay "
        f"alone, which costs nothing, has {_interval(decay)}. Among networks that share data set, n and weight decay "
        f"the soft rank has {_interval(inside)}, the training loss (less of it, more gap) {_interval(loss)}."
    )
    both = plain[plain["scope"] == "cross-validated"].set_index("measure")
    if "cv_gap" in both.index and np.isfinite(both.loc["cv_gap", "tau"]):
        crossed, alone = both.loc["cv_gap"], both.loc["soft_rank_train"]
        text += (
            f" On the {int(crossed['networks'])} networks that were cross-validated, cross-validation has "
            f"{_interval(crossed)} and the soft rank {_interval(alone)}."
        )
    return text


def _census(grid: pd.DataFrame, criterion: pd.DataFrame) -> str:
    """How many networks are at a minimum, learned nothing, or have a negative gap; and which arm is nearest."""
    parts = scopes(grid)
    nearest = criterion.loc[criterion["distance"].idxmin()] if criterion["distance"].notna().any() else None
    text = (
        f"Of these networks {int(parts['settled'].sum()):,} are at a minimum (a Newton step would gain less than a "
        f"twentieth of the predicted gap), {int((~parts['learned']).sum()):,} learned nothing (grey in the figures), "
        f"and {int((grid['gap'] < 0).sum()):,} have a negative gap on the test set (shown below zero)."
    )
    if nearest is not None and len(criterion) > 1:
        text += f" The arm nearest to the paper's Table 1, by a criterion fixed beforehand, is {nearest['arm']!r}."
    return text


def _adding(granulated: pd.DataFrame, conditional: pd.DataFrame) -> list[str]:
    """What measures know beyond the settings of training."""
    lines = [
        "## What the soft rank adds to the settings of training",
        "",
        "A measure can rank networks well because it knows the weight decay, which sets the gap. Here it may not: τ is "
        "taken among networks that share more and more settings. `learned`: without networks that learned nothing. "
        "Across sizes of data a measure is divided by n.",
        "",
    ]
    test = conditional[(conditional["against"] == "test set") & conditional["measure"].isin(DISCUSSED)]
    columns = list(dict.fromkeys(test["fixed"]))
    rows = []
    for (scope, label), group in test.groupby(["scope", "label"], sort=False):
        taus = group.set_index("fixed").to_dict("index")
        rows.append((label, scope, *(_interval(taus[name]) or "–" for name in columns)))
    lines += markdown_table(("measure", "networks", *(f"fixed: {name}" for name in columns)), rows)
    lines += [
        "One setting at a time, all others fixed (granulated Kendall coefficients, "
        "[Jiang et al. 2020](https://arxiv.org/abs/1912.02178)):",
        "",
        "![Granulated Kendall coefficients](granulated.png)",
        "",
    ]
    mean = granulated[(granulated["axis"] == "mean") & granulated["tau"].notna()]
    if len(mean):
        best = mean.sort_values("tau", ascending=False).groupby("against", sort=False).head(3)
        said = "; ".join(
            f"{against.capitalize()}: "
            + ", ".join(f"{row['label']} {_interval(row)}" for row in rows.to_dict("records"))
            for against, rows in best.groupby("against", sort=False)
        )
        lines += [f"The best means over all settings, by where the gap is taken. {said}.", ""]
    return lines


def _criterion(table: pd.DataFrame) -> list[str]:
    """How near each arm comes to the paper's Table 1."""
    lines = [
        "## Which arm is nearest to the paper",
        "",
        "The root mean square distance of eight τ from those of the paper's Table 1, gap on the test set, over all "
        "networks; this criterion was fixed before the arms were run. A network learned something if more than 20 % of "
        "its training samples are right, and is at a minimum if a Newton step would gain less than a twentieth of the "
        "predicted gap.",
        "",
    ]
    rows = []
    for row in table.to_dict("records"):
        interval = f"{row['distance']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
        rows.append((row["arm"], interval, *(f"{row[name]:,}" for name in _COUNTS)))
    return [*lines, *markdown_table(("arm", "distance", *_COUNTS.values()), rows)]


def _origin(grid: pd.DataFrame, origin: Mapping[str, Any]) -> str:
    data, small = data_and_scale(grid["data"])
    count = int((grid["outcome"] == "diverged").sum())
    diverged = f" {count} diverged." if count else ""
    devices = ", ".join(origin["device"])
    return f"{len(grid):,} networks on {data}, measured on {devices}.{diverged}{small}"


def _number(value: float) -> str:
    return "" if value != value else f"{value:.2f}"


def _interval(row: Mapping[str, Any]) -> str:
    return "" if row["tau"] != row["tau"] else f"{row['tau']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"


def _table(kendall: pd.DataFrame, against: str, title: str) -> list[str]:
    everywhere = kendall[(kendall["scope"] == "all") & (kendall["against"] == against)]
    lines = []
    for name in dict.fromkeys(everywhere["measure"]):
        rows = everywhere[everywhere["measure"] == name].set_index("way").to_dict("index")
        first = next(iter(rows.values()))
        cells = [_interval(rows[way]) if way in rows else "" for way in ("as printed", "per sample", "within")]
        paper = _number(float("nan") if first["paper"] is None else first["paper"])
        lines.append((first["label"], paper, *cells, first["networks"]))
    columns = ("measure", "paper", "as printed", "divided by n", "within data set and size", "networks")
    return [f"## {title}", "", *markdown_table(columns, lines)]


def _differences(kendall: pd.DataFrame) -> list[str]:
    """Each τ of the paper that ours is away from, and under which of the variants tried it would be met."""
    lines = [
        "## Where they differ, and what was tried",
        "",
        "The first two columns of ours are over all networks, as printed. The last two try the same correlation in "
        "many ways: with the gap on either kind of unseen data; on all of the grid, the paper's part, on which it had "
        "KFAC and diagonal (largest rate and batch), networks that learned anything, settled ones, at a minimum (a "
        "Newton step would gain less than a tenth of the predicted gap), or both; as printed, divided by n, and within "
        "data set and size.",
        "",
    ]
    table = []
    most = int(kendall["networks"].max())
    known = kendall[kendall["paper"].notna() & kendall["tau"].notna() & (kendall["networks"] >= SHARE * most)]
    for name in dict.fromkeys(known["measure"]):
        rows = known[known["measure"] == name].to_dict("records")
        plain = {row["against"]: row for row in rows if (row["scope"], row["way"]) == ("all", "as printed")}
        if not plain:
            continue
        ordered = sorted(rows, key=lambda row: abs(row["tau"] - row["paper"]))
        cells = [f"{_interval(plain[against])}, {_verdict(plain[against])}" for against in GAPS]
        table.append((rows[0]["label"], f"{rows[0]['paper']:.2f}", *cells, _where(ordered[0]), _where(ordered[-1])))
    columns = ("measure", "paper", "test set", "held out", "nearest to the paper", "furthest from it")
    return [*lines, *markdown_table(columns, table)]


def _verdict(row: Mapping[str, Any]) -> str:
    agrees = row["low"] <= row["paper"] <= row["high"] or abs(row["tau"] - row["paper"]) <= MEASURED
    return "agrees" if agrees else "differs"


def _where(row: Mapping[str, Any]) -> str:
    return f"{row['tau']:.2f} ({row['against']}, {row['scope']}, {row['way']}, {row['networks']} networks)"


def _predictions(table: pd.DataFrame) -> list[str]:
    lines = [
        "## Predictions of the gap itself (figures 1–3)",
        "",
        "Median factor: prediction over gap. Error: the median of |log₁₀(prediction/gap)|; 0.3 is a factor of two. "
        "First with the gap on the test set, then on held-out samples, by whose error the rows are sorted.",
        "",
    ]
    rows = []
    test = table[table["against"] == "test set"].set_index("prediction").to_dict("index")
    for row in table[table["against"] == "held out"].sort_values("error").to_dict("records"):
        cells = [
            cell
            for each in (test[row["prediction"]], row)
            for cell in (_interval(each), f"{each['factor']:.2g}", f"{each['error']:.2f}")
        ]
        rows.append((row["label"], *cells, f"{row['within_two']:.0%}", row["networks"]))
    numbers = ("τ, test set", "factor", "error", "τ, held out", "factor", "error")
    return [*lines, *markdown_table(("prediction", *numbers, "within a factor of two", "networks"), rows)]


def _best(cells: pd.DataFrame) -> list[str]:
    """The best measure of each data set and size, and those whose intervals reach it."""
    rows = []
    for (against, data, samples), group in cells.dropna(subset=["tau"]).groupby(
        ["against", "data", "samples"], sort=False
    ):
        ordered = group.sort_values("tau", ascending=False)
        best = ordered.iloc[0]
        near = ordered.iloc[1:][ordered.iloc[1:]["high"] >= best["low"]]["label"].tolist()
        rows.append((against, data, f"{samples:,}", best["label"], _interval(best), ", ".join(near[:5])))
    columns = ("gap", "data", "n", "best", "τ", "not worse by the interval")
    return ["## Which measure is best where", "", *markdown_table(columns, rows)]


def _sampling(grid: pd.DataFrame) -> list[str]:
    """What λ̂ adds to the soft rank."""
    if "llc" not in grid or not grid["llc"].notna().any():
        return []
    lines = [
        "## λ̂, ν̂, WBIC and WAIC of the same networks",
        "",
        "Local posteriors at γ = nβ·λ + γ₀, by HMC on all data, accepted or rejected by exact energies. The slope "
        "of the loss at θ is taken away, as the penalty does at a minimum: minibatches leave most networks beside it. "
        "In a quadratic basin λ̂ would be ½ rank_Λ(F), Λ = γ/nβ.",
        "",
    ]
    for name, words in (("llc", "λ̂ at β = 1/log n"), ("llc_bayes", "λ̂ at β = 1")):
        verdicts = in_words(grid[f"{name}_verdict"])
        sound = grid[grid[f"{name}_verdict"] == "ok"]
        share = (sound[name] / sound[f"half_soft_rank_{name}"]).median() if len(sound) else float("nan")
        lines.append(f"- {words}: {verdicts}. Where ok, the median of λ̂ / ½ rank_Λ(F) is {share:.2f}.")
    if grid["fluctuation"].notna().any():
        ratio = (grid["fluctuation"] / grid["half_tic_fluctuation"]).median()
        lines.append(f"- ν̂, which would be ½ Tr C (F + Λ)⁻¹ in a quadratic basin, is {ratio:.2f} times that (median).")
        near = np.abs(grid["waic"] - grid["loss_test"]).median()
        plain = np.abs(grid["loss_train"] - grid["loss_test"]).median()
        lines.append(f"- |WAIC − test loss| has median {near:.3g}; |training loss − test loss| has {plain:.3g}.")
    return [*lines, ""]


def _cost(grid: pd.DataFrame) -> list[str]:
    """Seconds a network, beside the paper's."""
    lines = ["## What it cost", "", "| | seconds a network | all networks, minutes |", "|---|---|---|"]
    total = 0.0
    for name, words in (
        ("train_seconds", "training"), ("curvature_seconds", "F and C on training and test data, all that follows"),
        ("sampling_seconds", "λ̂, ν̂, WBIC, WAIC"), ("cv_seconds", "cross-validation"),
    ):  # fmt: skip
        if name in grid and grid[name].notna().any():
            seconds = grid[name].dropna()
            total += float(seconds.sum())
            lines.append(f"| {words} | {seconds.mean():.2f} | {seconds.sum() / 60:.1f} |")
    lines.append(f"| in all | {total / len(grid):.2f} | {total / 60:.1f} |")
    lines.append(f"| Shoham et al., 7 Titan Xp for 5 days | {PAPER_SECONDS:,.0f} | {PAPER_SECONDS * 1701 / 60:,.0f} |")
    return [*lines, "", "Times are wall-clock seconds.", ""]
