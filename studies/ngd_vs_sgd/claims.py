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
    ("llc_paper", "end"): "(i) λ̂, paper's SGLD", ("llc", "end"): "(ii) λ̂, calibrated",
    ("llc_paper", "matched"): "(iii) as (i), at equal loss", ("half_soft_rank", "end"): "(iv) ½ soft rank",
    ("hessian_trace", "end"): "Tr H",
}  # fmt: skip
SIGNIFICANT = 0.05


def claims(made: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The paper's claims under every measurement: whether each holds, and the numbers that say so."""
    import pandas as pd

    rows: list[Row] = []
    for part, judge in (("sizes", _claims_sizes), (COMPARED, _claims_variants), ("variants", _claims_variants),
                        ("smoothing", _claims_smoothing), ("branches", _claims_branches),
                        ("overfitting", _claims_overfitting)):  # fmt: skip
        if part in made:
            rows += judge(made[part])
    names = ["claim", "paper", "variant", "setting", "way", "measurement", "holds", "numbers"]
    return pd.DataFrame(rows, columns=names)


def _verdict(yes: int, no: int, total: int) -> str:
    """`yes` where every decided comparison agrees, `no` where all or some contradict, else undecided."""
    if no:
        return "no"
    return "yes" if yes == total and total else "in part" if yes else "undecided"


def _claims_sizes(table: pd.DataFrame) -> Iterator[Row]:
    depth = table["network"].map(_depth)
    for (layers, moment, name), group in table.groupby([depth, "moment", "measurement"], sort=False):
        if "p_holm" not in group or not group["p_holm"].notna().any():
            continue
        tested = group[group["p_holm"].notna()]
        above = int(((tested["p_holm"] < SIGNIFICANT) & (tested["difference"] > 0)).sum())
        below = int(((tested["p_holm"] < SIGNIFICANT) & (tested["difference"] < 0)).sum())
        yield {
            "claim": "NGD has higher λ̂ and Tr H than SGD at every size",
            "paper": "Fig. 1: at all sizes, largest p-value 1.9e-31",
            "variant": "online",
            "setting": layers,
            "way": WAYS.get((name, moment)),
            "measurement": f"{_spoken(name, moment)}, {layers}",
            "holds": _verdict(above, below, len(tested)),
            "numbers": f"higher in {above}, lower in {below} of {len(tested)} (Holm, 5 %); Hedges' g "
            f"{tested['effect'].min():.2f} to {tested['effect'].max():.2f}; largest p {tested['p_holm'].max():.2g}",
        }


def _depth(network: str) -> str:
    layers, times, _ = network.partition("x")
    return f"{layers} hidden layer{'' if layers == '1' else 's'}" if times else network


def _claims_variants(table: pd.DataFrame) -> Iterator[Row]:
    for row in table.to_dict("records"):
        p = row.get("p_holm", math.nan)
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
            if name not in swept_ones or swept_ones[name].notna().sum() < 3:
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
                "holds": "no" if not rho < 0 else "yes" if rho < -0.8 and len(line) == len(swept_ones) else "in part",
                "numbers": f"from {ends[0]:.4g} to {ends[1]:.4g} over {len(line)} of {len(swept_ones)} values, rank "
                f"correlation {rho:+.2f} (of the training loss {loss:+.2f})",
            }


def _claims_branches(table: pd.DataFrame) -> Iterator[Row]:
    losses = table[table["measurement"] == "train_loss"].set_index(["data", "trunk_lr", "trunk_epochs", "run"])["rise"]
    for row in table[table["measurement"].isin(list(MEASUREMENTS))].to_dict("records"):
        case = (row["data"], row["trunk_lr"], row["trunk_epochs"])
        kind = row["run"].partition("@")[0]
        if row["run"] == f"sgd@{row['trunk_lr']:g}":
            continue
        clear = row.get("p_holm", math.nan) < SIGNIFICANT
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
            "numbers": f"rises by {row['rise']:.3g} ± {row['rise_stderr']:.2g}, SGD going on by {row['sgd_rise']:.3g}, "
            f"p = {row.get('p_holm', math.nan):.2g} (Holm, {row['seeds']} seeds); training loss by "
            f"{losses[(*case, row['run'])]:.3g}, SGD's by {losses[(*case, f'sgd@{case[1]:g}')]:.3g}",
        }


def _claims_overfitting(table: pd.DataFrame) -> Iterator[Row]:
    for name, group in table.groupby("measurement", sort=False):
        after = group["rank_correlation_after"].dropna()
        turned = group[group["validation_turns"].notna()]
        lags = group["lag"].dropna()
        mean = float(after.mean()) if len(after) else math.nan
        yield {
            "claim": "λ̂, Tr H and WBIC rise while the network overfits",
            "paper": "Fig. 7–8: all rise with the validation loss, WBIC from about where it turns",
            "variant": "SGD and online",
            "setting": "while validation loss rises",
            "way": WAYS.get((str(name), "end")),
            "measurement": {**MEASUREMENTS, "wbic": "WBIC (β = 1/log n)", "wbic_paper": "WBIC, paper's SGLD"}[name],
            "holds": "undecided" if not len(after) else "yes" if mean > 0.8 else "no" if mean < 0 else "in part",
            "numbers": f"validation loss turned in {len(turned)} of {len(group)} runs; rank correlation with it "
            f"afterwards {mean:+.2f}, over all epochs {group['rank_correlation'].mean():+.2f}; "
            + (f"turns {lags.mean():+.1f} epochs later in {len(lags)} runs" if len(lags) else "never turns itself"),
        }


def _spoken(name: str, moment: str) -> str:
    return f"{MEASUREMENTS[name]}, {'at equal training loss' if moment == 'matched' else 'end of training'}"
