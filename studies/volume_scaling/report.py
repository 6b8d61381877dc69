"""Tables, the figure and the page, from the rows of all jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from basinscope.figure_style import POINT, panels
from basinscope.measures.volume import VolumeScaling
from basinscope.measures.volume_figure import draw_exponents
from studies.common.pages import run_again

from .cases import CASES, DENSITIES

if TYPE_CHECKING:
    import pandas as pd


def volume_table(table: pd.DataFrame) -> pd.DataFrame:
    """λ̂ of every landscape beside λ, and the smallest volume that it comes from."""
    import pandas as pd

    rows = []
    for name, levels in table[table["part"] == "volumes"].groupby("landscape", sort=False):
        (value, theta), last = CASES[str(name)].coefficient, levels.iloc[-1]
        rows.append(
            {
                "landscape": name, "llc": last["llc"], "stderr": last["stderr"], "exact": float(value),
                "multiplicity": theta, "relative_error": last["llc"] / float(value) - 1, "verdict": last["verdict"],
                "smallest": last["levels"], "log_volume": last["log_volume"],
                "log_volume_stderr": last["log_volume_stderr"], "evaluations": int(last["evaluations"]),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def sampler_table(table: pd.DataFrame) -> pd.DataFrame:
    """E[nβ·K] of every density by every sampler, beside its exact value."""
    import pandas as pd

    rows = []
    for row in table[table["part"] == "samplers"].to_dict("records"):
        value = DENSITIES[row["density"]].energy(row["nbeta"])
        rows.append(
            {
                "target": f"{row['density']}, nβ = {row['nbeta']:g}",
                "sampler": f"NUTS, acceptance {row['acceptance']:g}" if row["acceptance"] else "engine",
                "mean": row["mean"], "stderr": row["stderr"], "exact": value,
                "off": (row["mean"] - value) / row["stderr"], "divergences": int(row["divergences"]),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def figure(table: pd.DataFrame) -> Any:
    """The local exponents of all landscapes, beside the fitted ones."""
    parts = table[table["part"] == "volumes"].groupby("landscape", sort=False)
    fig, every = panels(len(parts), 3, width=4.0, height=3.5)
    for axes, (name, levels) in zip(every, parts, strict=True):
        (value, theta), last = CASES[str(name)].coefficient, levels.iloc[-1]
        columns = ("levels", "log_volume", "step_stderr")
        ladder = {column: levels[column].tolist() for column in columns}
        fit = {"multiplicity": theta, "offset": last["offset"], "fitted_points": int(last["fitted_points"])}
        axes.axhline(float(value), color=POINT, linewidth=1, linestyle=":", label="λ", zorder=0)
        draw_exponents(axes, VolumeScaling("llc", last["llc"], last["stderr"], diagnostics={**ladder, **fit}))
        axes.set_title(f"{name}\nλ̂ = {last['llc']:.3f} ± {last['stderr']:.3f},  λ = {value},  θ = {theta}", fontsize=10)
    return fig


def page(made: Mapping[str, pd.DataFrame], origin: Mapping[str, Any]) -> str:
    """`README.md`."""
    volumes, samplers = made["volumes"], made["samplers"]
    settings = origin["settings"]
    lines = ["# Does the volume of low loss shrink with the power λ?", "", answer(volumes, samplers), ""]
    if len(volumes):
        lines += [
            "Singular learning theory says that the prior's volume V(ε) of weights with a loss within ε of the least "
            "one is proportional to ε^λ (log 1/ε)^(θ−1). Landscapes without noise, of which λ and its multiplicity θ "
            "are known, are followed down to tiny volumes level by level, and λ̂ is fitted to the slope of log V in "
            "log ε.", "",
            "![Local exponents](volumes.png)", "",
            "## λ̂ from volumes", "",
            "| landscape | λ | θ | λ̂ | error | least ε | log V there | evaluations |",
            "|---|---|---|---|---|---|---|---|",
            *(
                f"| {r['landscape']} | {r['exact']:.3f} | {r['multiplicity']} | {r['llc']:.3f} ± {r['stderr']:.3f} | "
                f"{r['relative_error']:+.1%} | {r['smallest']:.0e} | {r['log_volume']:.1f} ± "
                f"{r['log_volume_stderr']:.1f} | {r['evaluations']:,} |".replace("-", "−")
                for r in volumes.to_dict("records")
            ), "",
        ]  # fmt: skip
    if len(samplers):
        lines += [
            "## Samplers beside exact means", "",
            "E[nβ(K − K(0))] under exp(−nβK − ‖w‖²/2) in two dimensions, where it is an integral: the hyperbola "
            "K = (xy)²/2, singular at the origin, and a curved valley. *Off* is in standard errors.", "",
            "| density | sampler | mean | exact | off | divergences |", "|---|---|---|---|---|---|",
            *(
                f"| {r['target']} | {r['sampler']} | {r['mean']:.4f} ± {r['stderr']:.4f} | {r['exact']:.4f} | "
                f"{r['off']:+.1f} | {r['divergences']} |".replace("-", "−")
                for r in samplers.to_dict("records")
            ), "",
        ]  # fmt: skip
    lines += [
        "## Run it again", "",
        f"{run_again(origin)} Volumes have sixteen groups of {settings['particles']} particles.",
        "", "## Limits", "",
        "At most a dozen weights, no noise, θ given. The cusp nears its law as a power of ε, so that its λ̂ depends on "
        "how far down one goes. In more dimensions such volumes need far more evaluations; `bs.llc` is then the better "
        "measure.", "",
    ]  # fmt: skip
    return "\n".join(lines)


def answer(volumes: pd.DataFrame, samplers: pd.DataFrame) -> str:
    """The first line: the largest error of λ̂, and how far the samplers are from exact means."""
    said = []
    if len(volumes):
        worst = volumes.loc[volumes["relative_error"].abs().idxmax()]
        said.append(
            f"The exponent of V(ε) is λ to within {abs(worst['relative_error']):.1%} on {len(volumes)} landscapes (the "
            f"largest error: {worst['landscape']}, {worst['llc']:.3f} for {worst['exact']:.3f})"
        )
    for words, means in samplers.groupby(_family(samplers)) if len(samplers) else ():
        counted = f", with {means['divergences'].sum()} divergences" if means["divergences"].sum() else ""
        said.append(
            f"{words} finds {len(means)} exact means to within {means['off'].abs().max():.1f} standard errors{counted}"
        )
    return ". ".join(said) + "."


def _family(samplers: pd.DataFrame) -> pd.Series:
    """The engine or NUTS, whatever acceptance it aims at."""
    return samplers["sampler"].str.partition(",")[0].replace("engine", "The engine")
