"""A figure for each part, from its table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from basinscope.figure_style import panels

from .tables import BIASED

if TYPE_CHECKING:
    import pandas as pd

OURS, THEIRS, GREY, RANK = "#2166ac", "#b2182b", "#777777", "#e08214"
METHODS = {
    "calibrated": (OURS, "o", "calibrated, no tuning"),
    "minibatch": ("#67a9cf", "s", "the same, minibatches alone"),
    "published": (THEIRS, "x", "published protocol"),
}
CASES = {
    "quadratic": "quadratic basin", "chain": "3-2-1-3 linear, truth zero", "network": "5-4-4 linear, rank 3",
    "real": "trained classifier, its own labels",
}  # fmt: skip
VERDICTS = {"ok": (OURS, "λ̂"), "doubtful": ("white", "λ̂, doubtful")}  # how a mark is filled, and what it is called
MAPS = (("nbeta", "step_size"), ("batch_size", "step_size"))  # of the atlas: across, and up
AXES = {"gamma": "γ", "nbeta": "nβ", "step_size": "ε", "length": "chain length", "batch_size": "batch size"}


def draw(table: pd.DataFrame, made: Mapping[str, pd.DataFrame], folder: Path) -> list[Path]:
    """Write the figures of all parts that there are; their paths."""
    figures: dict[str, Any] = {}
    if "truth" in made:
        figures["truth"] = figure_truth(made["truth"])
    if "resolution" in made:
        figures["resolution"] = figure_resolution(made["resolution"])
    if "atlas" in made:
        for case, cells in made["atlas"].groupby("case", sort=False):
            figures[f"atlas_{case}"] = figure_atlas(cells)
    if "entropy" in made:
        figures["entropy"] = figure_entropy(made["entropy"])
    if "beyond_training" in made:
        figures["beyond_training"] = figure_training(made["beyond_training"])
    if "beyond_parts" in made:
        figures["beyond_parts"] = figure_parts(made["beyond_parts"])
    written = []
    for name, figure in figures.items():
        written.append(folder / f"{name}.png")
        figure.savefig(written[-1], dpi=110)
    return written


def figure_truth(table: pd.DataFrame) -> Any:
    """λ̂ against λ on both axes in log, and the relative error against the number of parameters."""
    fig, (left, right) = panels(2, 2, 5.2, 4.2)
    for method, rows in table.groupby("method", sort=False):
        ink, marker, name = METHODS[str(method)]
        good = rows[rows["llc"] > 0]
        left.plot(good["exact"], good["llc"], marker, color=ink, markersize=4, alpha=0.7, label=name)
        right.plot(rows["parameters"], rows["error"], marker, color=ink, markersize=4, alpha=0.7)
        missing = rows[rows["error"].isna()]
        if len(missing):
            right.plot(missing["parameters"], [-1.08] * len(missing), "v", color=ink, markersize=5)
    ends = [0.5 * table["exact"].min(), 2 * table["exact"].max()]
    left.plot(ends, ends, color=GREY, linewidth=0.8)
    left.set(xscale="log", yscale="log", xlabel="exact λ", ylabel="λ̂")
    left.legend(frameon=False, fontsize=8)
    right.axhspan(-0.15, 0.15, color=GREY, alpha=0.15, linewidth=0)
    right.axhspan(-0.05, 0.05, color=GREY, alpha=0.2, linewidth=0)
    right.axhline(0, color=GREY, linewidth=0.8)
    right.set(xscale="log", xlabel="parameters", ylabel="λ̂/λ − 1", ylim=(-1.15, 1.0))
    if table["exact"].max() > 100 * table["exact"].min():
        for axis in (left.xaxis, left.yaxis, right.xaxis):
            axis.set_minor_formatter("")  # decades are enough
    left.tick_params(axis="x", which="minor", rotation=45, labelsize=7)
    right.set_title("bands: 5 % and 15 %; triangles at the bottom: no number", fontsize=8)
    return fig


def figure_resolution(table: pd.DataFrame) -> Any:
    """λ_t over decades of nβ: sampled, exact, half the soft rank, and the limit λ."""
    cases = list(dict.fromkeys(table["case"]))
    fig, axes = panels(len(cases), 2, 4.6, 3.3)
    for case, axis in zip(cases, axes, strict=True):
        rungs = table[table["case"] == case].sort_values("rung")
        axis.errorbar(
            rungs["rung"], rungs["llc"], 1.96 * rungs["llc_stderr"], color=OURS, marker="o", markersize=4,
            linestyle="none", capsize=2, label="λ̂ by one set of chains", zorder=3,
        )  # fmt: skip
        if rungs["exact"].notna().any():
            axis.plot(rungs["rung"], rungs["exact"], color="black", linewidth=1, label="exact λ_t")
        axis.plot(rungs["rung"], rungs["half_soft_rank"], color=RANK, linestyle="--", label="½ soft rank")
        if rungs["limit"].notna().any():
            axis.axhline(rungs["limit"].iloc[0], color=GREY, linewidth=0.8, linestyle=":", label="λ")
        axis.axvline(rungs["watanabe"].iloc[0], color=GREY, linewidth=0.6, alpha=0.6)
        axis.set(xscale="log", xlabel="nβ (line: n/log n)", ylabel="λ̂")
        axis.set_title(CASES.get(str(case), str(case)), fontsize=9)
        axis.legend(frameon=False, fontsize=7)
    return fig


def figure_atlas(table: pd.DataFrame) -> Any:
    """Two maps of the relative bias, over nβ and ε and over the batch size and ε, all else at the calibrated choice."""
    centre = table[table["is_calibrated"]].iloc[0]
    planes = [(pair, _plane(table, centre, *pair)) for pair in MAPS]
    shown = [(pair, plane) for pair, plane in planes if len(plane) > 1]
    fig, axes = panels(len(shown), 2, 6.2, 4.6)
    image = None
    for (pair, plane), axis in zip(shown, axes, strict=True):
        image = _map(axis, plane, centre, *pair)
    if image is not None:
        fig.colorbar(image, ax=axes, label="λ̂ of plain SGLD / reference − 1", shrink=0.7)
    fig.supxlabel(
        "filled: beside a reference that passed its checks; hollow: beside a doubtful one; none: no minimum there; "
        "cross: diverged\nsquare: the calibrated choice; line: where theory says that 10 % are passed", fontsize=9,
    )  # fmt: skip
    return fig


def _short(value: float) -> str:
    """A number of three digits, without an exponent where it is large."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _bias(value: float) -> str:
    """A relative bias in per cent or, from tenfold values on, as a factor."""
    return f"×{1 + value:,.0f}" if value >= 9 else f"{value:+.0%}"


