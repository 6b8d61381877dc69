"""What Saghir et al. (2024, https://arxiv.org/abs/2409.04913) got, by their public code, beside what is found here.

The two files in `authors/` hold the series in the result pages of https://github.com/cxtraa/ngd_with_slt: means and
standard deviations over 30 seeds of Figure 1, and the ends of the single runs of Figures 3 to 6.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]

FOLDER = Path(__file__).parent / "authors"
NAMES = {"sgd": "sgd", "ngd": "online"}  # their optimizers, as jobs name them
TOLERANCE = {"1": 0.08, "3": 0.12, "4–6": 0.12}  # relative differences from the published value that count as agreement


@lru_cache(maxsize=2)
def _published(name: str) -> pd.DataFrame:
    import pandas as pd

    return pd.read_csv(FOLDER / f"{name}.csv")


def agreement(table: pd.DataFrame) -> list[Row]:
    """λ̂ by the authors' SGLD at the end of training, ours and theirs, a row for every network that they published.

    Args:
        table: all rows of the study, λ̂ at the end of a course averaged over its last two epochs.
    """
    ends = table[table["moment"] == "end"]
    makers = {"sizes": _sizes, "smoothing": _sweeps, "branches": _splits}
    parts = {part: ends[ends["part"] == part] for part in makers}
    rows = [row for part, make in makers.items() if len(parts[part]) for row in make(parts[part])]
    for row in rows:
        if math.isnan(row["published_stderr"]):  # of single runs: theirs are taken to vary as the seeds do here
            row["published_stderr"] = row["llc_stderr"] * math.sqrt(row["seeds"])
        difference = row["llc"] - row["published"]
        stderr = math.hypot(row["llc_stderr"], row["published_stderr"])
        relative = difference / row["published"]
        row |= {"difference": difference, "difference_stderr": stderr, "relative": relative}
        row["agrees"] = abs(relative) <= TOLERANCE[row["figure"]]
    return rows


def curve(network: str, optimizer: str, quantity: str) -> pd.DataFrame:
    """Their mean and standard deviation over 30 seeds at every epoch, of Figure 1's networks.

    Examples:
        >>> course = curve("1x64", "sgd", "llc")
        >>> len(course), course["mean"].iloc[-2:].round(1).tolist()
        (20, [16.4, 16.3])
    """
    series = _published("thirty_seeds")
    chosen = (series["network"] == network) & (series["optimizer"] == optimizer) & (series["quantity"] == quantity)
    return series[chosen]


def _sizes(ends: pd.DataFrame) -> Iterator[Row]:
    ends = ends[ends["data"] == "mnist"]
    series = _published("thirty_seeds")
    for network in dict.fromkeys(series["network"]):
        for optimizer, kind in NAMES.items():
            ours = ends[(ends["network"] == network) & (ends["optimizer"] == kind)]
            if len(ours):
                llc, loss = (curve(network, optimizer, name).iloc[-2:] for name in ("llc", "train_loss"))
                stderr = llc["sd"].mean() / math.sqrt(llc["seeds"].iloc[0])
                yield {
                    "figure": "1", "data": "mnist", "network": network, "optimizer": optimizer, "setting": "20 epochs",
                    **_ours(ours), "published": llc["mean"].mean(), "published_stderr": stderr,
                    "published_loss": loss["mean"].iloc[-1],
                }  # fmt: skip


def published_sweep(swept: str) -> pd.DataFrame:
    """Figure 3's single runs: λ̂ and training loss of NGD at the end, by `alpha` or by `epsilon`.

    α is swept at a floor ε that no longer matters, ε at α = 0.

    Examples:
        >>> published_sweep("epsilon")["llc_end"].round(1).tolist()
        [55.0, 56.1, 55.4, 49.7, 51.5, 50.4, 50.2, 45.2]
    """
    natural = _sweep_runs("ngd")
    chosen = natural[natural["alpha"] > 0] if swept == "alpha" else natural[natural["alpha"] == 0]
    return chosen.groupby(swept)[["llc_end", "train_loss_end"]].mean()


def _sweep_runs(optimizer: str) -> pd.DataFrame:
    single = _published("single_runs")
    of_figure = (single["experiment"] == "sweep") & (single["epochs"] == 30)
    return single[of_figure & (single["optimizer"] == optimizer)]


def _sweeps(ends: pd.DataFrame) -> Iterator[Row]:
    """Figure 3: NGD at every α and ε that both have, and SGD."""
    ends = ends[ends["data"] == "mnist"]
    what = {"figure": "3", "data": "mnist", "network": "2x256"}
    plain = ends[ends["optimizer"] == "sgd"]
    if len(plain):
        yield {**what, "optimizer": "sgd", "setting": "SGD", **_ours(plain), **_theirs(_sweep_runs("sgd"))}
    for name, swept in (("α", "alpha"), ("ε", "epsilon")):
        rest = ends[(ends["alpha"] > 0) == (swept == "alpha")]
        for value, published in published_sweep(swept).iterrows():
            ours = rest[(rest["optimizer"] == "online") & (abs(rest[swept] / value - 1) < 1e-6)]
            if len(ours):
                setting = f"{name} = {value:g}"
                theirs = _theirs(published.to_frame().T)
                yield {**what, "optimizer": "ngd", "setting": setting, **_ours(ours), **theirs}


def _splits(ends: pd.DataFrame) -> Iterator[Row]:
    """Figures 4–6: SGD that goes on after a split, at its rate or a raised one. NGD's ends are not published."""
    single = _published("single_runs")
    single = single[single["experiment"] == "split"].fillna({"label": ""})
    for (data, rate, split, last), runs in single.groupby(["data", "sgd_rate", "split_at", "epochs"], sort=False):
        trunks = ends[(ends["data"] == data) & (ends["trunk_epochs"] == split) & (ends["epochs"] == last)]
        raised = runs["label"].map(lambda label: float(label[:-1]) if label.endswith("x") else 1.0)
        for factor, alike in runs.groupby(raised):
            ours = trunks[(abs(trunks["lr"] / rate - 1) < 1e-6) & (trunks["run"] == f"sgd@{rate * factor:g}")]
            if len(ours):
                yield {
                    "figure": "4–6", "data": data, "network": "2x256", "optimizer": "sgd",
                    "setting": f"split at {split}, until {last}, {rate:g} → {rate * factor:g}", **_ours(ours),
                    **_theirs(alike),
                }  # fmt: skip


def _ours(runs: pd.DataFrame) -> Row:
    llc = runs["llc_paper"]
    return {"seeds": len(runs), "llc": llc.mean(), "llc_stderr": llc.sem(), "train_loss": runs["train_loss"].mean()}


def _theirs(runs: pd.DataFrame) -> Row:
    """The mean of so many runs of one setting, most of them repeats of one seed; their error is not known (NaN)."""
    return {
        "published": runs["llc_end"].mean(), "published_stderr": math.nan,
        "published_loss": runs["train_loss_end"].mean(),
    }  # fmt: skip
