"""What the study shows: a page whose first line is the answer, and a figure of every task on one axis of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from basinscope.figure_style import BULK, POINT, panels
from studies.common.files import csv_files, readme
from studies.common.pages import in_words, markdown_table, run_again, said_of_scale

SHADES = (POINT, "#e08214", "#1b7837", BULK)
CURVES = {"loss": "loss", "llc_basin": "basin", "in_context_score": "in-context score"}
FORMED = 0.3  # prefix matching from which on a head counts as an induction head


def write(table: pd.DataFrame, origin: Mapping[str, Any], folder: Path) -> Sequence[Path]:
    """Tables, figures and page; their paths."""
    made = tables(table)
    pictures = []
    for task in dict.fromkeys(made["checkpoints"]["task"]):
        pictures.append(folder / f"{task}.png")
        draw(made["checkpoints"], made["stages"], str(task)).savefig(pictures[-1], dpi=120)
    return [*csv_files(made, folder), *pictures, readme(page(made, origin), folder)]


def tables(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Checkpoints, of networks and of their parts, and ends of stages."""
    first = ["task", "seed", "step", "part", "loss", "loss_stderr", "llc", "llc_stderr", "llc_verdict",
             "llc_at_minimum", "llc_basin", "llc_basin_stderr", "llc_drop", "in_context_score",
             "in_context_score_stderr", "prefix_matching", "prefix_matching_stderr", "pc1", "pc2", "pc3"]  # fmt: skip
    ends = ["task", "seed", "curve", "end", "end_low", "end_high", "support"]
    return {
        "checkpoints": table[table["kind"] == "checkpoint"].reindex(columns=first).reset_index(drop=True),
        "stages": table[table["kind"] == "stage"].reindex(columns=ends).reset_index(drop=True),
    }


