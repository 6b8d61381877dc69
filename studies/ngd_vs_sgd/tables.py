"""Tables from the rows of all jobs: every comparison with its test, every series with its mean."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from basinscope.errors import InputError
from studies.common.matching import at_one_loss
from studies.common.statistics import holm, lag, rank_correlation, turning_point, welch

from .authors import NAMES, agreement

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]

MEASUREMENTS = {
    "llc_paper": "λ̂, authors' SGLD (nβ = 26.4)",
    "llc_basin": "basin, calibrated (nβ = n/log n)",
    "llc": "λ̂, calibrated (nβ = n/log n)",
    "llc_coarse_basin": "basin, calibrated (nβ = 26.4)",
    "llc_coarse": "λ̂, calibrated (nβ = 26.4)",
    "half_soft_rank_paper": "½ soft rank (nβ = 26.4)",
    "half_soft_rank": "½ soft rank (nβ = n/log n)",
    "hessian_trace": "Tr H",
}
# Of the networks that are judged, besides: what the bias of the authors' SGLD amounts to, and how they generalize.
JUDGED = {
    **MEASUREMENTS,
    "step_bias": "leading bias of the authors' SGLD",
    "llc_paper_half_step": "λ̂, authors' SGLD, half the step",
    "llc_paper_long": "λ̂, authors' SGLD, ten times as long",
    "validation_loss": "test loss",
    "accuracy": "accuracy",
}
VERDICTS = {"llc_basin": "llc", "llc_coarse_basin": "llc_coarse"}  # whose verdict these have
SERIES = (
    "train_loss", "validation_loss", "direction_norm", "update_norm", "llc_paper", "wbic_paper", "hessian_trace", "llc",
    "wbic", "half_soft_rank_paper", "half_soft_rank",
)  # fmt: skip
QUICK = ("llc_paper", "hessian_trace")  # measured at every epoch, so that values at equal loss can be interpolated
VARIANTS = {"online": "online", "accurate": "online, accurate", "kfac": "KFAC", "exact": "exact"}
COMPARED = "epochs_compared"  # the runs of Fig. 2 tested against each other, as those of the variants are


def tables(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """A table for each part that has results, by name."""
    import pandas as pd

    makers = {
        "sizes": ("sizes", sizes), "sizes_compared": ("sizes", compared_sizes), "judged": ("judged", judged),
        "convolutions": ("convolutions", compared_sizes), "epochs": ("epochs", epochs), COMPARED: ("epochs", variants),
        "variants": ("variants", variants), "smoothing": ("smoothing", smoothing), "branches": ("branches", branches),
        "overfitting": ("overfitting", overfitting),
    }  # fmt: skip
    made = {}
    table = averaged(sound(table))
    for name, (part, make) in makers.items():
        chosen = table[table["part"] == part].dropna(axis=1, how="all")
        rows = make(chosen) if len(chosen) else []
        if rows:
            made[name] = pd.DataFrame(rows)
    if rows := agreement(table):
        made["agreement"] = pd.DataFrame(rows)
    return made


def sound(table: pd.DataFrame) -> pd.DataFrame:
    """The table without the values of failed estimates, such as a λ̂ below zero: they are no measurements."""
    table = table.copy()
    for name in list(table):
        verdict = f"{VERDICTS.get(name, name)}_verdict"
        if verdict in table:
            table[name] = table[name].where(table[verdict] != "failed")
    return table


def averaged(table: pd.DataFrame) -> pd.DataFrame:
    """The table with the paper's λ̂ at the end of a course as the paper has it: the mean of the last two epochs."""
    if "llc_paper" not in table:
        return table
    names = ("part", "data", "network", "optimizer", "lr", "alpha", "epsilon", "trunk_epochs", "seed", "run")
    courses = table[table["moment"].isin(["training", "end"])]
    keys = [name for name in names if name in table]
    before = courses.groupby(keys, sort=False, dropna=False)["llc_paper"].shift()
    ends = courses.index[(courses["moment"] == "end") & before.notna()]
    table = table.copy()
    table.loc[ends, "llc_paper"] = (table.loc[ends, "llc_paper"] + before[ends]) / 2
    return table


