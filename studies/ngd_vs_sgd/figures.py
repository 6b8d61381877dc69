"""A figure for each part, from its table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from basinscope.figure_style import panels

from .tables import MEASUREMENTS, sound

if TYPE_CHECKING:
    import pandas as pd

SGD, NGD = "#2166ac", "#b2182b"
INKS = {"sgd": SGD, "online": NGD, "accurate": "#f4a582", "kfac": "#e08214", "exact": "#542788", "trunk": "#333333"}
NAMES = {
    "sgd": "SGD", "online": "NGD (online)", "accurate": "NGD (online, accurate)", "kfac": "NGD (KFAC)",
    "exact": "NGD (exact)", "trunk": "trunk (SGD)",
}  # fmt: skip
LABELS = {
    **MEASUREMENTS, "train_loss": "training loss", "validation_loss": "validation loss", "update_norm": "‖lr·v‖",
    "direction_norm": "‖v‖", "wbic": "WBIC (β = 1/log n)", "wbic_paper": "WBIC, paper's SGLD",
}  # fmt: skip


def draw(table: pd.DataFrame, made: Mapping[str, pd.DataFrame], folder: Path) -> list[Path]:
    """Write the figures of all parts that there are; their paths."""
    makers = {
        "sizes": (figure_sizes, made), "epochs": (figure_epochs, made), "variants": (figure_variants, made),
        "smoothing": (figure_smoothing, made), "branches": (figure_branches, {"branches": table}),
        "overfitting": (figure_overfitting, {"overfitting": sound(table)}),
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
    """Figure 1 with every measurement: a row of panels for the end of training, one for equal training loss."""
    cases = [(data, moment) for data in dict.fromkeys(table["data"]) for moment in ("end", "matched")]
    names = [name for name in MEASUREMENTS if name in set(table["measurement"])]
    networks = {network: place for place, network in enumerate(dict.fromkeys(table["network"]))}
    fig, axes = panels(len(cases) * len(names), len(names), 3.6, 2.9)
    for number, axis in enumerate(axes):
        (data, moment), name = cases[number // len(names)], names[number % len(names)]
        rows = table[(table["data"] == data) & (table["moment"] == moment) & (table["measurement"] == name)]
        axis.set_title(
            f"{MEASUREMENTS[name]}\n{data}, {'end of training' if moment == 'end' else 'equal loss'}", fontsize=9
        )
        if rows.empty:
            axis.text(0.5, 0.5, "no positive value", transform=axis.transAxes, ha="center", color="#777777")
            axis.set_xticks([])
            axis.set_yticks([])
            continue
        places = rows["network"].map(networks)
        for column, ink, shift in (("sgd", SGD, -0.08), ("ngd", NGD, 0.08)):
            errors = 1.96 * rows[f"{column}_stderr"]
            axis.errorbar(
                places + shift, rows[column], errors, color=ink, marker="o", markersize=4,
                linestyle="none", capsize=3, label=NAMES["sgd" if column == "sgd" else "online"],
            )  # fmt: skip
        _stars(axis, rows, places)
        axis.set_xticks(list(networks.values()), list(networks), rotation=30 if len(networks) > 4 else 0, fontsize=8)
        axis.set_xlim(-0.6, len(networks) - 0.4)
        axis.margins(y=0.2)
    axes[0].legend(frameon=False, fontsize=8)
    fig.supxlabel("hidden layers x width; bars are 95 %, stars mark p < 0.05 after Holm's correction", fontsize=8)
    return fig


def _stars(axis: Any, rows: pd.DataFrame, places: pd.Series) -> None:
    if "p_holm" not in rows:
        return
    for place, row in zip(places, rows.to_dict("records"), strict=True):
        if row["p_holm"] < 0.05:
            axis.annotate("*", (place, max(row["ngd"], row["sgd"])), (0, 6), textcoords="offset points", ha="center")


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


def figure_variants(table: pd.DataFrame) -> Any:
    """Every natural gradient less SGD, in units of SGD's mean, at the end and at equal loss."""
    table = table[table["difference"].notna()] if "difference" in table else table.iloc[:0]
    fig, axes = panels(2, 2, 5.2, 3.4)
    for axis, moment in zip(axes, ("end", "matched"), strict=True):
        rows = table[table["moment"] == moment]
        names = list(dict.fromkeys(rows["measurement"]))
        kinds = list(dict.fromkeys(rows["variant"]))
        for number, kind in enumerate(kinds):
            part = rows[rows["variant"] == kind].set_index("measurement").reindex(names)
            shift = 0.18 * (number - (len(kinds) - 1) / 2)
            base = part["sgd"].abs()
            error = (part["high"] - part["low"]) / 2 / base if "high" in part else None
            axis.errorbar(
                part["difference"] / base, [place + shift for place in range(len(names))], xerr=error, color=INKS[kind],
                marker="o", markersize=4, linestyle="none", capsize=3, label=NAMES[kind],
            )  # fmt: skip
        axis.axvline(0, color="#333333", linewidth=0.8)
        axis.set_yticks(range(len(names)), [MEASUREMENTS[name] for name in names], fontsize=8)
        axis.set_ylim(len(names) - 0.4, -0.6)
        axis.set_xlabel("(NGD − SGD) / |SGD|, with 95 % interval", fontsize=8)
        axis.set_title("end of training" if moment == "end" else "equal training loss", fontsize=9)
    if len(table):
        axes[0].legend(frameon=False, fontsize=8)
    return fig


