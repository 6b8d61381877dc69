"""The paper's claims, judged by every way of measuring them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from studies.common.statistics import rank_correlation

from .tables import COMPARED, MEASUREMENTS, VARIANTS

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]

WAYS = {
    ("llc_paper", "end"): "as the authors measured", ("llc_paper", "matched"): "at equal training loss",
    ("llc_basin", "end"): "without estimator bias", ("llc_basin", "matched"): "both",
    ("half_soft_rank", "end"): "½ soft rank", ("hessian_trace", "end"): "Tr H",
}  # fmt: skip
SIGNIFICANT = 0.05
MIN_SEEDS = 3  # on each side of a comparison that decides anything
MAX_PLATEAU = 0.05  # relative change of a λ̂ that has reached a plateau
MIN_POINTS = 5  # of a series that does
MAX_DOUBTFUL_SHARE = 0.2  # of the values of a comparison that does


def claims(made: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The paper's claims under every measurement: whether each holds, and the numbers that say so."""
    import pandas as pd

    rows: list[Row] = []
    compared = [made[part] for part in ("sizes_compared", "judged", "convolutions") if part in made]
    if compared:
        table = pd.concat(compared, ignore_index=True)
        keys = ["data", "network", "moment", "measurement"]
        rows += _claims_sizes(table.drop_duplicates(keys))  # of two comparisons the one with more seeds, which is first
    if "epochs" in made:
        rows += _claims_epochs(made["epochs"])
    for part, judge in ((COMPARED, _claims_variants), ("variants", _claims_variants), ("smoothing", _claims_smoothing),
                        ("branches", _claims_branches), ("overfitting", _claims_overfitting)):  # fmt: skip
        if part in made:
            rows += judge(made[part])
    names = ["claim", "paper", "variant", "setting", "way", "measurement", "holds", "numbers"]
    return pd.DataFrame(rows, columns=names)


def _verdict(yes: int, no: int, total: int) -> str:
    """`yes` where every decided comparison agrees, `no` where all or some contradict, else undecided."""
    if no:
        return "no"
    return "yes" if yes == total and total else "in part" if yes else "undecided"


def decides(row: Mapping[str, Any]) -> bool:
    """Whether a comparison rests on enough seeds and on values that are `ok`, so that its test may decide a claim."""
    seeds = [row.get("ngd_seeds", 0), row.get("sgd_seeds", 0)]
    return (
        math.isfinite(row.get("p_holm", math.nan))
        and min(seeds) >= MIN_SEEDS
        and row.get("doubtful", 0) <= MAX_DOUBTFUL_SHARE * sum(seeds)
    )


def _claims_sizes(table: pd.DataFrame) -> Iterator[Row]:
    depth = table["network"].map(_depth)
    table = table[table["measurement"].isin(list(MEASUREMENTS))]
    for (layers, moment, name), group in table.groupby([depth, "moment", "measurement"], sort=False):
        tested = [row for row in group.to_dict("records") if decides(row)]
        clear = [row["difference"] for row in tested if row["p_holm"] < SIGNIFICANT]
        above, below = sum(value > 0 for value in clear), sum(value < 0 for value in clear)
        effects, largest = [row["effect"] for row in tested], max((row["p_holm"] for row in tested), default=math.nan)
        doubtful = int(group["doubtful"].sum())
        yield {
            "claim": "NGD has higher λ̂ and Tr H than SGD at every size",
            "paper": "Fig. 1: at all sizes, largest p-value 1.9e-31",
            "variant": "online",
            "setting": layers,
            "way": WAYS.get((name, moment)),
            "measurement": f"{_spoken(name, moment)}, {layers}",
            "holds": _verdict(above, below, len(group)),
            "numbers": (
                f"higher in {above}, lower in {below} of {len(group)} (Holm, 5 %); Hedges' g {min(effects):.2f} to "
                f"{max(effects):.2f}; largest p {largest:.2g}"
                if tested
                else f"no test decides: too few seeds, or {doubtful} values that are not ok"
            ),
        }


def _depth(network: str) -> str:
    layers, times, _ = network.partition("x")
    return f"{layers} hidden layer{'' if layers == '1' else 's'}" if times else network


