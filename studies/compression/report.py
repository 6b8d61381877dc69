"""What the study shows: a page whose first line is the answer, the correlations, and the curves behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from basinscope.figure_style import BULK, LINE, POINT, panels
from studies.common.files import csv_files, readme
from studies.common.kendall import with_interval
from studies.common.pages import in_words, markdown_table, run_again, said_of_scale

SHADES = {"mlp": POINT, "cnn": "#e08214", "transformer": "#1b7837"}
COMPARED = (  # what is to be predicted, and what predicts it
    ("bits a weight", "bits", "llc_density"), ("bits a weight", "bits", "trace_density"),
    ("bits a weight", "bits", "parameters"), ("share of the full rank", "rank_share", "llc_density"),
    ("share of the full rank", "rank_share", "trace_density"), ("share of the full rank", "rank_share", "parameters"),
    ("bits of the layer", "total_bits", "llc"), ("bits of the layer", "total_bits", "parameters"),
)  # fmt: skip
WORDS = {
    "llc_density": "λ̂ / weights", "trace_density": "Tr H · w² / weights", "parameters": "weights", "llc": "λ̂",
}  # fmt: skip


def write(table: pd.DataFrame, origin: Mapping[str, Any], folder: Path) -> Sequence[Path]:
    """Tables, figures and page; their paths."""
    made = tables(table)
    pictures = [folder / "layers.png", folder / "curves.png"]
    draw_layers(made["layers"]).savefig(pictures[0], dpi=130)
    draw_curves(made["curves"]).savefig(pictures[1], dpi=130)
    return [*csv_files(made, folder), *pictures, readme(page(made, origin), folder)]


def tables(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Layers with what they need, curves of the loss, and rank correlations."""
    layers = table[table["kind"] == "layer"].copy()
    layers["bits"], layers["rank"] = layers["bits_0"], layers["rank_0"]
    layers["rank_share"] = layers["rank"] / layers["full_rank"]
    layers["total_bits"] = layers["bits"] * layers["parameters"]
    layers["llc_density"] = layers["llc"] / layers["parameters"]
    layers["trace_density"] = layers["trace"] * layers["largest"] ** 2 / layers["parameters"]
    names = ["network", "seed", "layer", "parameters", "loss", "llc", "llc_stderr", "llc_verdict", "llc_at_minimum",
             "trace", "bits", "rank", "full_rank", "rank_share", "total_bits", "llc_density", "trace_density",
             *[name for name in layers if name.startswith(("bits_", "rank_")) and name[-1].isdigit()]]  # fmt: skip
    layers = layers.reindex(columns=names).reset_index(drop=True)
    curves = table[table["kind"] != "layer"][["network", "seed", "layer", "kind", "size", "rise"]]
    return {"layers": layers, "curves": curves.reset_index(drop=True), "correlations": correlations(layers)}


def correlations(layers: pd.DataFrame) -> pd.DataFrame:
    """Kendall's τ over all layers, and the mean of those within each network, with 95 % intervals.

    Layers of one network are not independent: whole networks are drawn with replacement.
    """
    networks = [f"{network}, seed {seed}" for network, seed in zip(layers["network"], layers["seed"], strict=True)]
    rows = []
    for title, wanted, by in COMPARED:
        for over, within in (("all layers", None), ("within networks", networks)):
            tau = with_interval(layers[by], layers[wanted], networks, within)
            rows.append({
                "predicted": title, "by": WORDS[by], "over": over, "tau": tau.value, "low": tau.low, "high": tau.high,
                "layers": tau.count,
            })  # fmt: skip
    return pd.DataFrame(rows)


def draw_layers(layers: pd.DataFrame) -> Any:
    """Bits, share of the rank, and bits in all that each layer needs, over its λ̂."""
    drawn, axes = panels(3, 3, width=4.4, height=3.8)
    for network, own in layers.groupby("network"):
        shade = SHADES.get(str(network), BULK)
        error = 2 * own["llc_stderr"]
        ways = (("llc_density", "bits"), ("llc_density", "rank_share"), ("llc", "total_bits"))
        for panel, (across, up) in zip(axes, ways, strict=True):
            bars = error / own["parameters"] if across == "llc_density" else error
            panel.errorbar(own[across], own[up], xerr=bars, fmt="o", color=shade, label=str(network), alpha=0.8)
    axes[0].set(xscale="log", xlabel="λ̂ / weights", ylabel="bits a weight needs")
    axes[1].set(xscale="log", xlabel="λ̂ / weights", ylabel="share of the full rank a layer needs")
    axes[2].set(xscale="log", yscale="log", xlabel="λ̂", ylabel="bits the layer needs")
    axes[0].legend(frameon=False, fontsize=8)
    return drawn