def figure_smoothing(table: pd.DataFrame) -> Any:
    """Figure 3: λ̂, Tr H and the training loss against α and ε, beside SGD's."""
    names = [name for name in ("llc_paper", "llc", "half_soft_rank", "hessian_trace", "train_loss") if name in table]
    fig, axes = panels(2 * len(names), len(names), 3.4, 2.8)
    natural, plain = table[table["optimizer"] == "online"], table[table["optimizer"] == "sgd"]
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
        axis.set_xscale("symlog", linthresh=line.loc[line[swept] > 0, swept].min())
        axis.set_xlim(0, 2 * line[swept].max())  # also where nothing could be measured
        axis.set_xlabel("α" if swept == "alpha" else "ε", fontsize=9)
        axis.set_title(LABELS[name], fontsize=9)
    axes[0].legend(frameon=False, fontsize=8)
    return fig


def figure_branches(table: pd.DataFrame) -> Any:
    """Figures 4–6: the trunk and its branches; a row of panels for each trunk."""
    names = [
        name for name in ("llc_paper", "hessian_trace", "train_loss", "validation_loss", "update_norm") if name in table
    ]
    trunks = list(table.groupby(["data", "lr", "trunk_epochs"], sort=False))
    fig, axes = panels(len(trunks) * len(names), len(names), 3.4, 2.8)
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
            _near(axis, float(group["epoch"].max() - group.loc[group["run"] == "trunk", "epoch"].max()))
            axis.set_title(f"{LABELS[name]}\n{data}, trunk at {lr:g}", fontsize=9)
            axis.set_xlabel("epochs after the split", fontsize=8)
            if "norm" in name:
                axis.set_yscale("log")
                axis.set_ylim(bottom=0.5 * group[name].min())
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
        twin.axvline(losses.idxmin(), color="#999999", linewidth=0.6, linestyle=":")
        twin.tick_params(labelsize=7, colors="#999999")
        grouped = rows[rows[name].notna()].groupby("epoch")[name]
        _band(axis, grouped.mean().index, grouped.mean(), grouped.sem().fillna(0), kind)
        axis.set_title(f"{LABELS[name]}\n{NAMES[kind]}", fontsize=9)
        axis.set_xlabel("epoch", fontsize=8)
    fig.supxlabel("grey: validation loss and where it is lowest", fontsize=8)
    return fig