def _plane(table: pd.DataFrame, centre: pd.Series, first: str, second: str) -> pd.DataFrame:
    """Cells in which only two settings differ from the calibrated choice."""
    plane = table
    for name in AXES:
        if name not in (first, second):
            plane = plane[(plane[name] / centre[name] - 1).abs() < 1e-6]
    one, other = plane[first].nunique(), plane[second].nunique()
    full = plane.groupby([first, second]).ngroups == one * other
    return plane if one > 1 and other > 1 and full else plane.iloc[:0]


def _map(axis: Any, plane: pd.DataFrame, centre: pd.Series, first: str, second: str) -> Any:
    from matplotlib.colors import TwoSlopeNorm
    from matplotlib.patches import Rectangle

    grid, foreseen, diverged, verdicts = (
        plane.pivot(index=second, columns=first, values=name)
        for name in ("bias", "predicted", "diverged", "reference_verdict")
    )
    sound = verdicts.to_numpy() == "ok"
    norm = TwoSlopeNorm(0, vmin=-1, vmax=1)
    filled = grid.where(sound).to_numpy(float)
    image = axis.imshow(filled, origin="lower", aspect="auto", cmap="RdBu_r", norm=norm)
    for y in range(len(grid.index)):
        for x in range(len(grid.columns)):
            value = grid.iloc[y, x]
            known = math.isfinite(value)
            if known and not sound[y, x]:
                shade = image.cmap(norm(value))
                for size, edge, width in ((0.84, shade, 4.0), (0.88, GREY, 0.4)):
                    corner = x - size / 2, y - size / 2
                    axis.add_patch(Rectangle(corner, size, size, fill=False, edgecolor=edge, linewidth=width))
            if bool(diverged.iloc[y, x]):
                axis.plot(x, y, "x", color="black")
                continue
            ink = GREY if not known else "white" if sound[y, x] and abs(value) > 0.6 else "black"
            axis.text(x, y, _bias(value) if known else "none", ha="center", va="center", fontsize=8, color=ink)
    beyond = foreseen.abs().clip(upper=10 * BIASED).to_numpy(float)
    if np.nanmin(beyond) < BIASED < np.nanmax(beyond):
        axis.contour(beyond, levels=[BIASED], colors="black", linewidths=1.2)
    place = [list(grid.columns).index(_nearest(grid.columns, centre[first])),
             list(grid.index).index(_nearest(grid.index, centre[second]))]  # fmt: skip
    axis.add_patch(Rectangle((place[0] - 0.5, place[1] - 0.5), 1, 1, fill=False, edgecolor="black", linewidth=1.6))
    axis.set_xticks(range(len(grid.columns)), list(map(_short, grid.columns)), fontsize=7)
    axis.set_yticks(range(len(grid.index)), list(map(_short, grid.index)), fontsize=7)
    axis.set_xlabel(AXES[first], fontsize=8)
    axis.set_ylabel(AXES[second], fontsize=8)
    axis.grid(visible=False)
    return image


