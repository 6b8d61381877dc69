"""The paper's figures 1–7 from our networks, its Table 1 as a picture, and some of our own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from basinscope.figure_style import panels
from studies.common.kendall import windows, with_interval

from .tables import CLUSTER, GAPS, MEASURES, PREDICTIONS, finished

if TYPE_CHECKING:
    import pandas as pd

INKS = ("#2166ac", "#b2182b", "#1b7837", "#e08214")
TRAIN, TEST = "#e08214", "#2166ac"
MARKS = {"mlp": "o", "bigmlp": "^", "cnn": "s"}
NAMES = {"mlp": "MLP", "bigmlp": "BigMLP", "cnn": "CNN"}
GREY = "#333333"
GAP_LABELS = {"gap": "gap: test loss − training loss", "gap_held": "gap: loss on held-out − on training samples"}
CHEAP = ("eq6_test", "eq8_diagonal_test", "eq8_kfac_test", "eq8_ekfac_test")
BANDS = ("soft_rank_train", "trace_f_train")  # those whose intervals are drawn: five of them would hide each other
WINDOWED = ("soft_rank_train", "log_det_train", "trace_f_train", "norm_f_train", "llc")


def draw(made: Mapping[str, pd.DataFrame], folder: Path) -> list[Path]:
    """Write all figures; their paths."""
    grid = finished(made["networks"])
    makers: dict[str, Callable[[], Any]] = {
        "table1": lambda: figure_table(made["kendall"]),
        "figure1_test_data": lambda: figure_gaps(grid, ("tic_test", "thomas_tic_test", "eq6_test", "eq8_test")),
        "figure2_training_data": lambda: figure_training(grid),
        "figure3_cheap": lambda: figure_gaps(grid, CHEAP),
        "figure4_windows": lambda: figure_windows(grid),
        "figure5_to_7_relations": lambda: figure_relations(grid),
        "held_out": lambda: figure_gaps(grid, ("eq8_test", "rank_train", "eq8_train", "cv_gap"), "gap_held"),
        "best_where": lambda: figure_best(made["cells"]),
        "beyond_training_data": lambda: figure_gaps(grid, ("mixed", "rank_train", "fluctuation_gap", "cv_gap")),
        "sampling": lambda: figure_sampling(grid),
    }
    written = []
    for name, make in makers.items():
        fig = make()
        if fig is not None:
            written.append(folder / f"{name}.png")
            fig.savefig(written[-1], dpi=110)
    return written


def figure_table(table: pd.DataFrame) -> Any:
    """Table 1 as intervals: all networks, as printed and per sample, beside the paper's τ; for either gap."""
    whole = table[table["scope"] == "all"]
    ways = {
        "as printed": "the measure itself", "per sample": "the measure divided by n",
        "within": "mean within data set and size",
    }  # fmt: skip
    first = whole[(whole["way"] == "as printed") & (whole["against"] == "held out")]
    order = first.sort_values("tau", ascending=False)["measure"].tolist()
    labels = whole.drop_duplicates("measure").set_index("measure")
    names = [labels.loc[name, "label"] for name in order]
    fig, axes = panels(len(GAPS), len(GAPS), 6.0, 0.34 * len(order) + 1.6)
    for panel, (axis, against) in enumerate(zip(axes, GAPS, strict=True)):
        for number, (way, words) in enumerate(ways.items()):
            part = whole[(whole["way"] == way) & (whole["against"] == against)].set_index("measure").reindex(order)
            places = np.arange(len(order)) + 0.22 * (number - 1)
            errors = np.array([part["tau"] - part["low"], part["high"] - part["tau"]]).clip(min=0)
            axis.errorbar(part["tau"], places, xerr=errors, color=INKS[number], marker="o", markersize=4,
                          linestyle="none", capsize=2, label=words)  # fmt: skip
        paper = labels.reindex(order)["paper"].to_numpy(dtype=float)
        axis.plot(paper, np.arange(len(order)) - 0.22, color=GREY, marker="D", markersize=6, markerfacecolor="none",
                  linestyle="none", label="Shoham et al., Table 1")  # fmt: skip
        axis.axvline(0, color=GREY, linewidth=0.8)
        axis.set_yticks(range(len(order)), names if panel == 0 else [""] * len(order), fontsize=9)
        axis.set_ylim(len(order) - 0.4, -0.6)
        axis.set_xlim(min(-0.1, float(whole["low"].min()) - 0.05), 1.02)
        axis.set_xlabel(f"Kendall τ with the gap ({against}), 95 % interval", fontsize=9)
    fig.legend(*axes[0].get_legend_handles_labels(), frameon=False, fontsize=8, loc="outside upper center", ncols=4)
    return fig


