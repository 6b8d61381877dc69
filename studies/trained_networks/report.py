"""What the study shows: a page whose first line is the answer, and the figure that decides it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from basinscope.figure_style import BULK, LINE, POINT, panels
from studies.common.files import csv_files, readme
from studies.common.pages import run_again

from .cases import CLASSES

RANK = "#e08214"
TICKS = (200, 500, 1000, 2000, 5000)


def write(table: pd.DataFrame, origin: Mapping[str, Any], folder: Path) -> Sequence[Path]:
    """Tables, figure and page; their paths."""
    made = {"descent": descent(table), "census": census(table)}
    picture = folder / "trained.png"
    figure(made, origin["settings"]["samples"]).savefig(picture, dpi=130)
    return [*csv_files(made, folder), picture, readme(page(made, origin), folder)]


def descent(table: pd.DataFrame) -> pd.DataFrame:
    """Means over networks of each width, with standard errors; λ̂ also how many of them passed their checks."""
    rows: list[dict[str, Any]] = []
    for width, part in table[table["part"] == "descent"].groupby("width"):
        row: dict[str, Any] = {
            "width": int(width),
            "parameters": int(part["parameters"].iloc[0]),
            "networks": len(part),
        }
        for name in ("train_loss", "test_loss", "test_error", "half_soft_rank", "llc", "basin"):
            row[name] = part[name].mean()
            row[f"{name}_stderr"] = part[name].std(ddof=1) / math.sqrt(len(part))
        row["sound"] = int((part["verdict"] == "ok").sum())
        rows.append({**row, "at_minimum": int((part["at_minimum"] == "yes").sum())})
    return pd.DataFrame(rows)


def census(table: pd.DataFrame) -> pd.DataFrame:
    """A row for each network, with its bound (d − k)/2 and half the rank of the Fisher matrix."""
    rows = table[table["part"] == "census"].copy()
    rows["network"] = ["–".join(map(str, (64, *widths, CLASSES))) for widths in rows["architecture"]]
    rows["bound"] = (rows["parameters"] - rows["proved"]) / 2
    columns = [
        "network", "seed", "parameters", "accuracy", "idle", "rescaling", "proved", "null", "bound", "llc",
        "llc_stderr", "verdict", "half_soft_rank",
    ]  # fmt: skip
    whole = dict.fromkeys(("seed", "parameters", "idle", "rescaling", "proved", "null"), int)
    return rows[columns].astype(whole).reset_index(drop=True)


def figure(made: Mapping[str, pd.DataFrame], samples: int) -> Any:
    """Losses and effective dimension over width; λ̂ of the census over its bound."""
    fig, (left, middle, right) = panels(3, 3, width=4.4, height=3.9)
    rows = made["descent"]
    for axes in (left, middle):
        axes.axvline(samples * CLASSES, color=LINE, linewidth=1.0, linestyle=":", label="weights = outputs × samples")
        axes.set(xscale="log", xlabel="weights of the network")
        axes.set_xticks(TICKS, [f"{tick:,}" for tick in TICKS])
        axes.minorticks_off()
    for name, colour, words in (("test_loss", POINT, "new digits"), ("train_loss", BULK, "training data")):
        left.errorbar(rows["parameters"], rows[name], 2 * rows[f"{name}_stderr"], color=colour, marker="o",
                      markersize=4, capsize=2, linewidth=1.2, label=words)  # fmt: skip
    left.set_ylabel("half the squared error")
    for name, colour, words in (("llc", POINT, "λ̂"), ("half_soft_rank", RANK, "½ soft rank of F")):
        middle.errorbar(rows["parameters"], rows[name], 2 * rows[f"{name}_stderr"], color=colour, marker="s",
                        markersize=4, capsize=2, linewidth=1.2, label=words)  # fmt: skip
    middle.plot(rows["parameters"], rows["basin"], color=BULK, marker="o", markersize=8, markerfacecolor="none",
                linestyle="none", label="basin")  # fmt: skip
    middle.set_ylabel("effective dimension")
    for axes, name in ((left, "test_loss"), (middle, "half_soft_rank")):
        axes.set_ylim(0, 1.35 * float((rows[name] + 2 * rows[f"{name}_stderr"].fillna(0)).max()))
        axes.legend(frameon=True, framealpha=1, edgecolor="none", fontsize=8, loc="upper left")
    bounds = made["census"]
    ends = np.array([0, 1.1 * bounds["bound"].max()])
    right.plot(ends, ends, color=LINE, linewidth=1.5, label="(d − k)/2")
    right.errorbar(bounds["bound"], bounds["llc"], 2 * bounds["llc_stderr"], color=POINT, marker="o", markersize=4,
                   linestyle="none", capsize=2, label="λ̂")  # fmt: skip
    right.scatter(bounds["bound"], bounds["half_soft_rank"], color=RANK, marker="s", s=16, zorder=3,
                  label="½ soft rank of F")  # fmt: skip
    right.set(xlabel="(d − k)/2", ylabel="effective dimension")
    right.legend(frameon=False, fontsize=8)
    return fig


def page(made: Mapping[str, pd.DataFrame], origin: Mapping[str, Any]) -> str:
    """`README.md`."""
    settings, descent, bounds = origin["settings"], made["descent"], made["census"]
    return "\n".join([
        "# Null directions and double descent of trained ReLU networks", "",
        answer(made, settings["samples"]), "",
        "![Double descent, and the census](trained.png)", "",
        "## Through the interpolation threshold", "",
        f"Networks of one hidden layer learn the labels of {settings['samples']} digits, {settings['noise']:.0%} of "
        "which are drawn at random, by least squares. They can fit all labels once they have about as many weights as "
        f"there are outputs, {settings['samples'] * CLASSES:,}. λ̂ is taken where training ended, at nβ = n/log n and "
        f"γ = {settings['gamma']:g}. The basin is what λ̂ would be at the lowest point nearby: the two differ where "
        "training did not end at a minimum. The last columns count networks that are at a minimum, and those whose λ̂ "
        "passed all checks. ½ soft rank is that of the Fisher matrix at the same resolution: it is λ̂ where the loss is "
        "quadratic as far as chains go.", "",
        "| width | weights | training loss | loss on new digits | errors | λ̂ | basin | ½ soft rank | at a minimum "
        "| λ̂ ok |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(
            f"| {row['width']} | {row['parameters']:,} | {row['train_loss']:.3f} | {_with(row, 'test_loss', 3)} | "
            f"{row['test_error']:.0%} | {_with(row, 'llc', 1)} | {_with(row, 'basin', 1)} | "
            f"{_with(row, 'half_soft_rank', 1)} | {row['at_minimum']} | {row['sound']} of {row['networks']} |"
            for row in descent.to_dict("records")
        ), "",
        "## A census of null directions", "",
        f"Classifiers trained on all digits, and then measured on {settings['census_samples']} of them as their own "
        "truth: the targets are the network's own outputs, so that w* is a minimum. *Proved* are the k "
        "independent directions that are flat by a symmetry (rescaling of ReLU units) or because nothing depends on "
        "them (pixels that are always black, units that are never active); *zero* counts the eigenvalues of the Fisher "
        "matrix that are zero to rounding. λ can be no larger than (d − k)/2. "
        f"λ̂ at nβ = {settings['nbeta']:,.0f} and γ = 1 lies below where further directions are too flat to count "
        "at this resolution, as half the soft rank says without sampling.", "",
        "| network | d | accuracy | idle | rescaling | proved k | zero | (d − k)/2 | λ̂ | ½ soft rank | verdict |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *(
            f"| {row['network']} | {row['parameters']} | {row['accuracy']:.0%} | {row['idle']} | {row['rescaling']} | "
            f"{row['proved']} | {row['null']} | {row['bound']:g} | {row['llc']:.1f} ± {row['llc_stderr']:.1f} | "
            f"{row['half_soft_rank']:.1f} | {row['verdict']} |"
            for row in bounds.to_dict("records")
        ), "",
        "## Run it again", "",
        f"{run_again(origin)} Adam takes {settings['steps']:,} steps on all data, {settings['census_steps']:,} for the "
        f"census, with a rate that falls to zero; λ̂ has {settings['budget']:g} nominal seconds, in the census "
        f"{settings['census_budget']:g}.", "",
        "## Limits", "",
        f"Small networks on 8 × 8 images, at least {descent['networks'].min()} of each width and "
        f"{bounds.groupby('network').size().min()} of each architecture. Where the training loss is not near zero, "
        "training did not end at a minimum, and λ̂ is that of the place where it ended. At nβ = n/log n of so few "
        "samples the localiser decides how many directions count.", "",
    ])  # fmt: skip


def answer(made: Mapping[str, pd.DataFrame], samples: int) -> str:
    """The first line: where the loss on new data has its peak, what λ̂ does there, and whether the bound holds."""
    descent, bounds = made["descent"], made["census"]
    said = []
    if len(descent):
        peak, end = descent.loc[descent["test_loss"].idxmax()], descent.iloc[-1]
        inner = descent.index[0] < peak.name < descent.index[-1]
        said.append(
            f"Over width the loss on new digits shows double descent: it has a peak of {peak['test_loss']:.2f} at "
            f"{peak['parameters']:,.0f} weights, with {samples * CLASSES:,} outputs to fit, and falls to "
            f"{end['test_loss']:.2f} at {end['parameters']:,.0f}"
            if inner
            else "Over width the loss on new digits has no peak inside the widths tried (largest at "
            f"{peak['parameters']:,.0f} weights)"
        )
        top = descent.loc[descent["llc"].idxmax()]
        said.append(
            f"λ̂ is {descent['llc'].iloc[0]:.1f} in the narrowest network, {peak['llc']:.1f} where that loss is "
            f"largest, {end['llc']:.1f} in the widest, and nowhere more than {top['llc']:.1f} (at "
            f"{top['parameters']:,.0f} weights)"
        )
    if len(bounds):
        good = int((bounds["llc"] <= bounds["bound"] + 2 * bounds["llc_stderr"]).sum())
        singular = int((bounds["null"] > 0).sum())
        sound = bounds["verdict"] == "ok"
        said.append(
            f"{singular} of {len(bounds)} trained classifiers have null directions ({bounds['null'].min()} to "
            f"{bounds['null'].max()}, of which {bounds['proved'].min()} to {bounds['proved'].max()} are proved)"
        )
        said.append(
            f"λ̂ keeps to its bound (d − k)/2, within two standard errors, in {good} of {len(bounds)}, "
            f"{int(sound.sum())} of which pass their checks"
        )
    return ". ".join(said) + "."


def _with(row: Mapping[str, Any], name: str, digits: int) -> str:
    return f"{row[name]:.{digits}f} ± {row[f'{name}_stderr']:.{digits}f}"
