"""A figure for each part, from its table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.ticker import FuncFormatter, NullFormatter

from basinscope.figure_style import panels

from .authors import NAMES as OF_AUTHORS
from .authors import curve, published_sweep
from .tables import JUDGED, MEASUREMENTS, sound

if TYPE_CHECKING:
    import pandas as pd

SGD, NGD = "#2166ac", "#b2182b"
INKS = {"sgd": SGD, "online": NGD, "accurate": "#f4a582", "kfac": "#e08214", "exact": "#542788", "trunk": "#333333"}
NAMES = {
    "sgd": "SGD", "online": "NGD (online)", "accurate": "NGD (online, accurate)", "kfac": "NGD (KFAC)",
    "exact": "NGD (exact)", "trunk": "trunk (SGD)",
}  # fmt: skip
LABELS = {
    **JUDGED, "train_loss": "training loss", "validation_loss": "validation loss", "update_norm": "‖lr·v‖",
    "direction_norm": "‖v‖", "wbic": "WBIC (β = 1/log n)", "wbic_paper": "WBIC, authors' SGLD",
}  # fmt: skip
JUDGED_SHOWN = (
    "llc_paper", "llc_paper_half_step", "llc_paper_long", "llc_coarse_basin", "llc_basin", "half_soft_rank_paper",
    "half_soft_rank", "hessian_trace", "validation_loss",
)  # fmt: skip
CYCLE = ("#2166ac", "#b2182b", "#4d9221", "#e08214", "#542788", "#01665e", "#8c510a", "#999999")


def draw(table: pd.DataFrame, made: Mapping[str, pd.DataFrame], folder: Path) -> list[Path]:
    """Write the figures of all parts that there are; their paths."""
    makers = {
        "sizes": (figure_sizes, made), "epochs": (figure_epochs, made), "smoothing": (figure_smoothing, made),
        "branches": (figure_branches, {"branches": table}),
        "overfitting": (figure_overfitting, {"overfitting": sound(table)}), "judged": (figure_judged, made),
    }  # fmt: skip
    written = []
    for part, (make, source) in makers.items():
        if part in made:
            rows = source[part]
            path = folder / f"{part}.png"
            make(rows[rows["part"] == part] if "part" in rows else rows).savefig(path, dpi=110)
            written.append(path)
    return written


def figure_sizes(table: pd.DataFrame) -> Any:
    """Figure 1: λ̂ and training loss of every network, ours with one standard deviation, the authors' hollow."""
    fig, axes = panels(3, 3, 4.2, 3.2)
    networks = {network: place for place, network in enumerate(dict.fromkeys(table["network"]))}
    columns = (("llc_mean", "llc"), ("train_loss_mean", "train_loss"), ("test_loss_mean", "validation_loss"))
    titles = (MEASUREMENTS["llc_paper"], "training loss", "test loss")
    kinds = list(dict.fromkeys(table["optimizer"]))
    for axis, (column, quantity), title in zip(axes, columns, titles, strict=True):
        for number, kind in enumerate(kinds):
            rows = table[table["optimizer"] == kind]
            places = rows["network"].map(networks) + 0.22 * (number - (len(kinds) - 1) / 2)
            ink = INKS[OF_AUTHORS.get(kind, "accurate")]
            errors = rows["llc_sd"] if column == "llc_mean" else None
            axis.errorbar(
                places, rows[column], errors, color=ink, marker="o", markersize=5, linestyle="none", capsize=3,
                label=NAMES[OF_AUTHORS.get(kind, "accurate")],
            )  # fmt: skip
            theirs = [_published(network, kind, quantity) for network in rows["network"]]
            if any(map(math.isfinite, theirs)) and set(table["data"]) == {"mnist"}:
                axis.plot(places, theirs, "D", markerfacecolor="none", color=ink, markersize=9)
        axis.set_title(title, fontsize=10)
        axis.set_xticks(list(networks.values()), list(networks), rotation=30 if len(networks) > 4 else 0, fontsize=9)
        axis.set_xlim(-0.6, len(networks) - 0.4)
        if "loss" in column:
            axis.set_yscale("log")
    axes[0].legend(frameon=False, fontsize=8)
    fig.supxlabel("hidden layers × width; bars: standard deviation over seeds; diamonds: published", fontsize=9)
    return fig


def _published(network: str, kind: str, quantity: str) -> float:
    """The mean over the authors' seeds and last two epochs; NaN where they have none."""
    course = curve(network, kind, quantity)["mean"]
    return float(course.iloc[-2:].mean() if quantity == "llc" else course.iloc[-1]) if len(course) else math.nan