def figure_gaps(grid: pd.DataFrame, names: Sequence[str], gap: str = "gap") -> Any:
    """Figures 1 and 3: predictions against the true gap, on logarithmic axes with the diagonal."""
    known = [name for name in names if name in grid and grid[name].notna().any()]
    if not known:
        return None
    fig, axes = panels(len(known), len(known), 4.0, 4.0)
    for number, (axis, name) in enumerate(zip(axes, known, strict=True)):
        shown = grid[(grid[name] > 0) & (grid[gap] > 0)]
        _scatter(axis, shown, name, gap, legend=number == 0)
        _diagonal(axis, shown[name], shown[gap])
        ratio = 10 ** float(np.median(np.log10(shown[name] / shown[gap]))) if len(shown) else float("nan")
        tau = _tau(grid, name, gap)
        axis.set_title(f"{PREDICTIONS[name]}\nτ = {tau}, median ratio {ratio:.2g}", fontsize=9)
        axis.set_xlabel("predicted gap", fontsize=9)
        axis.set_ylabel(GAP_LABELS[gap] if number == 0 else "", fontsize=9)
    return fig


def _tau(grid: pd.DataFrame, name: str, gap: str) -> str:
    clusters = list(grid[list(CLUSTER)].itertuples(index=False, name=None))
    tau = with_interval(grid[name].to_numpy(dtype=float), grid[gap].to_numpy(dtype=float), clusters)
    return f"{tau.value:.2f} [{tau.low:.2f}, {tau.high:.2f}]"


def _scatter(axis: Any, grid: pd.DataFrame, x: str, y: str, legend: bool) -> None:
    """Points by data set (ink) and architecture (mark), on logarithmic axes."""
    from matplotlib.lines import Line2D

    sets, kinds = list(dict.fromkeys(grid["data"])), list(dict.fromkeys(grid["architecture"]))
    for (data, kind), part in grid.groupby(["data", "architecture"], sort=False):
        axis.scatter(part[x], part[y], s=9, color=INKS[sets.index(data) % len(INKS)], marker=MARKS[kind], alpha=0.45,
                     linewidths=0)  # fmt: skip
    axis.set_xscale("log")
    axis.set_yscale("log")
    if legend:
        handles = [
            Line2D([], [], color=INKS[i % len(INKS)], marker="o", linestyle="none", label=data)
            for i, data in enumerate(sets)
        ]
        handles += [
            Line2D([], [], color=GREY, marker=MARKS[kind], linestyle="none", markerfacecolor="none", label=NAMES[kind])
            for kind in kinds
        ]
        axis.legend(handles=handles, frameon=False, fontsize=7, loc="lower right")


def _diagonal(axis: Any, x: Any, y: Any) -> None:
    if not len(x):
        return
    ends = [min(float(x.min()), float(y.min())), max(float(x.max()), float(y.max()))]
    axis.plot(ends, ends, color=GREY, linewidth=0.9, zorder=0)


def figure_training(grid: pd.DataFrame) -> Any:
    """Figure 2: what training data can tell and what not: Tr C/Tr F and rank_λ(F), from either set of samples."""
    fig, axes = panels(2, 2, 5.0, 4.2)
    for number, (axis, name, label) in enumerate(
        zip(axes, ("trace_ratio", "soft_rank"), ("Tr C / Tr F", "rank_λ(F) / n"), strict=True)
    ):
        titles, drawn_x = [], []
        for part, ink in (("test", TEST), ("train", TRAIN)):
            x = grid[f"{name}_{part}"] / (grid["samples"] if name == "soft_rank" else 1)
            positive = (x > 0) & (grid["gap"] > 0)
            words = "training data" if part == "train" else "test data"
            axis.scatter(x[positive], grid["gap"][positive], s=9, color=ink, alpha=0.4, linewidths=0, label=words)
            clusters = list(grid[list(CLUSTER)].itertuples(index=False, name=None))
            tau = with_interval(x.to_numpy(), grid["gap"].to_numpy(), clusters)
            titles.append(f"{words}: τ = {tau.value:.2f} [{tau.low:.2f}, {tau.high:.2f}]")
            drawn_x.append(x[positive])
        axis.set_xscale("log")
        axis.set_yscale("log")
        if name == "soft_rank":
            usable = grid["gap"][grid["gap"] > 0]
            _diagonal(axis, drawn_x[1], usable)
        else:
            axis.axvline(1, color=GREY, linewidth=0.9, zorder=0)
        axis.set_title("\n".join(titles), fontsize=9)
        axis.set_xlabel(label, fontsize=9)
        axis.set_ylabel(GAP_LABELS["gap"] if number == 0 else "", fontsize=9)
    axes[0].legend(frameon=False, fontsize=8)
    return fig