def compared(
    natural: Sequence[float],
    plain: Sequence[float],
    natural_errors: Sequence[float] = (),
    plain_errors: Sequence[float] = (),
) -> Row:
    """Natural gradient beside SGD: Welch's test as columns; means alone where there are too few for a test.

    A mean of several values has the standard error of their spread; a single one has its own, if that is given.
    """
    first, second = ([value for value in values if math.isfinite(value)] for values in (natural, plain))
    try:
        test = welch(first, second)
    except InputError:
        row: Row = {"ngd_seeds": len(first), "sgd_seeds": len(second)}
        for side, values, errors in (("ngd", natural, natural_errors), ("sgd", plain, plain_errors)):
            row[side], row[f"{side}_stderr"] = _mean(values, errors)
        return {**row, "difference": row["ngd"] - row["sgd"]}
    return {
        "ngd": test.first, "ngd_stderr": test.first_stderr, "sgd": test.second, "sgd_stderr": test.second_stderr,
        "difference": test.difference, "low": test.low, "high": test.high, "t": test.t, "freedom": test.freedom,
        "p": test.p, "effect": test.effect, "ngd_seeds": test.counts[0], "sgd_seeds": test.counts[1],
    }  # fmt: skip


def _mean(values: Sequence[float], errors: Sequence[float]) -> tuple[float, float]:
    """The mean of finite values and its standard error; NaN where it is not known."""
    finite = [number for number, value in enumerate(values) if math.isfinite(value)]
    known = [values[number] for number in finite]
    if len(known) > 1:
        return statistics.fmean(known), statistics.stdev(known) / math.sqrt(len(known))
    return (known[0], errors[finite[0]] if errors else math.nan) if known else (math.nan, math.nan)