def figure_judged(table: pd.DataFrame) -> Any:
    """Natural gradient over SGD by every measurement, a mark for each network."""
    names = ["train_loss", *(name for name in JUDGED_SHOWN if name in set(table["measurement"]))]
    networks = list(dict.fromkeys(table["network"]))
    fig, axes = panels(2, 2, 5.4, 0.45 * len(names) + 1.4)
    inks = dict(zip(networks, CYCLE, strict=False))
    for axis, moment in zip(axes, ("end", "matched"), strict=True):
        for number, network in enumerate(networks):
            rows = table[(table["moment"] == moment) & (table["network"] == network)].set_index("measurement")
            shift = 0.1 * (number - (len(networks) - 1) / 2)
            for place, name in enumerate(names):
                if name == "train_loss" and len(rows):
                    ratio, relative = rows["ngd_loss"].iloc[0] / rows["sgd_loss"].iloc[0], 0.0
                elif name in rows.index and rows.loc[name, "sgd"] > 0 and rows.loc[name, "ngd"] > 0:
                    row = rows.loc[name]
                    ratio = row["ngd"] / row["sgd"]
                    relative = math.hypot(row["ngd_stderr"] / row["ngd"], row["sgd_stderr"] / row["sgd"])
                else:
                    continue
                label = network if place == 0 else None
                ends = [[ratio * (1 - math.exp(-1.96 * relative))], [ratio * (math.exp(1.96 * relative) - 1)]]
                axis.errorbar(ratio, place + shift, xerr=ends, color=inks[network], marker="o", markersize=4,
                              capsize=2, linestyle="none", label=label)  # fmt: skip
        axis.axvline(1, color="#333333", linewidth=0.8)
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.set_yticks(range(len(names)), [LABELS.get(name, name) for name in names], fontsize=8)
        axis.set_ylim(len(names) - 0.4, -0.6)
        axis.set_title("end of training" if moment == "end" else "equal training loss", fontsize=10)
    axes[0].legend(frameon=False, fontsize=8)
    fig.supxlabel("NGD / SGD, with 95 % intervals", fontsize=9)
    return fig


def figure_epochs(table: pd.DataFrame) -> Any:
    """Figure 2: every series over the epochs, mean and 95 % band over seeds."""
    names = [name for name in LABELS if name in table]
    fig, axes = panels(len(names), 4, 3.6, 2.7)
    for name, axis in zip(names, axes, strict=True):
        for kind, group in table.groupby("optimizer", sort=False):
            line = group[group[name].notna()].sort_values("epoch")
            _band(axis, line["epoch"], line[name], line[f"{name}_stderr"], kind)
        axis.set_title(LABELS[name], fontsize=9)
        axis.set_xlabel("epoch", fontsize=8)
        if "loss" in name or "norm" in name:
            axis.set_yscale("log")
            axis.set_ylim(bottom=0.5 * table[name].min())  # bands may reach below zero
    axes[0].legend(frameon=False, fontsize=8)
    return fig


def _band(axis: Any, x: Any, y: Any, error: Any, kind: str, label: str | None = None, **style: Any) -> None:
    ink = INKS[kind]
    marker = "o" if len(x) < 16 else None
    axis.plot(x, y, color=ink, marker=marker, markersize=3, label=NAMES[kind] if label is None else label, **style)
    axis.fill_between(x, y - 1.96 * error, y + 1.96 * error, color=ink, alpha=0.15, linewidth=0)


