"""What the study shows: a page whose first lines are the answer, three tables and a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from basinscope.figure_style import BULK, LINE, POINT, panels
from studies.common.files import csv_files, readme
from studies.common.pages import markdown_table, run_again

from .limits import FIXED
from .penalised import BASE, BATCH, CLASSES, EVERY, FEW, PER_ROW, price
from .tables import apart, tables

OTHER = "#e08214"
COLOURS = {FIXED: BULK, "ridge": POINT, "logistic": OTHER}
ARMS = {"weight decay": BULK, "SAM": OTHER, "soft rank": POINT}
PLAIN = ("weight decay", BASE)


def write(table: pd.DataFrame, origin: Mapping[str, Any], folder: Path) -> Sequence[Path]:
    """Tables, figure and page; their paths."""
    made = tables(table)
    picture = folder / "propositions.png"
    figure(made).savefig(picture, dpi=130)
    return [*csv_files(made, folder), picture, readme(page(table, made, origin), folder)]


def figure(made: Mapping[str, pd.DataFrame]) -> Any:
    """The gap over the soft rank, errors over flatness, and the trainings."""
    drawn, (first, second, third) = panels(3, 3, width=4.4, height=3.8)
    last = largest(made["limits"])
    for model, own in last.groupby("model", sort=False):
        style = {"color": COLOURS[model], "capsize": 2, "markersize": 4}
        at = own[own["scale"] == 1].sort_values("decay")
        first.errorbar(at["decay"], at["gap_seen"] / at["soft_rank"], 2 * at["gap_stderr"] / at["soft_rank"],
                       marker="o", label=model, **style)  # fmt: skip
        along = own[own["decay"] == scaled_decay(made["limits"])].sort_values("soft_rank")
        second.errorbar(along["soft_rank"], along["distance_seen"], 2 * along["distance_stderr"], marker="o",
                        label=f"{model}: ‖θ̂ − θ*‖²", **style)  # fmt: skip
        second.errorbar(along["soft_rank"], along["gap_seen"], 2 * along["gap_stderr"], marker="s", linestyle=":",
                        **style)  # fmt: skip
    first.axhline(1, color=LINE, linewidth=1, linestyle="--")
    first.set(xscale="log", xlabel="weight decay λ", ylabel="n × gap / soft rank", title="the gap, by the soft rank")
    second.set(xscale="log", yscale="log", xlabel="soft rank: flat on the left, sharp on the right",
               ylabel="n × squared distance; dotted: n × gap", title="distance and gap")  # fmt: skip
    for arm, own in made["penalty"].groupby("arm", sort=False):
        third.errorbar(own["soft_rank"], own["loss_test"], 2 * own["loss_test_stderr"], 2 * own["soft_rank_stderr"],
                       color=ARMS[arm], marker="o", markersize=4, capsize=2, linewidth=1, label=arm)  # fmt: skip
    third.set(xlabel=f"soft rank at λ = {BASE:g}", ylabel="test loss", title="a network at equal cost")
    for axes in (first, second, third):
        axes.legend(frameon=False, fontsize=8)
    return drawn


def largest(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the largest size."""
    return rows[rows["samples"] == rows["samples"].max()]


def scaled_decay(rows: pd.DataFrame) -> float:
    """The decay at which inputs of several scales were taken."""
    return float(rows.groupby("decay")["scale"].nunique().idxmax())


