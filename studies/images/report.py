"""What the study shows: how many λ̂ are sound, how each training went, and architectures at one test loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from basinscope.figure_style import BULK, POINT, panels
from studies.common.files import csv_files, readme
from studies.common.pages import in_words, markdown_table, run_again, said_of_scale

SHADES = {"mlp": POINT, "cnn": "#e08214", "vit": "#1b7837", "resnet20": BULK}
SOUND = 0.9  # share of verdicts that should be ok
CURVES = {"test_loss": "test loss", "llc": "λ̂", "llc_basin": "basin", "llc_drop": "drop"}


def write(table: pd.DataFrame, origin: Mapping[str, Any], folder: Path) -> Sequence[Path]:
    """Tables, figure and page; their paths."""
    made = tables(table)
    picture = folder / "trainings.png"
    draw(made["checkpoints"]).savefig(picture, dpi=120)
    return [*csv_files(made, folder), picture, readme(page(made, origin), folder)]


def tables(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Every checkpoint, and the architectures of each data set where they have one test loss."""
    names = ["network", "data", "seed", "step", "parameters", "n", "train_loss", "test_loss", "test_loss_stderr",
             "test_accuracy", *[name for name in table if name.startswith("llc")]]  # fmt: skip
    checkpoints = table[names].reset_index(drop=True)
    return {"checkpoints": checkpoints, "equal_loss": equal_loss(checkpoints)}


def equal_loss(checkpoints: pd.DataFrame) -> pd.DataFrame:
    """Of each data set the test loss that every network reaches, and λ̂, basin and drop where it does so first.

    It is the largest of the lowest test losses. Between two checkpoints everything is interpolated in the logarithm of
    the test loss, and so are standard errors.
    """
    rows = []
    for data, own in checkpoints.groupby("data", sort=False):
        runs = {key: run.sort_values("step") for key, run in own.groupby(["network", "seed"], sort=False)}
        goal = max(run["test_loss"].min() for run in runs.values())
        for (network, seed), run in runs.items():
            rows.append({"data": data, "network": network, "seed": seed, "test_loss": goal, **_where(run, goal)})
    return pd.DataFrame(rows)


def _where(run: pd.DataFrame, goal: float) -> dict[str, Any]:
    """A training where its test loss is `goal` for the first time."""
    losses = run["test_loss"].to_numpy()
    after = int(np.flatnonzero(losses <= goal * (1 + 1e-12))[0])
    before = max(0, after - 1)
    apart = np.log(losses[before]) - np.log(losses[after])
    share = 1.0 if apart <= 0 else float((np.log(losses[before]) - np.log(goal)) / apart)
    wanted = ("step", "test_accuracy", "llc", "llc_stderr", "llc_basin", "llc_basin_stderr", "llc_drop",
              "llc_drop_stderr", "llc_nbeta", "llc_gamma")  # fmt: skip
    first, second = run.iloc[before], run.iloc[after]
    between = {name: (1 - share) * float(first[name]) + share * float(second[name]) for name in wanted if name in run}
    return {"parameters": int(second["parameters"]), **between}


def draw(checkpoints: pd.DataFrame) -> Any:
    """Test loss, λ̂, basin and drop over the steps, a column for each data set."""
    sets = list(dict.fromkeys(checkpoints["data"]))
    drawn, axes = panels(len(CURVES) * len(sets), len(sets), width=6.0, height=2.2)
    for column, data in enumerate(sets):
        for (network, _), run in checkpoints[checkpoints["data"] == data].groupby(["network", "seed"], sort=False):
            lines, shade = run.sort_values("step"), SHADES[str(network)]
            for row, (name, label) in enumerate(CURVES.items()):
                panel = axes[row * len(sets) + column]
                error = 2 * lines[f"{name}_stderr"].fillna(0)
                panel.errorbar(lines["step"], lines[name], error, color=shade, capsize=2, linewidth=1, label=network)
                poor = lines[lines["llc_verdict"] != "ok"] if row else lines.iloc[:0]
                sound = lines[lines["llc_verdict"] == "ok"] if row else lines
                panel.plot(sound["step"], sound[name], "o", color=shade, markersize=3)
                panel.plot(poor["step"], poor[name], "o", color=shade, markersize=4, markerfacecolor="white")
                panel.set(xscale="log", ylabel=label, title=str(data) if row == 0 else "")
        axes[column].legend(frameon=False, fontsize=8)
        axes[(len(CURVES) - 1) * len(sets) + column].set_xlabel("step; hollow: not sound")
    return drawn


