"""The figure of the selection study."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

COLOURS = {"aic": "#999999", "bic": "#333333", "wbic": "#b2182b", "waic": "#2166ac", "loo": "#4dac26"}
NAMES = {"aic": "AIC", "bic": "BIC", "wbic": "WBIC", "waic": "WAIC", "loo": "LOO"}
TITLES = {"reduced-rank": "reduced-rank regression", "tanh": "tanh network", "relu": "ReLU network"}


def figure(table: Any) -> Any:
    """How often each criterion picks the true width, over n, for every family; bars are ± 1 standard error."""
    families = list(dict.fromkeys(table["family"]))
    drawn = Figure(figsize=(4.2 * len(families), 4), layout="constrained")
    for axes, family in zip(drawn.subplots(1, len(families), squeeze=False, sharey=True)[0], families, strict=True):
        own = table[table["family"] == family]
        sizes = sorted(own["n"].unique())
        for number, (name, colour) in enumerate(COLOURS.items()):
            line = own[own["criterion"] == name].sort_values("n")
            nudge = 1.02 ** (number - 2)  # so that bars do not hide one another
            axes.errorbar(
                line["n"] * nudge, line["right"], line["stderr"], color=colour, marker="o", markersize=4, linewidth=1.5,
                elinewidth=0.8, capsize=2, label=NAMES[name],
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_xticks(sizes, [str(n) for n in sizes])
        axes.minorticks_off()
        axes.set_ylim(-0.05, 1.08)
        axes.set_yticks(np.linspace(0, 1, 6), [f"{share:.0%}" for share in np.linspace(0, 1, 6)])
        axes.set_xlabel("samples n")
        axes.set_title(TITLES[family], fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.15)
    first = drawn.axes[0]
    first.set_ylabel("data sets whose true width is chosen")
    first.legend(frameon=False, fontsize=9)
    return drawn