def page(table: pd.DataFrame, made: Mapping[str, pd.DataFrame], origin: Mapping[str, Any]) -> str:
    """`README.md`."""
    return "\n".join([
        "# Do the soft rank's propositions hold, and does it help as a penalty?", "",
        " ".join([limit_answer(made["limits"]), bound_answer(made["bounds"]), penalty_answer(table, made["penalty"])]),
        "",
        "The propositions are those of Shoham, Mor-Yosef and Avron (2025, https://arxiv.org/abs/2506.17809), with the "
        "corrections of `docs/errata.md`.", "",
        "![The gap by the soft rank, errors over flatness, and the trainings](propositions.png)", "",
        *_limits(made["limits"]), *_scales(made["limits"]), *_bounds(made["bounds"]),
        *_penalty(table, made["penalty"], origin["settings"]),
        "## Run it again", "", run_again(origin), "",
        "## Limits", "",
        "Regressions of eight parameters; networks of some hundred parameters on 7 × 7 pixels; one convolutional "
        "network, one optimizer, and a few strengths of each way. A penalty on so few samples is far above the soft "
        "rank of all data. Other prices of a gradient would give other numbers of steps.", "",
    ])  # fmt: skip


def limit_answer(rows: pd.DataFrame) -> str:
    """How near the gap is to the soft rank, and to the limit without calibration."""
    last = largest(rows)
    last = last[last["scale"] == 1]
    ratio = last["gap_seen"] / last["soft_rank"]
    fixed = last["model"] == FIXED
    small = last["decay"] == last["decay"].min()
    return (
        f"With fixed inputs n times the expected gap of ridge regression is the soft rank at every weight decay: the "
        f"ratios are {_range(ratio[fixed])}. With random inputs, ridge and logistic, they are "
        f"{_range(ratio[~fixed & small])} at λ = {last['decay'].min():g} and {_range(ratio[~fixed & ~small])} at "
        f"larger ones, where no minimum is calibrated. Tr(C H⁻¹) is within {_apart(last, 'gap')}."
    )


def bound_answer(rows: pd.DataFrame) -> str:
    """Whether the inequalities held."""
    concave, other = rows[rows["concave"]], rows[~rows["concave"]]
    return (
        f"On {int(rows['networks'].max())} trained networks all {int(concave['networks'].sum())} inequalities for soft "
        f"rank and log-determinant hold"
        if not concave["below"].sum()
        else f"Of {int(concave['networks'].sum())} inequalities for soft rank and log-determinant "
        f"{int(concave['below'].sum())} fail"
    ) + (
        f"; for the soft rank of second order, which is not concave, {int(other['below'].sum())} of "
        f"{int(other['networks'].sum())} fail."
    )


def penalty_answer(table: pd.DataFrame, rows: pd.DataFrame) -> str:
    """The penalty beside the other ways, each at the strength that held-out images choose."""
    best = {row["arm"]: row for row in rows[rows["chosen"]].to_dict("records")}
    said = []
    for arm in ("weight decay", "SAM"):
        pair = ("soft rank", best["soft rank"]["strength"]), (arm, best[arm]["strength"])
        mean, stderr = apart(table, *pair, "loss_test")
        word = "above" if mean > 0 else "below"
        said.append(f"{abs(mean):.3f} ± {stderr:.3f} {word} that of {arm}")
    ours = best["soft rank"]
    return (
        f"At equal cost the penalty's test loss is {ours['loss_test']:.3f}, {said[0]} and {said[1]}; soft ranks are "
        f"{ours['soft_rank']:.0f}, {best['weight decay']['soft_rank']:.0f} and {best['SAM']['soft_rank']:.0f}."
    )


def _limits(rows: pd.DataFrame) -> list[str]:
    last = largest(rows)
    last = last[last["scale"] == 1]
    return [
        "## The gap", "",
        f"n times the gap, the mean of {int(last['sets'].max()):,} data sets of n = {int(last['samples'].max()):,}, "
        "beside Tr(C H⁻¹), its limit whatever the model, and the soft rank, its limit for a calibrated one. Corrected "
        "is the soft rank less θ*ᵀΛ(F + Λ)⁻¹Λθ*. With fixed inputs the gap is that of new y at the same x.", "",
        *markdown_table(
            ["model", "λ", "n × gap", "Tr(C H⁻¹)", "soft rank", "corrected", "gap / soft rank", "E[(ŷ − y)N]"],
            [(row["model"], f"{row['decay']:g}", _with_error(row, "gap"), f"{row['gap']:.3f}",
              f"{row['soft_rank']:.3f}", f"{row['corrected']:.3f}", f"{row['gap_seen'] / row['soft_rank']:.3f}",
              f"{row['uncalibrated']:.3g}") for row in last.to_dict("records")],
        ),
        "A calibrated model has E[(ŷ − y)N] = 0, with N = xᵀθ* its output. At a minimum with weight decay it is "
        "−λ‖θ*‖² instead, by the product of the stationarity condition with θ*. So the propositions' assumption is "
        "never met where λ > 0 and θ* ≠ 0; the same holds for every network that is homogeneous in its weights. They "
        "are statements about small λ.", "",
        *_sizes(rows),
    ]  # fmt: skip