def summary(made: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Of every training: how it began and ended, when heads formed, and how often the basin rose as the loss fell."""
    rows = []
    for (task, seed), own in made["checkpoints"].groupby(["task", "seed"], sort=False):
        whole, heads = own[own["part"] == ""].sort_values("step"), own[own["prefix_matching"].notna()]
        best = heads.groupby("step")["prefix_matching"].max()
        formed = best[best > FORMED]
        fell = whole["loss"].diff().iloc[1:] < 0
        rose = whole["llc_basin"].diff().iloc[1:] > 0
        rows.append({
            "task": task, "seed": seed, "checkpoints": len(whole), "first_loss": whole["loss"].iloc[0],
            "last_loss": whole["loss"].iloc[-1], "in_context": whole["in_context_score"].iloc[-1],
            "in_context_stderr": whole["in_context_score_stderr"].iloc[-1],
            "prefix": float(best.iloc[-1]) if len(best) else np.nan,
            "formed": float(formed.index[0]) if len(formed) else np.nan,
            "first_basin": whole["llc_basin"].iloc[0], "last_basin": whole["llc_basin"].iloc[-1],
            "last_basin_stderr": whole["llc_basin_stderr"].iloc[-1],
            "opposed": float((fell & rose).sum() / max(1, fell.sum())),
        })  # fmt: skip
    return pd.DataFrame(rows)


def shared_ends(stages: pd.DataFrame) -> tuple[int, int]:
    """How many ends of stages of the basin overlap with one of the loss of the same training, of how many."""
    basins = stages[stages["curve"] == "llc_basin"]
    met = 0
    for end in basins.to_dict("records"):
        other = stages[(stages["curve"] == "loss") & (stages["task"] == end["task"]) & (stages["seed"] == end["seed"])]
        met += bool(((other["end_low"] <= end["end_high"]) & (other["end_high"] >= end["end_low"])).any())
    return met, len(basins)


def draw(checkpoints: pd.DataFrame, stages: pd.DataFrame, task: str) -> Any:
    """Loss, basin, in-context score and prefix matching or the path, one below the other, over the same steps."""
    own = checkpoints[checkpoints["task"] == task]
    extra = {
        "prefix matching": ("prefix_matching", own[own["prefix_matching"].notna()]),
        "basin of a part": ("llc_basin", own[(own["part"] != "") & own["llc_basin"].notna()]),
    }
    extra = {label: (name, rows) for label, (name, rows) in extra.items() if len(rows)}
    drawn, axes = panels(4 + len(extra), 1, width=8.0, height=2.3)
    for seed, lines in own.groupby("seed"):
        shade = SHADES[int(seed) % len(SHADES)]
        whole = lines[lines["part"] == ""].sort_values("step")
        for panel, name in zip(axes, CURVES, strict=False):
            error = 2 * whole[f"{name}_stderr"].fillna(0)
            panel.errorbar(whole["step"], whole[name], error, color=shade, marker=".", capsize=2, label=f"seed {seed}")
            ends = stages[(stages["task"] == task) & (stages["seed"] == seed) & (stages["curve"] == name)]
            for end in ends.to_dict("records"):
                panel.axvspan(end["end_low"], end["end_high"], color=shade, alpha=0.12)
                panel.axvline(end["end"], color=shade, linewidth=0.8, linestyle=":")
        for axis, style in ((1, "-"), (2, "--")):
            axes[3].plot(whole["step"], whole[f"pc{axis}"], style, color=shade)
        for panel, (name, rows) in zip(axes[4:], extra.values(), strict=True):
            for part, line in rows[rows["seed"] == seed].groupby("part"):
                width = 1.0 if "head" in str(part) else 2.5
                panel.plot(line["step"], line[name], color=shade, alpha=0.6, linewidth=width)
    if "basin of a part" in extra:
        axes[-1].set_yscale("log")
    for panel, label in zip(axes, [*CURVES.values(), "principal axes", *extra], strict=True):
        panel.set(xscale="log", ylabel=label)
    axes[0].legend(frameon=False, fontsize=8)
    axes[-1].set_xlabel("step")
    return drawn


def page(made: Mapping[str, pd.DataFrame], origin: Mapping[str, Any]) -> str:
    """`README.md`."""
    results = summary(made)
    whole = made["checkpoints"][made["checkpoints"]["part"] == ""]
    return "\n".join([
        "# Does λ̂ mark the stages of a transformer's training?", "",
        answer(made) + said_of_scale(origin["scale"]), "",
        *[f"![{task} through training]({task}.png)\n" for task in dict.fromkeys(results["task"])],
        "## The trainings", "",
        "Text is learnt by two layers of attention alone; regression in context by layers with an MLP. Shades are "
        "intervals of where a stage ends. A stage is a straight piece of the curve over the logarithm of the step.", "",
        *markdown_table(
            ["task", "seed", "loss", "basin at the end", "in-context score", "best prefix matching", "over "
             f"{FORMED:g} from step", "basin rises where the loss falls"],
            [
                (row["task"], row["seed"], f"{row['first_loss']:.3g} → {row['last_loss']:.3g}",
                 f"{row['last_basin']:.3g} ± {row['last_basin_stderr']:.2g}",
                 f"{row['in_context']:.3f} ± {row['in_context_stderr']:.3f}".replace("-", "−"),
                 _or_none(row["prefix"], ".2f"), _or_none(row["formed"], ".0f"), f"{row['opposed']:.0%}")
                for row in results.to_dict("records")
            ],
        ),
        "## Ends of stages", "",
        *markdown_table(
            ["task", "seed", "curve", "at step", "90 % interval", "same number of stages in resampled curves"],
            [
                (row["task"], row["seed"], CURVES[row["curve"]], f"{row['end']:.0f}",
                 f"{row['end_low']:.0f} to {row['end_high']:.0f}", f"{row['support']:.0%}")
                for row in made["stages"].to_dict("records")
            ],
        ),
        *_heads(made["checkpoints"]),
        f"Verdicts of the networks' λ̂: {in_words(whole['llc_verdict'])}.", "",
        "The stage-wise story is that of Hoogland et al. 2024 (https://arxiv.org/abs/2402.02364) and of Wang et al. "
        "2024 (https://arxiv.org/abs/2410.02984).", "",
        "## Run it again", "",
        f"{run_again(origin)} All checkpoints of a training share the seed, γ = d/‖w*‖² of the last one, and "
        "nβ = n/log n of the measured sequences for a loss that is the mean over positions, as the papers have it. "
        "Losses here are per position.", "",
        "## Limits", "",
        "Everything is measured on the first sequences that the network was trained on. The text ends with sources of "
        "installed packages where the files of text are not long enough: `data` in the table is a digest of it.", "",
    ])  # fmt: skip


def induction_heads(checkpoints: pd.DataFrame) -> pd.DataFrame:
    """The head of each training that matches prefixes best in the end, and its basin beside that of the other heads."""
    rows = []
    for (task, seed), own in checkpoints[checkpoints["prefix_matching"].notna()].groupby(["task", "seed"], sort=False):
        known = own[own["llc_basin"].notna()]
        if not len(known):
            continue
        last = known[known["step"] == known["step"].max()].set_index("part")
        best = last["prefix_matching"].idxmax()
        others = last.drop(best)["llc_basin"]
        first = known[(known["part"] == best) & (known["step"] == known["step"].min())].iloc[0]
        rows.append({
            "task": task, "seed": seed, "head": best, "prefix_matching": last.loc[best, "prefix_matching"],
            "prefix_matching_stderr": last.loc[best, "prefix_matching_stderr"], "first": first["llc_basin"],
            "first_stderr": first["llc_basin_stderr"], "last": last.loc[best, "llc_basin"],
            "last_stderr": last.loc[best, "llc_basin_stderr"], "others": others.median(), "least": others.min(),
            "most": others.max(), "ok": int((known["llc_verdict"] == "ok").sum()), "known": len(known),
        })  # fmt: skip
    return pd.DataFrame(rows)


def _heads(checkpoints: pd.DataFrame) -> list[str]:
    """The section on heads, where λ̂ of heads was measured."""
    found = induction_heads(checkpoints)
    if not len(found):
        return []
    return [
        "## The head that matches prefixes best", "",
        "Basins are those of one head with all else held fixed. Others are all other heads at the end: their median, "
        "the least and the most.", "",
        *markdown_table(
            ["task", "seed", "head", "prefix matching", "its basin", "basins of others", "λ̂ of heads ok"],
            [
                (row["task"], row["seed"], row["head"],
                 f"{row['prefix_matching']:.2f} ± {row['prefix_matching_stderr']:.2f}",
                 f"{row['first']:.3g} ± {row['first_stderr']:.2g} → {row['last']:.3g} ± {row['last_stderr']:.2g}",
                 f"{row['others']:.3g} ({row['least']:.3g} to {row['most']:.3g})", f"{row['ok']} of {row['known']}")
                for row in found.to_dict("records")
            ],
        ),
    ]  # fmt: skip


def answer(made: Mapping[str, pd.DataFrame]) -> str:
    """The first line: do basin and loss share the ends of their stages, and did the basin rise as the loss fell?"""
    results, (met, count) = summary(made), shared_ends(made["stages"])
    formed = int(results["formed"].notna().sum())
    texts = int((results["task"] == "text").sum())
    said = [
        f"Of {count} ends of stages that the basin has, {met} overlap with one of the loss."
        if count else "The basin shows no end of a stage in any training.",
        f"Between checkpoints where the loss falls, the basin rises in {results['opposed'].mean():.0%}.",
    ]  # fmt: skip
    if texts:
        said.append(f"Heads that match prefixes form in {formed} of {texts} trainings on text.")
    return " ".join(said)


def _or_none(value: float, form: str) -> str:
    return "" if pd.isna(value) else format(value, form)