def _nearest(values: Any, wanted: float) -> float:
    return float(min(values, key=lambda value: abs(math.log(value / wanted))))


def figure_entropy(table: pd.DataFrame) -> Any:
    """λ̂ of either optimizer against the training loss, moment by moment, and of every network at the end."""
    names = {"llc_paper": "λ̂ at the end, paper's settings", "llc": "λ̂ at the end, calibrated (hollow: doubtful)"}
    ends = table[table["epoch"] == table["epoch"].max()]
    present = [name for name in names if name in ends and ends[name].notna().any()]
    fig, axes = panels(1 + len(present), 3, 3.8, 3.2)
    kinds = (("sgd", "SGD", OURS), ("entropy-sgd", "Entropy-SGD", THEIRS))
    for kind, name, ink in kinds:
        runs = table[table["optimizer"] == kind]
        for _, each in runs.groupby("seed"):
            axes[0].plot(each["train_loss"], each["llc_paper"], color=ink, linewidth=0.5, alpha=0.25)
        mean = runs.groupby("epoch")[["train_loss", "llc_paper"]].mean()
        axes[0].plot(mean["train_loss"], mean["llc_paper"], color=ink, marker="o", markersize=4, label=name)
    axes[0].set(xscale="log", xlabel="training loss", title="λ̂ through training, paper's settings")
    axes[0].title.set_fontsize(9)
    axes[0].invert_xaxis()
    axes[0].legend(frameon=False, fontsize=8)
    for name, axis in zip(present, axes[1:], strict=True):
        for place, (kind, _, ink) in enumerate(kinds):
            runs = ends[(ends["optimizer"] == kind) & ends[name].notna()]
            spread = [place + 0.35 * (((7 * seed) % 11) / 11 - 0.5) for seed in runs["seed"]]
            if name == "llc":  # few, and each with an error that matters
                axis.errorbar(spread, runs[name], 1.96 * runs["llc_stderr"], fmt="none", ecolor=ink, elinewidth=0.8)
                fills = [ink if verdict == "ok" else "white" for verdict in runs["llc_verdict"]]
                axis.scatter(spread, runs[name], s=16, facecolors=fills, edgecolors=ink, zorder=3)
            else:
                axis.plot(spread, runs[name], "o", color=ink, markersize=3, alpha=0.5)
            if len(runs):
                axis.plot([place - 0.25, place + 0.25], [runs[name].mean()] * 2, color=ink, linewidth=2)
        axis.set_xticks([0, 1], [name for _, name, _ in kinds])
        axis.set_xlim(-0.6, 1.6)
        axis.set_title(names[name], fontsize=9)
    return fig


