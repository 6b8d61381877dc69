"""Tables and the figure, from the rows of all jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from basinscope.measures.volume import VolumeScaling
from basinscope.measures.volume_figure import draw_exponents

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
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(12, 7), layout="constrained")
    parts = table[table["part"] == "volumes"].groupby("landscape", sort=False)
    for axes, (name, levels) in zip(drawn.subplots(2, 3).flat, parts, strict=False):
        (value, theta), last = CASES[str(name)].coefficient, levels.iloc[-1]
        columns = ("levels", "log_volume", "step_stderr")
        ladder = {column: levels[column].tolist() for column in columns}
        fit = {"multiplicity": theta, "offset": last["offset"], "fitted_points": int(last["fitted_points"])}
        draw_exponents(axes, VolumeScaling("llc", last["llc"], last["stderr"], diagnostics={**ladder, **fit}))
        axes.set_title(f"{name}\nλ̂ = {last['llc']:.3f} ± {last['stderr']:.3f},  λ = {value},  θ = {theta}", fontsize=10)
    return drawn