def figure_smoothing(table: pd.DataFrame) -> Any:
    """Figure 3: λ̂ and the losses against α and ε, beside SGD's; the authors' values hollow."""
    names = ("llc_paper", "train_loss", "validation_loss")
    fig, axes = panels(2 * len(names), len(names), 4.0, 2.8)
    natural, plain = table[table["optimizer"] == "online"], table[table["optimizer"] == "sgd"]
    column_of, real = {"llc_paper": "llc_end", "train_loss": "train_loss_end"}, set(table["data"]) == {"mnist"}
    for number, axis in enumerate(axes):
        swept, fixed = (("alpha", "epsilon"), ("epsilon", "alpha"))[number // len(names)]
        name = names[number % len(names)]
        line = natural[natural[fixed] == natural[fixed].mode().iloc[0]].sort_values(swept)
        axis.errorbar(
            line[swept], line[name], 1.96 * line[f"{name}_stderr"], color=NGD, marker="o", markersize=4, capsize=3,
            label=NAMES["online"],
        )  # fmt: skip
        if len(plain):
            mean, error = float(plain[name].iloc[0]), 1.96 * float(plain[f"{name}_stderr"].iloc[0])
            axis.axhline(mean, color=SGD, label=NAMES["sgd"])
            axis.axhspan(mean - error, mean + error, color=SGD, alpha=0.15, linewidth=0)
        theirs = published_sweep(swept) if column_of.get(name) and real else line.iloc[:0]
        if len(theirs):
            axis.plot(theirs.index, theirs[column_of[name]], "D", markerfacecolor="none", color=NGD, label="published")
        if "loss" in name:
            axis.set_yscale("log")
        axis.set_xscale("symlog", linthresh=line.loc[line[swept] > 0, swept].min())
        axis.set_xticks([0, *_decades(line[swept])])
        axis.set_xlim(0, 2 * line[swept].max())  # also where nothing could be measured
        axis.set_xlabel("α" if swept == "alpha" else "ε", fontsize=9)
        axis.set_title(LABELS[name], fontsize=9)
    axes[0].legend(frameon=False, fontsize=8)
    return fig


def _decades(values: pd.Series) -> list[float]:
    """Powers of ten from the smallest positive value to the largest, at most seven of them."""
    low, high = (round(math.log10(value)) for value in (values[values > 0].min(), values.max()))
    return [10.0**power for power in range(low, high + 1, max(1, -(-(high - low + 1) // 7)))]


def figure_branches(table: pd.DataFrame) -> Any:
    """Figures 4–6: λ̂ and training loss of each trunk and its branches, in two panels side by side."""
    names = ("llc_paper", "train_loss")
    trunks = list(table.groupby(["data", "lr", "trunk_epochs"], sort=False))
    fig, axes = panels(len(trunks) * len(names), 2 * len(names), 3.6, 2.8)
    for row, ((data, lr, _), group) in enumerate(trunks):
        for axis, name in zip(axes[row * len(names) :], names, strict=False):
            for run in dict.fromkeys(group["run"]):
                kind, _, rate = run.partition("@")
                since = group[(group["run"] == run) & group[name].notna()].copy()
                since["after"] = since["epoch"] - since["seed"].map(_ends(group))
                grouped = since.groupby("after")[name]
                mean, error = grouped.mean(), grouped.sem().fillna(0)
                raised = bool(rate) and float(rate) > lr
                style = {"linestyle": "--" if raised and float(rate) == _largest(group) else ":" if raised else "-"}
                label = NAMES[kind] + (f", {rate}" if rate else "")
                _band(axis, mean.index, mean, error, kind, label, **style)
            axis.axvline(0, color="#333333", linewidth=0.6)
            if "loss" in name:
                axis.set_yscale("log")
            _near(axis, float(group["epoch"].max() - group.loc[group["run"] == "trunk", "epoch"].max()))
            axis.set_title(f"{LABELS[name]}\n{data}, trunk at {lr:g}", fontsize=9)
            axis.set_xlabel("epochs after the split", fontsize=8)
        axes[row * len(names)].legend(frameon=False, fontsize=7)
    return fig


def _near(axis: Any, length: float) -> None:
    """Show branches of a length in epochs, and no more than three times as much of their trunk."""
    axis.set_xlim(max(axis.get_xlim()[0], -3 * length), 1.1 * length)
    seen = [
        value
        for line in axis.get_lines()[:-1]
        for place, value in zip(line.get_xdata(), line.get_ydata(), strict=True)
        if place >= -3 * length
    ]
    if axis.get_yscale() == "log":
        margin = (max(seen) / min(seen)) ** 0.05
        axis.set_ylim(min(seen) / margin, max(seen) * margin)
    else:
        margin = 0.05 * (max(seen) - min(seen))
        axis.set_ylim(min(seen) - margin, max(seen) + margin)


def _ends(trunks: pd.DataFrame) -> dict[int, float]:
    """The epoch at which every seed's trunk ended."""
    return {seed: float(part["epoch"].max()) for seed, part in trunks[trunks["run"] == "trunk"].groupby("seed")}


def _largest(trunks: pd.DataFrame) -> float:
    return max(float(run.partition("@")[2] or 0) for run in trunks["run"])


def figure_overfitting(table: pd.DataFrame) -> Any:
    """Figures 7–8: each measure over the epochs, with the validation loss behind it in grey."""
    names = [
        name for name in ("wbic_paper", "wbic", "llc_paper", "llc", "half_soft_rank", "hessian_trace") if name in table
    ]
    names = [name for name in names if table[name].notna().any()]
    kinds = list(dict.fromkeys(table["optimizer"]))
    fig, axes = panels(len(kinds) * len(names), len(names), 3.3, 2.8)
    for number, axis in enumerate(axes):
        kind, name = kinds[number // len(names)], names[number % len(names)]
        rows = table[table["optimizer"] == kind]
        twin = axis.twinx()
        twin.spines["top"].set_visible(False)
        losses = rows.groupby("epoch")["validation_loss"].mean()
        twin.plot(losses.index, losses, color="#999999", linewidth=1)
        twin.set_ylim(0, 2 * losses[losses.idxmin() :].max())  # of the rise, not of the start
        twin.axvline(losses.idxmin(), color="#999999", linewidth=0.6, linestyle=":")
        twin.tick_params(labelsize=7, colors="#999999")
        grouped = rows[rows[name].notna()].groupby("epoch")[name]
        _band(axis, grouped.mean().index, grouped.mean(), grouped.sem().fillna(0), kind)
        axis.set_title(f"{LABELS[name]}\n{NAMES[kind]}", fontsize=9)
        axis.set_xlabel("epoch", fontsize=8)
    fig.supxlabel("grey: validation loss and where it is lowest", fontsize=8)
    return fig