def _sizes(rows: pd.DataFrame) -> list[str]:
    sizes = sorted(rows["samples"].unique())
    own = rows[(rows["scale"] == 1) & (rows["decay"] == rows["decay"].min())]
    wide = own.assign(ratio=own["gap_seen"] / own["gap"]).pivot(index="model", columns="samples", values="ratio")
    return [
        f"How fast the limit is reached: n times the gap over Tr(C H⁻¹), at λ = {own['decay'].iloc[0]:g}.", "",
        *markdown_table(
            ["model", *(f"n = {size:,}" for size in sizes)],
            [(model, *(f"{wide[size][model]:.3f}" for size in sizes)) for model in dict.fromkeys(own["model"])],
        ),
    ]  # fmt: skip


def _scales(rows: pd.DataFrame) -> list[str]:
    last = largest(rows)
    own = last[last["decay"] == scaled_decay(rows)].sort_values(["model", "scale"], kind="stable")
    return [
        "## Flat or sharp", "",
        "The same regressions with inputs of other sizes, and so with other curvatures. ‖θ̂ − θ*‖² is the error of the "
        "parameters, ‖l̂ − l*‖² that of the losses; the bounds of Proposition 4.1 are Tr((F + Λ)⁻¹) and the soft "
        f"rank of second order. λ = {own['decay'].iloc[0]:g}.", "",
        *markdown_table(
            ["model", "scale", "soft rank", "n × gap", "n‖l̂ − l*‖²", "its bound", "n‖θ̂ − θ*‖²", "Tr(C H⁻²)",
             "its bound"],
            [(row["model"], f"{row['scale']:g}", f"{row['soft_rank']:.3g}", _with_error(row, "gap"),
              _with_error(row, "prediction"), f"{row['prediction_bound']:.3g}", _with_error(row, "distance"),
              f"{row['distance']:.3g}", f"{row['distance_bound']:.3g}") for row in own.to_dict("records")],
        ),
        turning(own), "",
    ]  # fmt: skip


def turning(rows: pd.DataFrame) -> str:
    """Whether the parameters' error falls with curvature all the way, or only beyond the decay."""
    peaks = {model: own.loc[own["distance_seen"].idxmax(), "scale"] for model, own in rows.groupby("model", sort=False)}
    least = rows["scale"].min()
    turned = [model for model, scale in peaks.items() if scale > least]
    falls = "From there on to sharper minima it falls, as the paper says, while the gap grows."
    if not turned:
        return "The error of the parameters is largest where the minimum is flattest. " + falls
    return (
        f"In {len(turned)} of {len(peaks)} models the error of the parameters is largest at a scale of "
        f"{' or '.join(dict.fromkeys(f'{peaks[model]:g}' for model in turned))}, not where the minimum is flattest. "
        + falls
        + " In "
        "directions flatter than the decay the parameters hardly move, and only the bound goes on growing."
    )


