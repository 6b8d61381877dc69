"""The paper's figures 1–7 from our networks, its Table 1 as a picture, and some of our own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from basinscope.figure_style import panels
from studies.common.kendall import windows, with_interval

from .adding import NAMES as SETTINGS
from .measures import BASELINES, CLUSTER, GAPS, LEARNED, MEASURES, PREDICTIONS
from .tables import finished

if TYPE_CHECKING:
    import pandas as pd

INKS = ("#2166ac", "#b2182b", "#1b7837", "#e08214")
TRAIN, TEST = "#e08214", "#2166ac"
MARKS = {"mlp": "o", "bigmlp": "^", "cnn": "s"}
NAMES = {"mlp": "MLP", "bigmlp": "BigMLP", "cnn": "CNN"}
GREY, DEAD = "#333333", "#aaaaaa"
LINEAR = 1e-3  # gaps nearer to zero than this are drawn linearly, so that those below it can be seen
SHOWN = (*(measure.column for measure in MEASURES if measure.paper is not None), *BASELINES)
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
        "figure4_windows": lambda: figure_windows(grid[grid["accuracy_train"] > LEARNED]),
        "figure5_to_7_relations": lambda: figure_relations(grid),
        "held_out": lambda: figure_gaps(grid, ("eq8_test", "rank_train", "eq8_train", "cv_gap"), "gap_held"),
        "best_where": lambda: figure_best(made["cells"]),
        "granulated": lambda: figure_granulated(made["granulated"]),
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
    """Table 1 as intervals beside the paper's τ and what costs nothing; below it, the networks that were
    cross-validated alone, so that cross-validation stands beside the others on the same networks."""
    ways = {"as printed": "the measure itself", "within": "mean within data set and size"}
    table = table[table["measure"].isin(SHOWN)]
    scopes_shown = [scope for scope in ("all", "cross-validated") if scope in set(table["scope"])]
    labels = table.drop_duplicates("measure").set_index("measure")
    fig, axes = panels(len(scopes_shown) * len(GAPS), len(GAPS), 6.0, 4.6)
    for panel, (axis, (scope, against)) in enumerate(zip(axes, product(scopes_shown, GAPS), strict=True)):
        whole = table[(table["scope"] == scope) & (table["against"] == against)]
        known = whole[whole["tau"].notna() & (whole["measure"].ne("cv_gap") | (scope != "all"))]
        order = [name for name in SHOWN if name in set(known["measure"])]
        for number, (way, words) in enumerate(ways.items()):
            part = known[known["way"] == way].set_index("measure").reindex(order)
            places = np.arange(len(order)) + 0.22 * (number - 0.5)
            errors = np.array([part["tau"] - part["low"], part["high"] - part["tau"]]).clip(min=0)
            axis.errorbar(part["tau"], places, xerr=errors, color=INKS[number], marker="o", markersize=4,
                          linestyle="none", capsize=2, label=words)  # fmt: skip
        if scope == "all":
            paper = labels.reindex(order)["paper"].to_numpy(dtype=float)
            axis.plot(paper, np.arange(len(order)), color=GREY, marker="D", markersize=6, markerfacecolor="none",
                      linestyle="none", label="Shoham et al., Table 1")  # fmt: skip
        axis.axvline(0, color=GREY, linewidth=0.8)
        names = [labels.loc[name, "label"] for name in order]
        axis.set_yticks(range(len(order)), names if panel % len(GAPS) == 0 else [""] * len(order), fontsize=9)
        axis.set_ylim(len(order) - 0.4, -0.6)
        axis.set_xlim(-0.1, 1.02)
        count = int(known["networks"].max()) if len(known) else 0
        axis.set_title(f"{'all' if scope == 'all' else 'the cross-validated'} {count:,} networks", fontsize=10)
        axis.set_xlabel(f"Kendall τ with the gap ({against}), 95 % interval", fontsize=9)
    fig.legend(*axes[0].get_legend_handles_labels(), frameon=False, fontsize=8, loc="outside upper center", ncols=4)
    return fig


def figure_gaps(grid: pd.DataFrame, names: Sequence[str], gap: str = "gap") -> Any:
    """Figures 1 and 3: predictions against the true gap, with the diagonal; gaps below zero are shown, too."""
    known = [name for name in names if name in grid and grid[name].notna().any()]
    if not known:
        return None
    fig, axes = panels(len(known), len(known), 4.0, 4.0)
    for number, (axis, name) in enumerate(zip(axes, known, strict=True)):
        shown = grid[(grid[name] > 0) & np.isfinite(grid[gap])]
        _scatter(axis, shown, name, gap, legend=number == 0)
        axis.set_yscale("symlog", linthresh=LINEAR)
        axis.axhline(0, color=GREY, linewidth=0.6)
        positive = shown[shown[gap] > 0]
        _diagonal(axis, positive[name], positive[gap])
        ratio = 10 ** float(np.median(np.log10(positive[name] / positive[gap]))) if len(positive) else float("nan")
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
    """Points by data set (ink) and architecture (mark), on logarithmic axes; networks that learned nothing in grey."""
    from matplotlib.lines import Line2D

    sets, kinds = list(dict.fromkeys(grid["data"])), list(dict.fromkeys(grid["architecture"]))
    for (data, kind), part in grid.groupby(["data", "architecture"], sort=False):
        for rows, ink in ((part[part["accuracy_train"] <= LEARNED], DEAD),
                          (part[part["accuracy_train"] > LEARNED], INKS[sets.index(data) % len(INKS)])):  # fmt: skip
            axis.scatter(rows[x], rows[y], s=9, color=ink, marker=MARKS[kind], alpha=0.45, linewidths=0)
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
        handles.append(Line2D([], [], color=DEAD, marker="o", linestyle="none", label="learned nothing"))
        axis.legend(handles=handles, frameon=False, fontsize=7, loc="best")


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
            positive = (x > 0) & np.isfinite(grid["gap"])
            words = "training data" if part == "train" else "test data"
            axis.scatter(x[positive], grid["gap"][positive], s=9, color=ink, alpha=0.4, linewidths=0, label=words)
            clusters = list(grid[list(CLUSTER)].itertuples(index=False, name=None))
            tau = with_interval(x.to_numpy(), grid["gap"].to_numpy(), clusters)
            titles.append(f"{words}: τ = {tau.value:.2f} [{tau.low:.2f}, {tau.high:.2f}]")
            drawn_x.append(x[positive])
        axis.set_xscale("log")
        axis.set_yscale("symlog", linthresh=LINEAR)
        axis.axhline(0, color=GREY, linewidth=0.6)
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
    """τ of each measure by data set and size of the training set, for either gap; the best of a column is framed."""
    table = table[table["measure"].isin(SHOWN)]
    columns = list(dict.fromkeys(zip(table["data"], table["samples"], strict=True)))
    taus = {
        against: [
            [_single(table, measure=name, against=against, data=data, samples=samples) for data, samples in columns]
            for name in SHOWN
        ]
        for against in GAPS
    }
    return _heat(table, taus, [f"{data}\n{samples:,}" for data, samples in columns])


def figure_granulated(table: pd.DataFrame) -> Any:
    """τ of each measure over networks that differ in one setting alone, by the setting."""
    axes = [axis for axis in (*SETTINGS, "mean") if axis in set(table["axis"])]
    taus = {
        against: [[_single(table, measure=name, against=against, axis=axis) for axis in axes] for name in SHOWN]
        for against in GAPS
    }
    return _heat(table, taus, [SETTINGS.get(axis, "mean") for axis in axes])


def _single(table: pd.DataFrame, **where: Any) -> float:
    chosen = table
    for name, value in where.items():
        chosen = chosen[chosen[name] == value]
    return float(chosen["tau"].iloc[0]) if len(chosen) else float("nan")


def _heat(table: pd.DataFrame, taus: Mapping[str, Any], columns: Sequence[str]) -> Any:
    """τ as colours and numbers, measures down and columns across, a panel for each gap."""
    labels = table.drop_duplicates("measure").set_index("measure")["label"]
    known = [place for place, name in enumerate(SHOWN) if name in labels.index]
    fig, axes = panels(len(taus), len(taus), 0.72 * len(columns) + 2.2, 0.34 * len(known) + 1.4)
    for number, (axis, (against, rows)) in enumerate(zip(axes, taus.items(), strict=True)):
        values = np.array(rows, dtype=float)[known]
        axis.imshow(values, cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
        for (row, column), value in np.ndenumerate(values):
            if np.isfinite(value):
                best = value == np.nanmax(values[:, column])
                ink, weight = "white" if abs(value) > 0.7 else GREY, "bold" if best else "normal"
                axis.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=8, color=ink, weight=weight)
        axis.grid(visible=False)
        axis.set_xticks(range(len(columns)), columns, fontsize=8, rotation=30 if max(map(len, columns)) > 14 else 0)
        names = [labels[SHOWN[place]] for place in known]
        axis.set_yticks(range(len(known)), names if number == 0 else [""] * len(known), fontsize=9)
        axis.set_title(f"Kendall τ with the gap, {against}; bold: best of a column", fontsize=9)
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