def figure_training(table: pd.DataFrame) -> Any:
    """λ̂ and half the soft rank through training above, losses and accuracies below."""
    cases = list(dict.fromkeys(table["case"]))
    fig, axes = panels(2 * len(cases), len(cases), 4.2, 2.8)
    for number, case in enumerate(cases):
        rows = table[table["case"] == case].sort_values("epoch")
        above, below = axes[number], axes[len(cases) + number]
        above.sharex(below)
        sound = rows[rows["llc_verdict"].isin(VERDICTS)]
        above.errorbar(sound["epoch"], sound["llc"], 1.96 * sound["llc_stderr"], color=OURS, capsize=2)
        for verdict, (fill, name) in VERDICTS.items():
            marks = sound[sound["llc_verdict"] == verdict]
            if len(marks):
                above.plot(
                    marks["epoch"], marks["llc"], "o", color=OURS, markerfacecolor=fill, markersize=4.5, label=name
                )
        ranked = rows[rows["half_soft_rank"].notna()]
        if len(ranked):
            above.plot(
                ranked["epoch"], ranked["half_soft_rank"], color=RANK, linestyle="--", marker=".", label="½ soft rank"
            )
        above.set_title(str(case), fontsize=9)
        above.legend(frameon=False, fontsize=8)
        below.plot(rows["epoch"], rows["train_loss"], color="black", marker=".", label="training loss")
        below.plot(rows["epoch"], rows["validation_loss"], color=GREY, marker=".", label="test loss")
        below.set(yscale="log", xlabel="epoch")
        twin = below.twinx()
        twin.plot(rows["epoch"], rows["train_accuracy"], color="#a6dba0", linestyle=":", label="training accuracy")
        twin.plot(rows["epoch"], rows["test_accuracy"], color="#1b7837", linestyle=":", label="test accuracy")
        twin.set_ylim(0, 1.02)
        twin.spines[["top"]].set_visible(False)
        lines = [*below.get_lines(), *twin.get_lines()]
        below.legend(
            lines, [line.get_label() for line in lines], frameon=False, fontsize=7, ncol=2, loc="upper center",
            bbox_to_anchor=(0.5, -0.22),
        )  # fmt: skip
    return fig


def figure_parts(table: pd.DataFrame) -> Any:
    """λ̂ of parts of the weights and of the data, beside half their soft rank."""
    groups = list(table.groupby(["case", "view"], sort=False))
    fig, axes = panels(len(groups), 2, 5.4, 3.4)
    for ((case, view), rows), axis in zip(groups, axes, strict=True):
        places = range(len(rows))
        ranked = rows["half_soft_rank"].notna().any()
        aside = 0.2 if ranked else 0.0
        for verdict, (fill, name) in VERDICTS.items():
            sound = rows["llc"].where(rows["llc_verdict"] == verdict)
            if sound.notna().any():
                axis.barh(
                    [place + aside for place in places], sound, 0.38, xerr=1.96 * rows["llc_stderr"], color=fill,
                    edgecolor=OURS, label=name,
                )  # fmt: skip
        if ranked:
            axis.barh(
                [place - aside for place in places], rows["half_soft_rank"], 0.38, color=RANK, alpha=0.7,
                label="½ soft rank",
            )  # fmt: skip
        axis.set_yticks(list(places), rows["piece"], fontsize=7)
        axis.invert_yaxis()
        axis.set_title(f"{case}, parts of the {view}", fontsize=9)
        axis.legend(frameon=False, fontsize=7)
    return fig