def figure_windows(grid: pd.DataFrame) -> Any:
    """Figure 4: τ in a moving window of half of the networks, against calibration (test) and overfitting (training)."""
    labels = {measure.column: measure.label for measure in MEASURES}
    clusters = list(grid[list(CLUSTER)].itertuples(index=False, name=None))
    fig, axes = panels(2, 2, 5.2, 3.8)
    sides = (
        ("trace_ratio_test", "Tr C/Tr F on test data (1: calibrated; more: too sure of itself)"),
        ("trace_ratio_train", "Tr C/Tr F on training data (0: learned by heart)"),
    )
    for number, (axis, (along, label)) in enumerate(zip(axes, sides, strict=True)):
        for name, ink in zip(WINDOWED, (INKS[0], INKS[3], INKS[1], "#999999", INKS[2]), strict=True):
            if name in grid and grid[name].notna().any():
                taus = windows(grid[along], grid[name] / grid["samples"], grid["gap"], clusters)
                places = [place for place, _ in taus]
                axis.plot(places, [tau.value for _, tau in taus], color=ink, linewidth=1.6, label=f"{labels[name]} / n")
                if name in BANDS:
                    lows, highs = [tau.low for _, tau in taus], [tau.high for _, tau in taus]
                    axis.fill_between(places, lows, highs, color=ink, alpha=0.15, linewidth=0)
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter("{x:g}")
        axis.tick_params(axis="x", which="both", labelsize=7)
        axis.axhline(0, color=GREY, linewidth=0.6)
        axis.set_xlabel(f"{label}\nmedian of a window with half of all networks; bands: 95 % intervals", fontsize=8)
        axis.set_ylabel("Kendall τ with the gap" if number == 0 else "", fontsize=9)
    axes[0].legend(frameon=False, fontsize=8)
    return fig


def figure_relations(grid: pd.DataFrame) -> Any:
    """Figures 5–7: C and F beside what they would be if errors and Jacobians were independent, and E[B] beside E[Σ].

    None where the networks were measured without these."""
    if "size_f_apart_train" not in grid:
        return None
    fig, axes = panels(6, 3, 4.2, 3.3)
    for row, (letter, inner, title) in enumerate((("c", "B", "Figure 5"), ("f", "Σ", "Figure 6"))):
        left, right = axes[3 * row], axes[3 * row + 1]
        whole = letter.upper()
        apart = f"E[JᵀE[{inner}]J]"
        for part, ink in (("test", TEST), ("train", TRAIN)):
            words = "training data" if part == "train" else "test data"
            shown = grid[(grid[f"size_{letter}_{part}"] > 0) & (grid[f"size_{letter}_apart_{part}"] > 0)]
            left.scatter(shown[f"size_{letter}_{part}"], shown[f"size_{letter}_apart_{part}"], s=8, color=ink,
                         alpha=0.4, linewidths=0, label=words)  # fmt: skip
            if len(shown):
                _diagonal(left, shown[f"size_{letter}_{part}"], shown[f"size_{letter}_apart_{part}"])
            _histogram(right, grid[f"cosine_{letter}_{part}"], ink, words)
        left.set_xscale("log")
        left.set_yscale("log")
        left.set_xlabel(f"‖{whole}‖", fontsize=9)
        left.set_ylabel(f"‖{apart}‖", fontsize=9)
        left.set_title(f"{title}, left: norms", fontsize=9)
        right.set_xlabel(f"cosine of {whole} and {apart}", fontsize=9)
        right.set_ylabel("networks", fontsize=9)
        right.set_title(f"{title}, right: directions", fontsize=9)
    for axis, name, label in (
        (axes[2], "cosine_b", "cosine of E[B] and E[Σ]"), (axes[5], "cosine_cf", "cosine of C and F"),
    ):  # fmt: skip
        for part, ink in (("test", TEST), ("train", TRAIN)):
            _histogram(axis, grid[f"{name}_{part}"], ink, "training data" if part == "train" else "test data")
        axis.set_xlabel(label, fontsize=9)
        axis.set_ylabel("networks", fontsize=9)
    axes[2].set_title("Figure 7", fontsize=9)
    axes[5].set_title("what follows from both: C against F", fontsize=9)
    axes[0].legend(frameon=False, fontsize=8)
    return fig