def page(made: Mapping[str, pd.DataFrame], origin: Mapping[str, Any]) -> str:
    """`README.md`."""
    settings, checkpoints = origin["settings"], made["checkpoints"]
    return "\n".join([
        "# λ̂ of image classifiers through training", "",
        answer(made) + said_of_scale(origin["scale"]), "",
        "![Trainings](trainings.png)", "",
        "## The trainings", "",
        *markdown_table(
            ["data", "network", "weights", "checkpoints", "λ̂ ok", "test loss", "right", "basin", "drop", "last λ̂"],
            [_training(run) for _, run in checkpoints.groupby(["data", "network", "seed"], sort=False)],
        ),
        "## Architectures at one test loss", "",
        "Each network is taken where it first has the test loss that all of them reach, between two checkpoints by "
        "interpolation. nβ is shared; γ is that of each training.", "",
        *markdown_table(
            ["data", "network", "weights", "test loss", "at step", "λ̂", "basin", "drop", "λ̂ / weights"],
            [
                (row["data"], row["network"], int(row["parameters"]), f"{row['test_loss']:.3g}", f"{row['step']:.0f}",
                 _with(row, "llc"), _with(row, "llc_basin"), _with(row, "llc_drop"),
                 f"{row['llc'] / row['parameters']:.2g}")
                for row in made["equal_loss"].to_dict("records")
            ],
        ),
        f"Verdicts: {in_words(checkpoints['llc_verdict'])}.", "",
        "## Run it again", "",
        f"{run_again(origin)} Adam with a rate of {settings['rate']:g} and batches of {settings['batch']} for "
        f"{settings['epochs']} epochs. λ̂ is taken on at most {settings['measured']:,} of the images trained on, at "
        f"nβ = {_or(settings['nbeta'], 'n/log n')} and γ = {_or(settings['gamma'], 'd/‖w*‖² of the last checkpoint')}, "
        "with one seed.", "",
        "## Limits", "",
        "One seed of each network, no augmentation, and a rate that does not fall. nβ is far below n/log n, because "
        "weights in training are no minimum there.", "",
    ])  # fmt: skip


def answer(made: Mapping[str, pd.DataFrame]) -> str:
    """The first lines: how many λ̂ are sound, and the order of the architectures at one test loss."""
    verdicts = made["checkpoints"]["llc_verdict"]
    share = float((verdicts == "ok").mean())
    said = [
        f"{share:.0%} of {len(verdicts)} λ̂ through training pass all their checks, "
        f"{'at least' if share >= SOUND else 'fewer than'} the wanted nine of ten."
    ]
    for data, own in made["equal_loss"].groupby("data", sort=False):
        if len(own) > 1:
            ranked = own.sort_values("llc").to_dict("records")
            listed = ", ".join(f"{_with(row, 'llc')} ({row['network']})" for row in ranked)
            said.append(f"On {data} at a test loss of {own['test_loss'].iloc[0]:.3g} λ̂ is {listed}.")
    return " ".join(said)


def _training(run: pd.DataFrame) -> tuple[Any, ...]:
    lines = run.sort_values("step")
    first, last = lines.iloc[0], lines.iloc[-1]
    return (
        last["data"], last["network"], int(last["parameters"]), len(lines),
        f"{int((lines['llc_verdict'] == 'ok').sum())} of {len(lines)}",
        f"{first['test_loss']:.3g} → {last['test_loss']:.3g}", f"{last['test_accuracy']:.1%}",
        f"{first['llc_basin']:.3g} → {last['llc_basin']:.3g}", f"{first['llc_drop']:.3g} → {last['llc_drop']:.3g}",
        _with(last, "llc"),
    )  # fmt: skip


def _with(row: Mapping[str, Any] | pd.Series, name: str) -> str:
    return f"{row[name]:.3g} ± {row[f'{name}_stderr']:.2g}".replace("-", "−")


def _or(value: float, otherwise: str) -> str:
    return f"{value:g}" if value else otherwise