def _claims_epochs(table: pd.DataFrame) -> Iterator[Row]:
    """Figure 2's course over the second half of training: a plateau of λ̂ below a falling trace, and uneven steps."""
    half = table[table["epoch"] > table["epoch"].max() / 2]
    uneven = {}
    for optimizer, line in half.groupby("optimizer", sort=False):
        line = line.sort_values("epoch")
        uneven[optimizer] = float(line["update_norm"].map(math.log).diff().std())
        traced = line[line["hessian_trace"].notna()] if "hessian_trace" in line else line.iloc[:0]
        if len(traced) < MIN_POINTS:
            continue
        moved = float(line["llc_paper"].iloc[-1] / line["llc_paper"].iloc[0] - 1)
        rho = rank_correlation(traced["epoch"], traced["hessian_trace"])
        yield {
            "claim": "λ̂ reaches a plateau while Tr H goes on falling",
            "paper": "Fig. 2: the LLC plateaus, Tr H continues to decrease",
            "variant": str(optimizer),
            "setting": "second half of training",
            "way": WAYS["llc_paper", "end"],
            "measurement": f"{MEASUREMENTS['llc_paper']} and Tr H, {optimizer}",
            "holds": "yes" if abs(moved) < MAX_PLATEAU and rho < -0.8 else "no" if rho > 0 else "in part",
            "numbers": f"λ̂ moves by {moved:+.1%}; rank correlation of Tr H with the epoch {rho:+.2f}",
        }
    if {"sgd", "online"} <= uneven.keys() and len(half) >= 2 * MIN_POINTS:
        yield {
            "claim": "the update size of NGD fluctuates, that of SGD is steady",
            "paper": "Fig. 2: as described there",
            "variant": "online",
            "setting": "second half of training",
            "way": WAYS["llc_paper", "end"],
            "measurement": "standard deviation of log ‖lr·v‖ from one epoch to the next",
            "holds": "yes" if uneven["online"] > 2 * uneven["sgd"] else "no",
            "numbers": f"NGD {uneven['online']:.3g}, SGD {uneven['sgd']:.3g}, of means over seeds",
        }


def _claims_variants(table: pd.DataFrame) -> Iterator[Row]:
    for row in table.to_dict("records"):
        p = row["p_holm"] if decides(row) else math.nan
        setting = f"{row['network']}, {row['epochs']} epochs"
        claim_of_row = {
            "claim": "NGD has higher λ̂ and Tr H than SGD",
            "paper": "Fig. 2: higher at every epoch, for one optimizer that is called NGD",
            "variant": VARIANTS[row["variant"]],
            "setting": setting,
            "way": WAYS.get((row["measurement"], row["moment"])),
            "measurement": f"{_spoken(row['measurement'], row['moment'])}, {setting}",
        }
        if not math.isfinite(p):
            seeds = [int(n) if math.isfinite(n := row.get(f"{kind}_seeds", 0)) else 0 for kind in ("ngd", "sgd")]
            numbers = f"no test: {row['diverged']} runs diverged; {seeds[0]} values above zero, {seeds[1]} with SGD"
            yield {**claim_of_row, "holds": "undecided", "numbers": numbers}
            continue
        decided = p < SIGNIFICANT
        yield {
            **claim_of_row,
            "holds": ("yes" if row["difference"] > 0 else "no") if decided else "undecided",
            "numbers": f"{row['ngd']:.4g} against {row['sgd']:.4g}, p = {p:.2g}, at losses {row['ngd_loss']:.3g} and "
            f"{row['sgd_loss']:.3g}",
        }


def _claims_smoothing(table: pd.DataFrame) -> Iterator[Row]:
    natural = table[table["optimizer"] == "online"]
    for swept, fixed in (("alpha", "epsilon"), ("epsilon", "alpha")):
        swept_ones = natural[natural[fixed] == natural[fixed].mode().iloc[0]].sort_values(swept)
        for name in MEASUREMENTS:
            if name not in swept_ones or not swept_ones[name].notna().any():
                continue
            line = swept_ones[swept_ones[name].notna()]
            rho = rank_correlation(line[swept], line[name])
            loss = rank_correlation(line[swept], line["train_loss"])
            ends = [float(line[name].iloc[place]) for place in (0, -1)]
            yield {
                "claim": f"less smoothing ({'α' if swept == 'alpha' else 'ε'}) gives higher λ̂",
                "paper": f"Fig. 3{'a' if swept == 'alpha' else 'b'}: reducing it increases λ̂",
                "variant": "online",
                "setting": f"{len(swept_ones)} values",
                "way": WAYS.get((name, "end")),
                "measurement": MEASUREMENTS[name],
                "holds": _falling(rho, len(line), len(swept_ones)),
                "numbers": f"from {ends[0]:.4g} to {ends[1]:.4g} over {len(line)} of {len(swept_ones)} values, rank "
                f"correlation {rho:+.2f} (of the training loss {loss:+.2f})",
            }


