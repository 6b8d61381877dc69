"""What the study shows: a page whose first line is the answer, and the figures that decide it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from basinscope.figure_style import BULK, LINE, POINT, panels
from studies.common.files import csv_files, readme
from studies.common.pages import in_words, markdown_table, run_again

from .kgons import BY_NAME, KGONS, coefficient, place, potential

SHADES = (POINT, "#e08214", "#1b7837", BULK, "#c51b7d", "#35978f")
_NEAR = 0.004  # of a plateau's loss, the floor's distance from that of the k-gon it looks like


def write(table: pd.DataFrame, origin: Mapping[str, Any], folder: Path) -> Sequence[Path]:
    """Tables, figures and page; their paths."""
    made = tables(table)
    pictures = [folder / "kgons.png"]
    draw_kgons(made["kgons"]).savefig(pictures[0], dpi=130)
    if len(made["trainings"]):
        pictures.append(folder / "trainings.png")
        draw_trainings(made["trainings"]).savefig(pictures[1], dpi=130)
    return [*csv_files(made, folder), *pictures, readme(page(made, origin), folder)]


def tables(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """K-gons, moments of trainings, and the jumps between k-gons."""
    columns = {
        "kgon": ["kgon", "exact", "llc", "llc_stderr", "llc_verdict", "population_loss", "published_loss", "loss"],
        "training": ["start", "seed", "step", "loss", "shape", "llc", "llc_stderr", "llc_verdict", "llc_basin",
                     "llc_basin_stderr", "llc_drop", "llc_at_minimum", "llc_nbeta"],
    }  # fmt: skip
    kgons, trainings = (
        table[table["part"] == part].reindex(columns=names).reset_index(drop=True) for part, names in columns.items()
    )
    trainings["floor"] = trainings["loss"] - trainings["llc_drop"] / trainings["llc_nbeta"]
    kgons["error"] = kgons["llc"] / kgons["exact"] - 1
    return {"kgons": kgons, "trainings": trainings, "jumps": jumps(trainings)}


def jumps(trainings: pd.DataFrame) -> pd.DataFrame:
    """Steps from one k-gon to another within a training, with what floor and basin did.

    A moment counts where λ̂ has not failed and the floor of its basin lies at the loss of the k-gon it looks like.
    """
    rows = []
    for (start, seed), moments in trainings.groupby(["start", "seed"], sort=False):
        settled = [moment for moment in moments.to_dict("records") if _at_kgon(moment)]
        for before, after in pairwise(settled):
            if before["shape"] != after["shape"]:
                rows.append({
                    "start": start, "seed": seed, "step": after["step"], "before": before["shape"],
                    "after": after["shape"], "loss_fell": before["floor"] - after["floor"],
                    "basin_rose": after["llc_basin"] - before["llc_basin"],
                    "stderr": (before["llc_basin_stderr"] ** 2 + after["llc_basin_stderr"] ** 2) ** 0.5,
                    "theory": coefficient(BY_NAME[after["shape"]]) - coefficient(BY_NAME[before["shape"]]),
                })  # fmt: skip
    names = ["start", "seed", "step", "before", "after", "loss_fell", "basin_rose", "stderr", "theory"]
    return pd.DataFrame(rows, columns=names)


def _at_kgon(moment: Mapping[str, Any]) -> bool:
    kgon = BY_NAME.get(moment["shape"])
    return (
        kgon is not None
        and moment["llc_verdict"] != "failed"
        and abs(moment["floor"] - potential(*place(kgon))) < _NEAR
    )


def draw_kgons(kgons: pd.DataFrame) -> Any:
    """λ̂ over λ of every k-gon, and the k-gons themselves by loss."""
    drawn, (left, right) = panels(2, 2, width=5.0, height=4.0)
    low, high = kgons["exact"].min() - 0.7, kgons["exact"].max() + 0.7
    left.plot([low, high], [low, high], color=LINE, linewidth=1.2, label="λ̂ = λ")
    for place_of, row in enumerate(kgons.to_dict("records")):
        aside = 0.09 * ((place_of % 3) - 1)
        left.errorbar(row["exact"] + aside, row["llc"], 2 * row["llc_stderr"], color=POINT, marker="o", capsize=3)
        left.annotate(row["kgon"], (row["exact"] + aside, row["llc"]), xytext=(6, -9), textcoords="offset points",
                      fontsize=9)  # fmt: skip
        right.errorbar(row["population_loss"], row["llc"], 2 * row["llc_stderr"], color=POINT, marker="o", capsize=3)
        right.plot(row["population_loss"], row["exact"], color=LINE, marker="_", markersize=18, linestyle="none")
        right.annotate(row["kgon"], (row["population_loss"], row["llc"]), xytext=(6, -9), textcoords="offset points",
                       fontsize=9)  # fmt: skip
    left.set(xlabel="λ from the geometry", ylabel="λ̂, sampled, ± 2 standard errors")
    left.legend(frameon=False, fontsize=8, loc="upper left")
    right.set(xlabel="loss", ylabel="λ̂ (dots) and λ (bars)")
    return drawn


def draw_trainings(trainings: pd.DataFrame) -> Any:
    """Above: the loss of every training. Below: basin on the same axis of steps, without what failed and hollow where
    it is doubtful. Dotted: the k-gons."""
    starts = list(dict.fromkeys(trainings["start"]))
    drawn, axes = panels(2 * len(starts), len(starts), width=5.2, height=3.2)
    for column, start in enumerate(starts):
        upper, lower = axes[column], axes[len(starts) + column]
        own = trainings[trainings["start"] == start]
        for seed, moments in own.groupby("seed"):
            shade = SHADES[int(seed) % len(SHADES)]
            upper.plot(moments["step"], moments["loss"], color=shade, marker=".", label=f"seed {int(seed)}")
            known = moments[moments["llc_verdict"] != "failed"]
            lower.errorbar(known["step"], known["llc_basin"], 2 * known["llc_basin_stderr"], color=shade, capsize=2)
            sound = known["llc_verdict"] == "ok"
            lower.plot(known["step"][sound], known["llc_basin"][sound], "o", color=shade, markersize=4)
            lower.plot(known["step"][~sound], known["llc_basin"][~sound], "o", color=shade, markersize=4,
                       fillstyle="none")  # fmt: skip
        for kgon in KGONS:
            upper.axhline(potential(*place(kgon)), color=LINE, linewidth=0.7, linestyle=":")
            upper.annotate(kgon.name, (own["step"].max() * 1.1, potential(*place(kgon))), fontsize=8, va="center")
        for level in sorted({coefficient(kgon) for kgon in KGONS}):
            names = ", ".join(kgon.name for kgon in KGONS if coefficient(kgon) == level)
            lower.axhline(level, color=LINE, linewidth=0.7, linestyle=":")
            lower.annotate(names, (own["step"].max() * 1.1, level), fontsize=8, va="center")
        upper.set(xscale="log", ylim=(0.04, 0.18), ylabel="loss", title=f"start: {start}")
        lower.set(xscale="log", ylim=(5, 10), xlabel="step", ylabel="basin")
        upper.legend(frameon=False, fontsize=8, loc="lower left")
    return drawn


def page(made: Mapping[str, pd.DataFrame], origin: Mapping[str, Any]) -> str:
    """`README.md`."""
    settings, kgons, moved = origin["settings"], made["kgons"], made["jumps"]
    trainings = made["trainings"]
    return "\n".join([
        "# Does sampling find the coefficients of the k-gons, and does training climb them?", "",
        answer(made), "",
        "![λ̂ of the k-gons beside theory](kgons.png)", "",
        "## The k-gons", "",
        "The toy model of superposition puts six features into two dimensions (Elhage et al. 2022). Among its minima "
        "are regular polygons. A plus marks a feature that answers with its mean; the other features without a corner "
        "are dead. λ follows from the geometry: it is half the number of directions in which the loss rises. "
        f"{_remembered(kgons)}", "",
        *markdown_table(
            ["k-gon", "loss", "published", "λ", "λ̂", "error", "verdict"],
            [
                (row["kgon"], f"{row['population_loss']:.5f}", _published(row["published_loss"]), f"{row['exact']:g}",
                 f"{row['llc']:.3f} ± {row['llc_stderr']:.3f}", f"{row['error']:+.1%}".replace("-", "−"),
                 row["llc_verdict"])
                for row in kgons.to_dict("records")
            ],
        ),
        "λ does not simply rise as the loss falls. Up to four corners the biases are zero, and then dead features are "
        "pinned, because moving them makes a corner fire. From five corners on negative biases shield the corners, so "
        "that dead features cost nothing. The pentagon has therefore both a lower loss and a lower λ than the square.",
        "",
        "## Trainings", "",
        "![Loss and basin along trainings](trainings.png)", "",
        f"Gradient descent at rate {settings['rate']:g} on all inputs. {_noises(settings)} Above is the loss, "
        "below the basin on the same axis: hollow where it is doubtful, left out where it failed. Dotted lines are "
        "the k-gons.", "",
        *markdown_table(
            ["start", "seed", "by step", "from", "to", "loss fell by", "basin rose by", "theory"],
            [
                (row["start"], int(row["seed"]), int(row["step"]), row["before"], row["after"],
                 f"{row['loss_fell']:.4f}",
                 f"{row['basin_rose']:+.2f} ± {row['stderr']:.2f}".replace("-", "−"),
                 f"{row['theory']:+g}".replace("-", "−"))
                for row in moved.to_dict("records")
            ],
        ),
        f"Verdicts along the trainings: {in_words(trainings['llc_verdict'])}. Early in training, and in noise, weights "
        "are at no minimum at this resolution. Then λ̂ is the basin less a large drop, and the basin is compared; where "
        "no minimum is near, chains run away and λ̂ fails.", "",
        "## Run it again", "",
        f"{run_again(origin)} nβ is {settings['nbeta'][0]:,.0f} at k-gons and {settings['nbeta'][1]:,.0f} along "
        f"trainings, γ = {settings['gamma']:g}; "
        f"{settings['budget'][0]:g} nominal seconds at a k-gon and {settings['budget'][1]:g} at a checkpoint.", "",
        "## Limits", "",
        "Six features only. The k-gons listed are minima; saddles are left out. Inputs are a grid of "
        f"{settings['each']} sizes of each feature, on which losses differ from those of all inputs in the fifth "
        "digit. Noise is the same in all directions, unlike that of minibatches.", "",
        "nβ along trainings, their noise and their starts were chosen after a first look at trainings with other "
        "values. So the trainings show what can happen; how often it does, they do not say.", "",
    ])  # fmt: skip


def answer(made: Mapping[str, pd.DataFrame]) -> str:
    """The first line: errors at the k-gons, and what jumps did to loss and basin."""
    kgons, moved = made["kgons"], made["jumps"]
    away = ((kgons["llc"] - kgons["exact"]) / kgons["llc_stderr"]).abs().max()
    said = [
        f"Sampled λ̂ is within {kgons['error'].abs().max():.1%} of theory at all {len(kgons)} k-gons, at most "
        f"{away:.1f} standard errors from it."
    ]
    if len(moved):
        opposed = (moved["theory"] > 0).sum()
        close = ((moved["basin_rose"] - moved["theory"]).abs() < 3 * moved["stderr"]).sum()
        said.append(
            f"Trainings jump {len(moved)} times from one k-gon to another: the loss falls in "
            f"{(moved['loss_fell'] > 0).sum()} of these jumps, and the basin changes as theory says, within three "
            f"standard errors, in {close}."
        )
        said.append(
            f"In {opposed} jumps λ is to rise as the loss falls, the opposing staircases of Chen et al.; in the other "
            f"{len(moved) - opposed} it is to stay or to fall."
        )
    return " ".join(said)


def _noises(settings: Mapping[str, Any]) -> str:
    """Which starts have which noise."""
    each = [f"from a start that is {start}" if start == "random" else f"near {start}" for start in settings["starts"]]
    said = [
        f"{where} with noise of {noise:g} on every gradient" if noise else f"{where} without noise"
        for where, noise in zip(each, settings["noise"], strict=True)
    ]
    return f"It runs {'; '.join(said)}. Without noise it never leaves a minimum."


def _remembered(kgons: pd.DataFrame) -> str:
    """Where the losses beside the published ones come from, and whether they agree."""
    known = kgons.dropna(subset=["published_loss"])
    agree = (known["population_loss"].round(5) == known["published_loss"]).all()
    return (
        "Losses are calculated here, by the closed form of the mean over all inputs. Those of Chen et al. 2023 are "
        "quoted from memory; the calculation, which does not use them, gives "
        f"{'the same' if agree else 'other'} digits."
    )


def _published(loss: float) -> str:
    return "" if pd.isna(loss) else f"{loss:.5f}"