def corrected(rows: list[Row], *family: str) -> list[Row]:
    """The rows with `p_holm`: Holm's correction over all rows that agree in the columns `family`."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if math.isfinite(row.get("p", math.nan)):
            groups.setdefault(tuple(row[name] for name in family), []).append(row)
    for group in groups.values():
        for row, p in zip(group, holm([row["p"] for row in group]), strict=True):
            row["p_holm"] = p
    return rows


def sizes(table: pd.DataFrame) -> list[Row]:
    """Figure 1: a row for every network and optimizer at the end of training, over its seeds."""
    rows = []
    names = {kind: name for name, kind in NAMES.items()} | {"accurate": "ngd-accurate"}
    ends = table[table["moment"] == "end"]
    for (data, network, optimizer), group in ends.groupby(["data", "network", "optimizer"], sort=False):
        rows.append({
            "network": network, "optimizer": names[optimizer], "seeds": int(group["llc_paper"].notna().sum()),
            "llc_mean": group["llc_paper"].mean(), "llc_sd": group["llc_paper"].std(),
            "train_loss_mean": group["train_loss"].mean(), "test_loss_mean": group["validation_loss"].mean(),
            "accuracy_mean": group["accuracy"].mean(), "data": data,
        })  # fmt: skip
    return rows


def compared_sizes(table: pd.DataFrame, measured: Sequence[str] = tuple(MEASUREMENTS)) -> list[Row]:
    """NGD beside SGD in every network, at the end of training and at equal training loss."""
    rows: list[Row] = []
    for (data, network), group in table.groupby(["data", "network"], sort=False):
        for moment, chosen in (("end", group[group["moment"] == "end"]), ("matched", at_equal_loss(group))):
            sides = {kind: chosen[chosen["optimizer"] == kind] for kind in ("online", "sgd")}
            losses = {
                f"{name}_loss": sides[kind]["train_loss"].mean() for name, kind in (("ngd", "online"), ("sgd", "sgd"))
            }
            for name in measured:
                if name in chosen and chosen[name].notna().any():
                    columns = [
                        sides[kind][column].tolist() if column in chosen else []
                        for column in (name, f"{name}_stderr")
                        for kind in ("online", "sgd")
                    ]
                    what = {"data": data, "network": network, "epochs": group["epochs"].iloc[0]}
                    doubtful = _doubtful(sides, f"{VERDICTS.get(name, name)}_verdict")
                    rows.append({
                        **what, "moment": moment, "measurement": name, **compared(*columns), "doubtful": doubtful,
                        **losses,
                    })  # fmt: skip
    return corrected(rows, "moment", "measurement")


def judged(table: pd.DataFrame) -> list[Row]:
    """The networks that are measured in full, compared by every measurement, by their bias, and by their test loss."""
    return compared_sizes(table, tuple(JUDGED))


def _doubtful(sides: dict[str, pd.DataFrame], verdict: str) -> int:
    """How many of the values are not `ok`."""
    return sum(int((side[verdict] != "ok").sum()) for side in sides.values() if verdict in side)


def at_equal_loss(table: pd.DataFrame) -> pd.DataFrame:
    """For every seed the two rows with nearly one training loss: the matched one, and the end of its slower twin.

    Test loss and accuracy are known after every epoch; between two epochs they are interpolated.
    """
    keep = []
    for _, pair in table.groupby("seed"):
        for optimizer in pair.loc[pair["moment"] == "matched", "optimizer"]:
            slower = pair[(pair["optimizer"] != optimizer) & (pair["moment"] == "end")]
            keep += [*pair[(pair["optimizer"] == optimizer) & (pair["moment"] == "matched")].index, *slower.index]
    chosen = table.loc[keep].copy()
    for name in ("validation_loss", "accuracy"):
        for place, row in chosen[chosen[name].isna()].iterrows() if name in chosen else ():
            course = table[(table["seed"] == row["seed"]) & (table["optimizer"] == row["optimizer"])]
            course = course[course[name].notna()].sort_values("epoch")
            chosen.loc[place, name] = np.interp(row["epoch"], course["epoch"], course[name])
    return chosen


def epochs(table: pd.DataFrame) -> list[Row]:
    """Figure 2: means and standard errors over seeds, for every optimizer and epoch."""
    rows = []
    for (optimizer, epoch), group in table.groupby(["optimizer", "epoch"], sort=False):
        rows.append({"optimizer": optimizer, "epoch": epoch, "seeds": len(group), **averages(group)})
    return rows


def averages(group: pd.DataFrame) -> Row:
    """Means and standard errors of all series that were recorded."""
    row: Row = {}
    for name in SERIES:
        if name in group and group[name].notna().any():
            row |= {name: group[name].mean(), f"{name}_stderr": group[name].sem()}
    return row


def variants(table: pd.DataFrame) -> list[Row]:
    """Each natural gradient beside SGD, at the end and, interpolated, at the highest of the two final losses."""
    rows: list[Row] = []
    what = {name: table[name].iloc[0] for name in ("data", "network", "epochs")}
    runs = dict(iter(table.groupby(["optimizer", "seed"], sort=False)))
    seeds = sorted({seed for _, seed in runs})
    for kind in VARIANTS:
        pairs = [
            (runs[kind, seed], runs["sgd", seed]) for seed in seeds if (kind, seed) in runs and ("sgd", seed) in runs
        ]
        whole = [pair for pair in pairs if all((run["outcome"] == "finished").all() for run in pair)]
        if not pairs:
            continue
        moments = {
            "end": [tuple(run.iloc[-1] for run in pair) for pair in whole],
            "matched": [both for pair in whole if (both := at_one_loss(*pair)) is not None],
        }
        for moment, chosen in moments.items():
            for name in MEASUREMENTS if moment == "end" else QUICK:
                values = [[float(row.get(name, math.nan)) for row in side] for side in zip(*chosen, strict=True)]
                diverged = {"diverged": len(pairs) - len(whole)}
                row: Row = {**what, "variant": kind, "moment": moment, "measurement": name, **diverged}
                if values and any(map(math.isfinite, values[0])):
                    losses = [sum(r["train_loss"] for r in side) / len(side) for side in zip(*chosen, strict=True)]
                    rows.append({**row, **compared(*values), "ngd_loss": losses[0], "sgd_loss": losses[1]})
                elif name == "llc_paper":
                    rows.append(row)
    return corrected(rows, "moment", "measurement")


def smoothing(table: pd.DataFrame) -> list[Row]:
    """Figure 3: means over seeds for every α and ε, and for SGD, at the end of training."""
    rows = []
    table = table[table["moment"] == "end"]
    for (optimizer, alpha, epsilon), group in table.groupby(["optimizer", "alpha", "epsilon"], sort=False):
        swept = {"data": group["data"].iloc[0], "optimizer": optimizer, "alpha": alpha, "epsilon": epsilon}
        rows.append({**swept, "seeds": len(group), **averages(group)})
    return rows


def branches(table: pd.DataFrame) -> list[Row]:
    """Figures 4–6: how far every branch has moved from the end of its trunk, tested against SGD going on as before."""
    rows: list[Row] = []
    names = [name for name in (*MEASUREMENTS, "train_loss", "validation_loss", "update_norm") if name in table]
    for (data, lr, split), trunks in table.groupby(["data", "lr", "trunk_epochs"], sort=False):
        for run in [name for name in dict.fromkeys(trunks["run"]) if name != "trunk"]:
            for name in names:
                moves, plain = (rises(trunks, each, name) for each in (run, f"sgd@{lr:g}"))
                comparison = compared(list(moves), list(plain))
                rows.append({
                    "data": data, "trunk_lr": lr, "trunk_epochs": split, "run": run, "measurement": name,
                    "rise": comparison["ngd"], "rise_stderr": comparison["ngd_stderr"], "sgd_rise": comparison["sgd"],
                    "ahead": comparison["difference"],
                    "p": comparison.get("p", math.nan) if run != f"sgd@{lr:g}" else math.nan,
                    "seeds": comparison["ngd_seeds"],
                })  # fmt: skip
    return [row for row in corrected(rows, "measurement") if math.isfinite(row["rise"])]


def rises(trunks: pd.DataFrame, run: str, name: str) -> Iterator[float]:
    """For every seed whose branch did not diverge, its last value less the trunk's last one."""
    for _, group in trunks.groupby("seed"):
        end = group[(group["run"] == run) & (group["outcome"] != "diverged")]
        if len(end):
            yield float(end[name].iloc[-1] - group.loc[group["run"] == "trunk", name].iloc[-1])


def overfitting(table: pd.DataFrame) -> list[Row]:
    """Figures 7–8: when validation loss turns, when each measure does, and how the two are ranked alike."""
    rows: list[Row] = []
    for (optimizer, seed), group in table.groupby(["optimizer", "seed"], sort=False):
        for name in ("llc_paper", "wbic_paper", "llc", "wbic", "half_soft_rank", "hessian_trace"):
            if name not in group or group[name].notna().sum() < 3:
                continue
            part = group[group[name].notna()]
            turn = turning_point(group["epoch"], group["validation_loss"])
            after = part[part["epoch"] >= turn]
            rows.append({
                "optimizer": optimizer, "seed": seed, "measurement": name, "validation_turns": turn,
                "measure_turns": turning_point(part["epoch"], part[name]),
                "lag": lag(part["epoch"], part["validation_loss"], part[name]),
                "rank_correlation": rank_correlation(part["validation_loss"], part[name]),
                "rank_correlation_after": rank_correlation(after["validation_loss"], after[name]),
                "points": len(part), "points_after": len(after),
            })  # fmt: skip
    return rows