def draw_curves(curves: pd.DataFrame) -> Any:
    """The rise of the loss over bits and over rank, for the layers of the first seed of each network."""
    networks = list(dict.fromkeys(curves["network"]))
    drawn, axes = panels(2 * len(networks), len(networks), width=4.4, height=3.2)
    for column, network in enumerate(networks):
        own = curves[curves["network"] == network]
        own = own[own["seed"] == own["seed"].min()]
        for layer, lines in own.groupby("layer", sort=False):
            for row, kind in enumerate(("bits", "rank")):
                line = lines[lines["kind"] == kind]
                axes[row * len(networks) + column].plot(line["size"], line["rise"].clip(lower=1e-5), label=str(layer))
        for row, kind in enumerate(("bits", "rank")):
            panel = axes[row * len(networks) + column]
            panel.set(yscale="log", ylim=(1e-4, 10), xlabel=kind, title=network if row == 0 else "")
            panel.axhline(0.05, color=LINE, linewidth=0.7, linestyle=":")
        axes[column].legend(frameon=False, fontsize=6)
        axes[column].set_ylabel("rise of the loss")
    return drawn


def page(made: Mapping[str, pd.DataFrame], origin: Mapping[str, Any]) -> str:
    """`README.md`."""
    settings, layers = origin["settings"], made["layers"]
    return "\n".join([
        "# Does λ̂ of a layer say how far it can be squeezed?", "",
        answer(made["correlations"]) + said_of_scale(origin["scale"]), "",
        "![What layers need, over λ̂](layers.png)", "",
        "## Rank correlations", "",
        "A layer needs as many bits as let the mean loss of a prediction rise by no more than "
        f"{settings['thresholds'][0]:g} nats when its "
        "weights are rounded to equal steps and all others stay. It needs the least rank for which the same holds when "
        "its matrix is replaced by the nearest one of that rank. λ̂ is that of the layer with all others held fixed. "
        "Intervals of 95 % come from drawing whole networks with replacement.", "",
        *markdown_table(
            ["what is predicted", "by", "over", "Kendall's τ", "95 %"],
            [
                (row["predicted"], row["by"], row["over"], _signed(row["tau"]),
                 f"{_signed(row['low'])} to {_signed(row['high'])}")
                for row in made["correlations"].to_dict("records")
            ],
        ),
        "The curvature predicts the rise from rounding where it is small: half of Tr H times the mean square of the "
        "rounding. With steps in proportion to the largest weight w that is Tr H · w². λ̂ counts directions instead, "
        "each at most once. The number of weights is what any such number has to beat.", "",
        "## Every layer", "",
        *markdown_table(
            ["network", "layer", "weights", "λ̂", "verdict", "bits a weight", "rank"],
            [
                (row["network"], row["layer"], int(row["parameters"]), f"{row['llc']:.3g} ± {row['llc_stderr']:.2g}",
                 row["llc_verdict"], f"{row['bits']:.2g}", f"{row['rank']:.3g} of {int(row['full_rank'])}")
                for row in layers[layers["seed"] == layers["seed"].min()].to_dict("records")
            ],
        ),
        f"These are the layers of the first seed; `layers.csv` has all. "
        f"Verdicts: {in_words(layers['llc_verdict'])}.", "",
        "![The rise of the loss over bits and rank](curves.png)", "",
        "The experiment follows Urdshals et al. 2025 (https://arxiv.org/abs/2510.12077), who squeeze whole language "
        "models of the Pythia family; here it is single layers of small networks.", "",
        "## Run it again", "",
        f"{run_again(origin)} λ̂ has {_each(settings)} nominal seconds a layer.", "",
        "## Limits", "",
        "Small networks on few samples. Rounding is to equal steps without calibration, and ranks are cut without "
        "training again: better ways of squeezing would need less. The loss is that of the training data.", "",
    ])  # fmt: skip


def answer(correlations: pd.DataFrame) -> str:
    """The first line: how λ̂ does beside curvature and the number of weights."""

    def found(title: str, by: str, over: str) -> Mapping[str, Any]:
        named = correlations[["predicted", "by", "over"]].apply(tuple, axis=1)
        return dict(correlations[named == (title, WORDS[by], over)].iloc[0])

    bits, rank = (found(title, "llc_density", "all layers") for title in ("bits a weight", "share of the full rank"))
    total, count = (found("bits of the layer", by, "all layers") for by in ("llc", "parameters"))
    sharp = [found(each["predicted"], "trace_density", "all layers") for each in (bits, rank)]
    return (
        f"{_yes_or_no(bits)} for bits: over {bits['layers']} layers λ̂ per weight and the bits that a weight needs have "
        f"a rank correlation of {_with(bits)}. {_yes_or_no(rank)} for rank: the correlation with the share of the full "
        f"rank is {_with(rank)}. The curvature Tr H · w² per weight has {_with(sharp[0])} and "
        f"{_with(sharp[1])}. The bits of a whole layer go with λ̂ by {_with(total)}, and with the mere number of "
        f"weights by {_with(count)}."
    )


def _each(settings: Mapping[str, Any]) -> str:
    """The budgets of the networks."""
    return ", ".join(
        f"{budget:g} ({network})" for network, budget in zip(settings["networks"], settings["budgets"], strict=True)
    )


def _yes_or_no(row: Mapping[str, Any]) -> str:
    if not np.isfinite(row["low"]):
        return "Too few networks to tell"
    return "Yes" if row["low"] > 0 else "The opposite" if row["high"] < 0 else "Not shown"


def _with(row: Mapping[str, Any]) -> str:
    return f"{_signed(row['tau'])} ({_signed(row['low'])} to {_signed(row['high'])})"


def _signed(value: float) -> str:
    return "–" if not np.isfinite(value) else f"{value:.2f}".replace("-", "−")
