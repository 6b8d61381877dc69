"""What the study shows: a page whose first line is the answer, a table for each part, and two figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from basinscope.figure_style import BULK, LINE, POINT, panels
from studies.common.files import csv_files, readme
from studies.common.pages import markdown_table, run_again

OTHER = "#e08214"
INDUCTION = 0.2  # attention to what followed, from which on a head counts as one
COLUMNS = {
    "regression": ["method", "samples", "entries", "correlation", "error", "z_spread", "z_mean", "verdict"],
    "retraining": ["data", "method", "dampened", "seed", "score", "stderr", "accuracy", "parameters"],
    "mislabelled": ["data", "method", "seed", "precision"],
    "kernel": [
        "one", "other", "value", "within", "between", "twice", "planted", "found", "apart", "stderr", "verdict",
    ],
    "heads": ["head", "attends", "probe", "value", "stderr", "verdict"],
    "audit": ["kind", "right", "verdict", "said", "llc", "exact"],
}  # fmt: skip
NAMES = {
    "draws": "Bayesian influence", "controlled": "Bayesian, EK-FAC as control variate", "EK-FAC": "EK-FAC",
    "gradients": "products of gradients (TracIn)", "loss": "the loss itself",
}  # fmt: skip


def write(table: pd.DataFrame, origin: Mapping[str, Any], folder: Path) -> Sequence[Path]:
    """Tables, figures and page; their paths."""
    made = tables(table)
    pictures = {"kernel": draw_kernel, "heads": draw_heads}
    paths = []
    for name, draw in pictures.items():
        if len(made[name]):
            paths.append(folder / f"{name}.png")
            draw(made[name]).savefig(paths[-1], dpi=130)
    return [*csv_files(made, folder), *paths, readme(page(made, origin), folder)]


def tables(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The rows of each part."""
    return {
        part: table[table["part"] == part].reindex(columns=names).reset_index(drop=True)
        for part, names in COLUMNS.items()
    }