def _bounds(rows: pd.DataFrame) -> list[str]:
    return [
        "## Bounds on trained networks", "",
        "h of the whole Fisher matrix beside h of its blocks (Proposition 6.1, Theorem C.2) and the sum of h over "
        "batches (Theorem C.3). Ratios are bound over whole; below 1 the inequality fails.", "",
        *markdown_table(
            ["function", "penalty", "stand-in", "networks", "fail", "least", "median", "most"],
            [(row["function"], row["metric"], row["stand_in"], row["networks"], row["below"], f"{row['least']:.2f}",
              f"{row['median']:.2f}", f"{row['most']:.2f}") for row in rows.to_dict("records")],
        ),
    ]  # fmt: skip


def _penalty(table: pd.DataFrame, rows: pd.DataFrame, settings: Mapping[str, Any]) -> list[str]:
    return [
        "## The penalty at work", "",
        f"A convolutional network on {settings['trained_samples']:,} images of {settings['data']}, 7 × 7 pixels, "
        f"trained with Adam for {settings['gradients']:,} gradients of one sample's loss. A plain step takes {BATCH} "
        f"of them, one of SAM {price('SAM'):.0f}. The penalty is taken on {FEW} samples every {EVERY} steps, at "
        f"{PER_ROW} gradients for each of {FEW * CLASSES} rows: {price('soft rank'):.0f} a step. SAM and the penalty "
        f"have a weight decay of {BASE:g}, and soft ranks are at λ = {BASE:g}. The penalty's strength is in units of "
        f"rank/n. Errors are those of the mean of {int(rows['seeds'].max())} seeds; ★ is the strength that held-out "
        f"images choose.", "",
        *markdown_table(
            ["way", "strength", "steps", "soft rank", "gap", "training loss", "test loss", "accuracy"],
            [(f"{row['arm']}{' ★' if row['chosen'] else ''}", f"{row['strength']:g}", f"{row['steps']:,}",
              f"{row['soft_rank']:.0f} ± {row['soft_rank_stderr']:.0f}",
              *(f"{row[name]:.3f} ± {row[f'{name}_stderr']:.3f}" for name in ("gap", "loss_train", "loss_test")),
              f"{row['accuracy']:.1%}") for row in rows.to_dict("records")],
        ),
        f"{at_the_edge(rows)}{beside_plain(table, rows)}", "",
    ]  # fmt: skip


def at_the_edge(rows: pd.DataFrame) -> str:
    """Which of the chosen strengths are the least or largest that were tried; another might be better still."""
    found = []
    for arm, own in rows.groupby("arm", sort=False):
        best = own.loc[own["chosen"], "strength"].iloc[0]
        if len(own) > 1 and best in (own["strength"].min(), own["strength"].max()):
            found.append(
                f"Of {arm} the {'least' if best == own['strength'].min() else 'largest'} strength tried is chosen"
            )
    return f"{'. '.join(found)}: beyond it there may be a better one. " if found else ""


def beside_plain(table: pd.DataFrame, rows: pd.DataFrame) -> str:
    """What the strongest penalty does to soft rank and gap, beside the same training without it."""
    strongest = ("soft rank", float(rows.loc[rows["arm"] == "soft rank", "strength"].max()))
    rank, rank_stderr = apart(table, strongest, PLAIN, "soft_rank")
    gap, gap_stderr = apart(table, strongest, PLAIN, "gap")
    return (
        f"Beside the same weight decay alone, with {price('soft rank') / price('weight decay'):.1f} times as many "
        f"steps, the strongest penalty changes the soft rank by {rank:.0f} ± {rank_stderr:.0f} and the gap by "
        f"{gap:.3f} ± {gap_stderr:.3f}."
    )


def _range(values: pd.Series) -> str:
    low, high = f"{values.min():.3f}", f"{values.max():.3f}"
    return low if low == high else f"{low} to {high}"


def _apart(rows: pd.DataFrame, name: str) -> str:
    """The largest distance of what was seen from its limit."""
    return f"{(rows[f'{name}_seen'] / rows[name] - 1).abs().max():.1%} of what was seen everywhere"


def _with_error(row: Mapping[str, Any], name: str) -> str:
    return f"{row[f'{name}_seen']:.3g} ± {row[f'{name}_stderr']:.1g}"