def _falling(correlation: float, values: int, wanted: int) -> str:
    if values < MIN_POINTS:
        return "undecided"
    return "no" if not correlation < 0 else "yes" if correlation < -0.8 and values == wanted else "in part"


def _claims_branches(table: pd.DataFrame) -> Iterator[Row]:
    losses = table[table["measurement"] == "train_loss"].set_index(["data", "trunk_lr", "trunk_epochs", "run"])["rise"]
    for row in table[table["measurement"].isin(list(MEASUREMENTS))].to_dict("records"):
        case = (row["data"], row["trunk_lr"], row["trunk_epochs"])
        kind = row["run"].partition("@")[0]
        if row["run"] == f"sgd@{row['trunk_lr']:g}":
            continue
        clear = row.get("p_holm", math.nan) < SIGNIFICANT and row["seeds"] >= MIN_SEEDS
        as_claimed = (row["ahead"] > 0) == (kind == "online")
        setting = f"{case[0]}, from {case[1]:g} to {row['run']} at epoch {case[2]}"
        yield {
            "claim": "after the split NGD's λ̂ rises above SGD's" if kind == "online" else "a raised SGD rate leaves λ̂",
            "paper": "Fig. 4–5: rises, faster at higher rates" if kind == "online" else "Fig. 6: it does not rise",
            "variant": "online" if kind == "online" else "none",
            "setting": setting,
            "way": WAYS.get((row["measurement"], "end")),
            "measurement": f"{MEASUREMENTS[row['measurement']]}, {setting}",
            "holds": ("yes" if as_claimed else "no") if clear else "undecided",
            "numbers": f"moves by {row['rise']:+.3g} ± {row['rise_stderr']:.2g}, SGD going on by "
            f"{row['sgd_rise']:+.3g}, p = {row.get('p_holm', math.nan):.2g} (Holm, {row['seeds']} seeds); training "
            f"loss by {losses[(*case, row['run'])]:.3g}, SGD's by {losses[(*case, f'sgd@{case[1]:g}')]:.3g}",
        }


def _claims_overfitting(table: pd.DataFrame) -> Iterator[Row]:
    for name, group in table.groupby("measurement", sort=False):
        after = group.loc[group["points_after"] >= MIN_POINTS, "rank_correlation_after"].dropna()
        turned = group[group["validation_turns"].notna()]
        lags = group["lag"].dropna()
        mean = float(after.mean()) if len(after) else math.nan
        yield {
            "claim": "λ̂, Tr H and WBIC rise while the network overfits",
            "paper": "Fig. 7–8: all rise with the validation loss, WBIC from about where it turns",
            "variant": "SGD and online",
            "setting": "while validation loss rises",
            "way": WAYS.get((str(name), "end")),
            "measurement": {**MEASUREMENTS, "wbic": "WBIC (β = 1/log n)", "wbic_paper": "WBIC, authors' SGLD"}[name],
            "holds": _rising(mean) if len(after) >= MIN_SEEDS else "undecided",
            "numbers": f"validation loss turned in {len(turned)} of {len(group)} runs; rank correlation with it "
            f"afterwards {mean:+.2f}, over all epochs {group['rank_correlation'].mean():+.2f}; "
            + (f"turns {lags.mean():+.1f} epochs after it in {len(lags)} runs" if len(lags) else "never turns itself"),
        }


def _rising(correlation: float) -> str:
    return "yes" if correlation > 0.8 else "no" if correlation < 0 else "in part"


def _spoken(name: str, moment: str) -> str:
    return f"{MEASUREMENTS[name]}, {'at equal training loss' if moment == 'matched' else 'end of training'}"