def _histogram(axis: Any, values: Any, ink: str, label: str) -> None:
    """Cosines in bins of 0.02, and how many of them are above 0.9."""
    known = np.asarray(values, dtype=float)
    known = known[np.isfinite(known)]
    text = f"{label}: {(known > 0.9).mean():.0%} above 0.9" if len(known) else label
    axis.hist(known, bins=np.linspace(0, 1, 51), color=ink, alpha=0.55, label=text)
    lowest = [patch.get_x() for patch in axis.patches if patch.get_height() > 0]
    axis.set_xlim(min([0.8, *lowest]) - 0.02, 1.0)
    axis.legend(frameon=False, fontsize=7, loc="upper left")


def figure_best(table: pd.DataFrame) -> Any:
    """Which measure predicts best, by data set and size of the training set, with intervals; for either gap."""
    sets, sizes = list(dict.fromkeys(table["data"])), sorted(set(table["samples"]))
    order = table.groupby("measure")["tau"].mean().sort_values(ascending=False).index.tolist()
    labels = table.drop_duplicates("measure").set_index("measure")
    names = [labels.loc[name, "label"] for name in order]
    columns = len(sets) if len(sets) > 1 else len(GAPS)
    fig, axes = panels(len(GAPS) * len(sets), columns, 4.6, 0.34 * len(order) + 1.2)
    for number, (axis, (against, data)) in enumerate(zip(axes, product(GAPS, sets), strict=True)):
        for place, samples in enumerate(sizes):
            chosen = (table["against"] == against) & (table["data"] == data) & (table["samples"] == samples)
            rows = table[chosen].set_index("measure").reindex(order)
            height = np.arange(len(order)) + 0.22 * (place - (len(sizes) - 1) / 2)
            errors = np.array([rows["tau"] - rows["low"], rows["high"] - rows["tau"]]).clip(min=0)
            axis.errorbar(rows["tau"], height, xerr=errors, color=INKS[place % len(INKS)], marker="o", markersize=4,
                          linestyle="none", capsize=2, label=f"n = {samples:,}")  # fmt: skip
            if rows["tau"].notna().any():
                best = int(np.nanargmax(rows["tau"]))
                axis.plot(rows["tau"].iloc[best], height[best], marker="o", markersize=10,
                          color=INKS[place % len(INKS)], markerfacecolor="none", linestyle="none")  # fmt: skip
        axis.axvline(0, color=GREY, linewidth=0.8)
        axis.set_yticks(range(len(order)), names if number % columns == 0 else [""] * len(order), fontsize=9)
        axis.set_ylim(len(order) - 0.4, -0.6)
        axis.set_xlim(-1.02, 1.02)
        axis.set_xlabel("Kendall τ with the gap, 95 % interval; ring: best", fontsize=8)
        axis.set_title(f"{data}, {against}", fontsize=10)
    fig.legend(*axes[0].get_legend_handles_labels(), frameon=False, fontsize=8, loc="outside upper center", ncols=3)
    return fig


def figure_sampling(grid: pd.DataFrame) -> Any:
    """λ̂ beside the half soft rank at its own resolution, at both temperatures; ν̂ beside TIC; WAIC beside test loss."""
    if "llc" not in grid or not grid["llc"].notna().any():
        return None
    fig, axes = panels(4, 4, 4.0, 4.0)
    sides = (
        ("half_soft_rank_llc", "llc", "½ rank_Λ(F), Λ = γ/nβ", "λ̂ (β = 1/log n)"),
        ("half_soft_rank_llc_bayes", "llc_bayes", "½ rank_Λ(F), Λ = γ/n", "λ̂ (β = 1)"),
        ("half_tic_fluctuation", "fluctuation", "½ Tr C (F + Λ)⁻¹, Λ = γ/n", "ν̂"),
        ("waic", "loss_test", "WAIC", "test loss"),
    )
    for number, (axis, (x, y, across, up)) in enumerate(zip(axes, sides, strict=True)):
        shown = grid[(grid[x] > 0) & (grid[y] > 0)]
        _scatter(axis, shown, x, y, legend=number == 0)
        _diagonal(axis, shown[x], shown[y])
        middle = float(np.median(shown[y] / shown[x])) if len(shown) else float("nan")
        axis.set_title(f"median of {up} / x: {middle:.2f}", fontsize=9)
        axis.set_xlabel(across, fontsize=9)
        axis.set_ylabel(up, fontsize=9)
    return fig
