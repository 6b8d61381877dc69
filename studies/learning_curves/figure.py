"""The figure of the learning curves."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from studies.common.planted import PLANTED

BAYES, GIBBS, EXACT, INK = "#2166ac", "#e08214", "#b2182b", "#333333"


def figure(summary: Any, table: Any) -> Any:
    """Above: n times the Bayes and Gibbs errors over n. Below: Bayes error and leave-one-out, data set by data set.

    Leave-one-out has the mean of the Bayes error and the opposite fluctuations, so that the mean of both is the Bayes
    error with little noise.
    """
    models = list(dict.fromkeys(summary["model"]))
    drawn = Figure(figsize=(4.2 * len(models), 7.5), layout="constrained")
    panels = drawn.subplots(2, len(models), squeeze=False)
    for above, below, model in zip(*panels, models, strict=True):
        own = summary[summary["model"] == model]
        exact = float(PLANTED[model].coefficient[0])
        for name, colour, label in (("bayes_error", BAYES, "Bayes n·Bg"), ("gibbs_error", GIBBS, "Gibbs n·Gg")):
            above.errorbar(
                own["n"], own[name], 2 * own[f"{name}_stderr"], color=colour, marker="o", markersize=4, capsize=2,
                linewidth=1, label=label,
            )  # fmt: skip
        above.errorbar(
            own["n"], own["sum"] / 2, own["sum_stderr"], color=INK, marker="s", markersize=4, capsize=2, linewidth=1,
            label="n(Bg + Cv)/2",
        )  # fmt: skip
        above.plot(
            own["n"], exact + own["fluctuation"], color=GIBBS, linestyle=":", linewidth=1.5, label="λ + ν̂, for Gibbs"
        )
        above.axhline(exact, color=EXACT, linewidth=1.5, label=f"λ = {PLANTED[model].coefficient[0]}")
        above.set_xscale("log")
        above.set_xticks(own["n"], [str(n) for n in own["n"]])
        above.minorticks_off()
        above.set_ylim(bottom=0)
        above.set_xlabel("samples n")
        above.set_ylabel("n × generalization error")
        above.set_title(PLANTED[model].title, fontsize=10, color=INK)
        above.legend(frameon=False, fontsize=8)
        _scatter(below, table[table["model"] == model], exact)
        for axes in (above, below):
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(alpha=0.15)
    return drawn


def _scatter(axes: Any, table: Any, exact: float) -> None:
    n = table["samples"].max()
    own = table[table["samples"] == n]
    bayes, left_out = n * own["bayes_error"], n * own["leave_one_out_error"]
    axes.scatter(bayes, left_out, s=14, color=BAYES, alpha=0.7, linewidths=0)
    ends = np.array([bayes.min(), bayes.max()])
    axes.plot(ends, 2 * exact - ends, color=EXACT, linewidth=1.5, label="n(Bg + Cv) = 2λ")
    axes.set_xlabel("n × Bayes error Bg")
    axes.set_ylabel("n × leave-one-out error Cv")
    axes.set_title(f"n = {n}: correlation {bayes.corr(left_out):.3f}", fontsize=10, color=INK)
    axes.legend(frameon=False, fontsize=8)