def scores(made: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The datamodeling score of each method on each data set: mean over seeds, of the damping that is best for it."""
    means = made["retraining"].groupby(["data", "method", "dampened"], dropna=False)[["score", "stderr"]].mean()
    rows = means.reset_index().sort_values("score", ascending=False)
    return rows.drop_duplicates(["data", "method"]).sort_values(["data", "score"], ascending=[True, False])


def draw_kernel(rows: pd.DataFrame) -> Any:
    """Means of the kernel between classes, and of its kinds of pairs."""
    drawn, (left, right) = panels(2, 2, width=4.6, height=4.0)
    matrix = np.full((10, 10), np.nan)
    for row in rows[rows["one"].notna()].to_dict("records"):
        one, other = int(row["one"]), int(row["other"])
        matrix[one, other] = matrix[other, one] = row["value"]
    shown = left.imshow(matrix, cmap="RdBu_r", vmin=-np.nanmax(np.abs(matrix)), vmax=np.nanmax(np.abs(matrix)))
    drawn.colorbar(shown, ax=left, fraction=0.046)
    left.set(xlabel="digit", ylabel="digit", title="mean kernel between classes")
    left.set_xticks(range(10))
    left.set_yticks(range(10))
    summary = rows[rows["within"].notna()].iloc[0]
    kinds = {"same image": "twice", "same class": "within", "other class": "between"}
    right.bar(list(kinds), [summary[name] for name in kinds.values()], color=[POINT, BULK, OTHER])
    right.axhline(0, color=LINE, linewidth=0.8)
    right.set(ylabel="mean kernel", title="kinds of pairs")
    return drawn


def draw_heads(rows: pd.DataFrame) -> Any:
    """Susceptibilities of heads with two standard errors, over how much each attends to what followed."""
    drawn, (axes,) = panels(1, 1, width=6.0, height=4.2)
    for probe, colour, marker in (("repeating", POINT, "o"), ("not repeating", OTHER, "s")):
        own = rows[rows["probe"] == probe]
        axes.errorbar(own["attends"], own["value"], 2 * own["stderr"], color=colour, marker=marker, linestyle="none",
                      capsize=3, label=f"text {probe}")  # fmt: skip
    axes.axhline(0, color=LINE, linewidth=0.8)
    axes.set(xlabel="attention to the token that followed before", ylabel="susceptibility χ (nats²)")
    axes.legend(frameon=False)
    return drawn


def page(made: Mapping[str, pd.DataFrame], origin: Mapping[str, Any]) -> str:
    """`README.md`."""
    settings = origin["settings"]
    parts = [_regression(made), _retraining(made, settings), _mislabelled(made, settings), _kernel(made),
             _heads(made, settings), _audit(made)]  # fmt: skip
    return "\n".join([
        "# What do chains know besides λ̂?", "",
        " ".join(f"{clause[0].upper()}{clause[1:]}." for clause in answers(made)), "",
        *(line for part in parts for line in part),
        "## Run it again", "", run_again(origin), "",
        "## Limits", "",
        "Networks of about a thousand parameters, on hundreds of samples, at one nβ. Every method has the damping that "
        "is best for it among those tried, which nobody knows beforehand. Heads belong to one trained transformer.", "",
    ])  # fmt: skip


def answers(made: Mapping[str, pd.DataFrame]) -> list[str]:
    """What was found, a clause for each part."""
    said = []
    exact = made["regression"]
    if len(exact):
        said.append(f"Influences on a regression correlate with the exact ones by {exact['correlation'].min():.4f} "
                    f"at least, and their z-scores spread by {exact['z_spread'].min():.2f} to "
                    f"{exact['z_spread'].max():.2f}")  # fmt: skip
    best = scores(made)
    for data in best["data"].unique():
        own = best[best["data"] == data].set_index("method")["score"]
        said.append(f"on {data} the Bayesian influence predicts retraining with a rank correlation of "
                    f"{own[['draws', 'controlled']].max():.2f}, EK-FAC with {own['EK-FAC']:.2f}, products of gradients "
                    f"with {own['gradients']:.2f}")  # fmt: skip
    pairs = made["kernel"][made["kernel"]["within"].notna()]
    if len(pairs):
        row = pairs.iloc[0]
        said.append(f"the kernel of losses finds {row['found']:.0f} of {row['planted']:.0f} duplicates, and puts two "
                    f"images of one class above two of different ones with a chance of {row['apart']:.0%}")  # fmt: skip
    if len(made["heads"]):
        said.append(standing_out(made["heads"]).removesuffix("."))
    judged = made["audit"]
    if len(judged):
        sound, others = judged[judged["kind"] == "sound"], judged[judged["kind"] != "sound"]
        said.append(f"the auditor names the defect in {int(others['right'].sum())} of {len(others)} chains that have "
                    f"one, and passes {int(sound['right'].sum())} of {len(sound)} sound ones")  # fmt: skip
    return said or ["Nothing has been measured yet"]


def _regression(made: Mapping[str, pd.DataFrame]) -> list[str]:
    rows = made["regression"]
    if rows.empty:
        return []
    return [
        "## Influence beside exact values", "",
        "A linear regression, whose covariances of losses are known in closed form "
        "(`exact.finite.covariance`). z is the error in standard errors.", "",
        *markdown_table(
            ["method", "samples", "entries", "correlation", "relative error", "spread of z", "mean of z", "verdict"],
            [(NAMES[row["method"]], f"{row['samples']:.0f}", f"{row['entries']:,.0f}", f"{row['correlation']:.5f}",
              f"{row['error']:.1%}", f"{row['z_spread']:.2f}", f"{row['z_mean']:+.2f}", row["verdict"])
             for row in rows.to_dict("records")],
        ),
    ]  # fmt: skip


def _retraining(made: Mapping[str, pd.DataFrame], settings: Mapping[str, Any]) -> list[str]:
    best = scores(made)
    if best.empty:
        return []
    accuracy, size = made["retraining"]["accuracy"].mean(), made["retraining"]["parameters"].max()
    return [
        "## Influence beside retraining", "",
        f"Networks of one hidden layer, at most {size:,.0f} parameters, are trained on {settings['samples']} images "
        f"and name {accuracy:.0%} of unseen ones. Each is trained again on {settings['subsets']} random halves. The "
        f"score is the rank correlation, over halves, of the loss of a query with the summed influence of the half's "
        f"samples: the linear datamodeling score, mean over {settings['queries']} queries "
        f"of {settings['seeds']} seed(s). γ is so many times nβ·decay; the best for each method is shown.", "",
        *markdown_table(
            ["data", "method", "γ", "score"],
            [(row["data"], NAMES[row["method"]], "–" if np.isnan(row["dampened"]) else f"{row['dampened']:g}",
              f"{row['score']:.3f} ± {row['stderr']:.3f}") for row in best.to_dict("records")],
        ),
    ]  # fmt: skip


def _mislabelled(made: Mapping[str, pd.DataFrame], settings: Mapping[str, Any]) -> list[str]:
    rows = made["mislabelled"]
    if rows.empty:
        return []
    means = rows.groupby(["data", "method"])["precision"].mean().unstack()
    names = [name for name in NAMES if name in means]
    return [
        "## Wrong labels", "",
        f"One label in {1 / settings['share']:.0f} is wrong. Of as many samples as that, those with the largest "
        f"self-influence: the share whose label is wrong, of {settings['seeds']} seed(s).", "",
        *markdown_table(["data", *(NAMES[name] for name in names)],
                        [(data, *(f"{means.loc[data, name]:.0%}" for name in names)) for data in means.index]),
    ]  # fmt: skip


def _kernel(made: Mapping[str, pd.DataFrame]) -> list[str]:
    rows = made["kernel"]
    if rows.empty:
        return []
    row = rows[rows["within"].notna()].iloc[0]
    return [
        "## The kernel of losses", "",
        "![The kernel between classes, and of kinds of pairs](kernel.png)", "",
        f"Of {row['planted']:.0f} images that are there twice, {row['found']:.0f} are among as many most alike pairs; "
        f"their mean kernel is {row['twice']:.2f}. Two images of one class have {row['within']:.3f}, of different "
        f"classes {row['between']:.3f}; a pair of the first kind is above one of the second with a chance of "
        f"{row['apart']:.0%}. The standard error of an entry is {row['stderr']:.2f}.", "",
    ]  # fmt: skip


def _heads(made: Mapping[str, pd.DataFrame], settings: Mapping[str, Any]) -> list[str]:
    rows = made["heads"]
    if rows.empty:
        return []
    wide = rows.pivot(index="head", columns="probe")
    order = wide["attends"]["repeating"].sort_values(ascending=False).index
    return [
        "## Heads of a transformer", "",
        "![Susceptibilities over attention](heads.png)", "",
        "Two layers of attention, trained on text that repeats and text that does not. An induction head attends to "
        "what followed the present token before. χ is minus the covariance of the loss with the probe's loss less the "
        f"data's, over the posterior of the head alone (nβ = {settings['nbeta']:g}, γ = {settings['gamma']:g}).", "",
        *markdown_table(
            ["head", "attends to what followed", "χ, repeating", "χ, not repeating"],
            [(head, f"{wide['attends']['repeating'][head]:.2f}", *(
                f"{wide['value'][probe][head]:.2g} ± {wide['stderr'][probe][head]:.1g}"
                for probe in ("repeating", "not repeating")
            )) for head in order],
        ),
        f"{standing_out(rows)} The verdict on the draws is `{rows['verdict'].iloc[0]}`.", "",
    ]  # fmt: skip


def standing_out(rows: pd.DataFrame) -> str:
    """Whether heads that attend to what followed differ from the others in χ on text that repeats."""
    own = rows[rows["probe"] == "repeating"]
    means: list[tuple[float, float]] = []
    for chosen in (own["attends"] > INDUCTION, own["attends"] <= INDUCTION):
        group = own[chosen]
        if group.empty:
            return "No head is an induction head." if not means else "Every head is an induction head."
        means.append((group["value"].mean(), np.sqrt((group["stderr"] ** 2).sum()) / len(group)))
    apart, stderr = means[0][0] - means[1][0], float(np.hypot(means[0][1], means[1][1]))
    words = "they stand out" if abs(apart) > 3 * stderr else "at this precision they do not stand out"
    return (
        f"The χ of induction heads less that of the others is {apart:.2f} ± {stderr:.2f} on text that repeats: {words}."
    )


def _audit(made: Mapping[str, pd.DataFrame]) -> list[str]:
    rows = made["audit"]
    if rows.empty:
        return []
    return [
        "## The auditor", "",
        "Exact Langevin chains of a quadratic whose λ_t is known, sound or with one defect.", "",
        *markdown_table(
            ["kind", "told rightly", "λ̂ in the median", "λ_t"],
            [(kind, f"{int(own['right'].sum())} of {len(own)}", f"{own['llc'].median():.3g}",
              f"{own['exact'].iloc[0]:.3g}") for kind, own in rows.groupby("kind", sort=False)],
        ),
    ]  # fmt: skip
