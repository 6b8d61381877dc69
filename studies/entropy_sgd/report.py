"""What the study shows: a page whose first line says what Entropy-SGD does, the parts of the difference, a figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from basinscope.errors import InputError
from basinscope.figure_style import BULK, LINE, POINT, panels
from studies.common.files import csv_files, readme
from studies.common.pages import in_words, markdown_table, run_again, said_of_scale
from studies.common.statistics import welch

KINDS = ("entropy-sgd", "sgd")
SHADES = {"entropy-sgd": POINT, "sgd": BULK}


def write(table: pd.DataFrame, origin: Mapping[str, Any], folder: Path) -> Sequence[Path]:
    """Tables, figure and page; their paths."""
    made = tables(table, origin["settings"])
    picture = folder / "differences.png"
    draw(made["comparison"], origin["settings"]).savefig(picture, dpi=130)
    return [*csv_files(made, folder), picture, readme(page(made, origin), folder)]


def tables(table: pd.DataFrame, settings: Mapping[str, Any]) -> dict[str, pd.DataFrame]:
    """Every network with the parts of its published λ̂, and Entropy-SGD beside SGD in each of them."""
    networks = parts(table, settings)
    rows = []
    for name, what in measured(settings).items():
        rows.append({"name": name, "measurement": what, **_compared(networks, name)})
    return {"networks": networks, "comparison": pd.DataFrame(rows)}


def parts(table: pd.DataFrame, settings: Mapping[str, Any]) -> pd.DataFrame:
    """The published λ̂ of each network as the calibrated one and three differences that add up to the rest.

    Of the shortest length k it is λ̂(γ) + [λ̂(γ') − λ̂(γ)] + [late − λ̂(γ)] + rest: what a resolution γ' hides, what step
    size and batches add in the long run, and what a chain of that length has not seen yet.
    """
    fine, coarse = (f"at_{gamma:g}" for gamma in settings["gammas"])
    shortest = f"sgld_{min(settings['lengths'])}"
    networks = table.copy()
    networks["resolution"] = networks[coarse] - networks[fine]
    networks["step_size"] = networks["sgld_late"] - networks[fine]
    networks["rest"] = networks[shortest] - networks[fine] - networks["resolution"] - networks["step_size"]
    names = ["optimizer", "seed", "parameters", "n", "train_loss", "train_accuracy", "test_loss", "test_accuracy"]
    chains = [name for name in networks if name.startswith("sgld_")]
    calibrated = [name for name in networks if name.startswith("at_")]
    return networks[[*names, *chains, *calibrated, "resolution", "step_size", "rest"]].reset_index(drop=True)


def measured(settings: Mapping[str, Any]) -> dict[str, str]:
    """Columns that are compared, in the order of the page, with what they are in words."""
    fine, coarse = settings["gammas"]
    shortest = min(settings["lengths"])
    return {
        **{f"sgld_{length}": f"published, {length:,} steps" for length in sorted(settings["lengths"])},
        "sgld_late": f"published, second half of {max(settings['lengths']):,} steps",
        f"at_{fine:g}": f"λ̂, calibrated, γ = {fine:g}", f"at_{coarse:g}": f"λ̂, calibrated, γ = {coarse:g}",
        f"at_{fine:g}_basin": f"basin, γ = {fine:g}", f"at_{coarse:g}_basin": f"basin, γ = {coarse:g}",
        f"at_{fine:g}_drop": f"drop, γ = {fine:g}", f"at_{coarse:g}_drop": f"drop, γ = {coarse:g}",
        "resolution": f"resolution: λ̂ at γ = {coarse:g} less that at {fine:g}",
        "step_size": "step size and batches: late draws less λ̂",
        "rest": f"length: what {shortest:,} steps miss beyond that",
        "train_loss": "training loss", "test_loss": "test loss", "test_accuracy": "test accuracy",
    }  # fmt: skip


def _compared(networks: pd.DataFrame, name: str) -> dict[str, Any]:
    """Means of both optimizers and Welch's interval of their difference; estimates that failed are left out."""
    samples = []
    for kind in KINDS:
        own = networks[networks["optimizer"] == kind]
        verdict = "_".join(name.split("_")[:2]) + "_verdict"
        sound = own[own[verdict] != "failed"] if verdict in own else own
        samples.append([value for value in sound[name] if math.isfinite(value)])
    try:
        test = welch(*samples)
    except InputError:
        means = [math.fsum(values) / len(values) if values else math.nan for values in samples]
        return {"entropy_sgd": means[0], "sgd": means[1], "difference": means[0] - means[1]}
    return {
        "entropy_sgd": test.first, "entropy_sgd_stderr": test.first_stderr, "sgd": test.second,
        "sgd_stderr": test.second_stderr, "difference": test.difference, "low": test.low, "high": test.high,
        "p": test.p, "networks": sum(test.counts),
    }  # fmt: skip


def draw(comparison: pd.DataFrame, settings: Mapping[str, Any]) -> Any:
    """λ̂ of both optimizers by every way of measuring, and the parts of the published difference."""
    known = comparison.set_index("name").reindex(columns=["entropy_sgd", "entropy_sgd_stderr", "sgd", "sgd_stderr",
                                                          "difference", "low", "high"])  # fmt: skip
    fine, coarse = (f"at_{gamma:g}" for gamma in settings["gammas"])
    lengths = sorted(settings["lengths"])
    ways = {**{f"sgld_{length}": f"{length:,} steps" for length in lengths}, "sgld_late": "late draws",
            f"{fine}": f"λ̂ γ={settings['gammas'][0]:g}", f"{coarse}": f"λ̂ γ={settings['gammas'][1]:g}",
            f"{fine}_basin": f"basin γ={settings['gammas'][0]:g}",
            f"{coarse}_basin": f"basin γ={settings['gammas'][1]:g}"}  # fmt: skip
    drawn, (left, right) = panels(2, 2, width=6.0, height=4.2)
    for shift, kind in ((-0.12, "entropy-sgd"), (0.12, "sgd")):
        column = kind.replace("-", "_")
        values, errors = (known.loc[list(ways), name] for name in (column, f"{column}_stderr"))
        left.errorbar([place + shift for place in range(len(ways))], values, 2 * errors, fmt="o", capsize=3,
                      color=SHADES[kind], label="Entropy-SGD" if kind == "entropy-sgd" else "SGD")  # fmt: skip
    left.set_xticks(range(len(ways)), list(ways.values()), rotation=30, ha="right", fontsize=8)
    left.set(ylabel="mean over networks ± 2 standard errors", ylim=(0, None))
    left.legend(frameon=False, fontsize=8)
    bars = {f"sgld_{lengths[0]}": "published", fine: "λ̂ calibrated", "resolution": "+ resolution",
            "step_size": "+ step size", "rest": "+ length"}  # fmt: skip
    chosen = known.loc[list(bars)]
    ends = [chosen["difference"] - chosen["low"], chosen["high"] - chosen["difference"]]
    right.bar(range(len(bars)), chosen["difference"], yerr=ends, capsize=4, color=[POINT, *[BULK] * (len(bars) - 1)])
    right.axhline(0, color=LINE, linewidth=0.8)
    right.set_xticks(range(len(bars)), list(bars.values()), rotation=20, ha="right", fontsize=8)
    right.set(ylabel="Entropy-SGD less SGD, 95 %")
    return drawn


def page(made: Mapping[str, pd.DataFrame], origin: Mapping[str, Any]) -> str:
    """`README.md`."""
    settings, networks = origin["settings"], made["networks"]
    gammas = settings["gammas"]
    verdicts = [f"{in_words(networks[f'at_{gamma:g}_verdict'])} at γ = {gamma:g}" for gamma in gammas]
    first = networks.iloc[0]
    return "\n".join([
        "# What does Entropy-SGD do to λ̂?", "",
        answer(made["comparison"], settings) + said_of_scale(origin["scale"]), "",
        "![λ̂ of both optimizers, and the parts of the difference](differences.png)", "",
        "## Every way of measuring", "",
        f"{settings['seeds']} networks of {int(first['parameters']):,} parameters for either optimizer, trained on "
        f"{int(first['n']):,} images with equal numbers of gradients. Intervals are Welch's over networks.", "",
        *markdown_table(
            ["measurement", "Entropy-SGD", "SGD", "difference", "95 %", "p"],
            [
                (row["measurement"], _with_error(row["entropy_sgd"], row.get("entropy_sgd_stderr")),
                 _with_error(row["sgd"], row.get("sgd_stderr")), _number(row["difference"]),
                 f"{_number(row.get('low'))} to {_number(row.get('high'))}", _number(row.get("p"), 2))
                for row in made["comparison"].to_dict("records")
            ],
        ),
        f"Published is SGLD at nβ = n/log n and γ = {gammas[0]:g} with ε = {settings['step_size']:g} and batches of "
        f"{settings['batch']}, from w*, with all draws kept (Lau et al., https://arxiv.org/abs/2308.12108). A chain "
        f"of k steps sees no mode slower than 1/(εk), as if γ were larger by that: by "
        f"{1 / settings['step_size'] / min(settings['lengths']):g} after {min(settings['lengths']):,} steps. "
        f"Therefore λ̂ is calibrated at γ = {gammas[1]:g}, too. λ̂ is the basin less the drop, which is how far w* is "
        "above the bottom of its basin.", "",
        f"Verdicts of the calibrated λ̂: {', '.join(verdicts)}.", "",
        "Published at 400 steps on MNIST: about 880 for Entropy-SGD and 1015 for SGD. Ours of that protocol with 80 "
        "networks each is in `results/llc`: 851 and 1006.", "",
        "## Run it again", "",
        f"{run_again(origin)}", "",
        "## Limits", "",
        "One architecture and one data set. Both optimizers had as many gradients, not the same training loss. "
        "The parts of the difference add up by construction; what is called length "
        "is the rest, and holds whatever the other two do not.", "",
    ])  # fmt: skip


def answer(comparison: pd.DataFrame, settings: Mapping[str, Any]) -> str:
    """The first lines: what Entropy-SGD does by the basin, and what of the published difference is what."""
    rows = {row["name"]: row for row in comparison.to_dict("records")}
    fine, _ = (f"at_{gamma:g}" for gamma in settings["gammas"])
    basin, drop = rows[f"{fine}_basin"], rows[f"{fine}_drop"]
    shortest, longest = (rows[f"sgld_{pick(settings['lengths'])}"] for pick in (min, max))
    return (
        f"Entropy-SGD ends in a basin whose coefficient is {_larger(basin)} than that of SGD's, by {_interval(basin)}, "
        f"and {_higher(drop)} it, by {_interval(drop)}. "
        f"The published protocol finds {_interval(shortest)} after {min(settings['lengths']):,} steps and "
        f"{_interval(longest)} after {max(settings['lengths']):,}. "
        f"Of the former {_interval(rows[fine])} is λ̂, {_interval(rows['resolution'])} resolution, "
        f"{_interval(rows['step_size'])} step size, and {_interval(rows['rest'])} length."
    )


def _larger(row: Mapping[str, Any]) -> str:
    return "larger" if _end(row, "low") > 0 else "smaller" if _end(row, "high") < 0 else "not shown to be other"


def _higher(row: Mapping[str, Any]) -> str:
    if _end(row, "low") > 0:
        return "higher above the bottom of"
    return "lower above the bottom of" if _end(row, "high") < 0 else "as high above the bottom of"


def _end(row: Mapping[str, Any], name: str) -> float:
    value = row.get(name)
    return 0.0 if value is None or not math.isfinite(value) else float(value)


def _interval(row: Mapping[str, Any]) -> str:
    return f"{_number(row['difference'])} ({_number(row.get('low'))} to {_number(row.get('high'))})"


def _with_error(value: float, error: float | None) -> str:
    return _number(value, 4) if error is None or not math.isfinite(error) else f"{_number(value, 4)} ± {error:.2g}"


def _number(value: float | None, digits: int = 3) -> str:
    return "–" if value is None or not math.isfinite(value) else f"{value:.{digits}g}".replace("-", "−")
