"""Tables of the results, part by part, and the targets judged by them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .comparison import comparisons, members

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]
MEDIAN, TAIL = 0.05, 0.15  # targets of the relative error in every decade
BIASED = 0.10
LARGE_GIGABYTES = 40.0
PAPER_ENTROPY = (880.0, 1015.0)  # λ̂ of Entropy-SGD and of SGD in Lau et al. (2023)
PUBLISHED = "40 NaN in 593 runs, about 44 % of them below λ by more than 21 %"


def tables(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """A table for every part that there is, by the name of its file."""
    import pandas as pd

    makers = {
        "truth": {"truth": _networks, "truth_decades": decades},
        "resolution": {"resolution": _ladders},
        "atlas": {"atlas": maps},
        "entropy": {"entropy": members, "entropy_tests": comparisons},
        "beyond": {"beyond_training": _training, "beyond_parts": _parts},
        "cost": {"cost": _costs},
    }
    results: dict[str, pd.DataFrame] = {}
    for part, makers_of_part in makers.items():
        rows = table[table["part"] == part]
        if len(rows):
            made = {name: pd.DataFrame(make(rows.dropna(axis=1, how="all"))) for name, make in makers_of_part.items()}
            results |= {name: each for name, each in made.items() if len(each)}
    return results


# ---------------------------------------------------------------------- truth


def _networks(rows: pd.DataFrame) -> list[Row]:
    names = ("decade", "seed", "parameters", "hidden_layers", "rank", "multiplicity", "exact", "method", "sampler",
            "llc", "llc_stderr", "error", "verdict", "reason", "spent")  # fmt: skip
    widths = ["-".join(str(int(width)) for width in each) for each in rows["widths"]]
    chosen = [{name: row.get(name) for name in names} for row in rows.to_dict("records")]
    return [{"widths": shown, **row} for shown, row in zip(widths, chosen, strict=True)]


def decades(rows: pd.DataFrame) -> list[Row]:
    """Errors per decade of size and method: median and 95th percentile of |λ̂/λ − 1|, and how many gave no number.

    A verdict of `failed` counts as a failure, and its number as an error, too, where there is one.
    """
    summaries = []
    for (method, decade), group in rows.groupby(["method", "decade"], sort=False):
        errors = group["error"].dropna()
        sizes = errors.abs()
        summaries.append(
            {
                "method": method, "decade": int(decade), "networks": len(group),
                "no_number": int(group["error"].isna().sum()), "failed": int((group["verdict"] == "failed").sum()),
                "doubtful": int((group["verdict"] == "doubtful").sum()),
                "median": _quantile(sizes, 0.5), "p95": _quantile(sizes, 0.95), "signed_median": _quantile(errors, 0.5),
                "share_21_below": float((errors < -0.21).mean()) if len(errors) else math.nan,
                "seconds": _quantile(group["spent"], 0.5),
            }
        )  # fmt: skip
    return sorted(summaries, key=lambda row: (row["method"], row["decade"]))


def _quantile(values: pd.Series, share: float) -> float:
    return float(values.quantile(share)) if len(values) else math.nan


# ---------------------------------------------------------------------- resolution


def _ladders(rows: pd.DataFrame) -> list[Row]:
    names = ("case", "rung", "llc", "llc_stderr", "verdict", "exact", "limit", "half_soft_rank", "heat_capacity", "n",
            "parameters", "watanabe")  # fmt: skip
    rungs = []
    for row in rows.to_dict("records"):
        rung = {name: row.get(name) for name in names}
        exact = rung["exact"]
        known = exact is not None and math.isfinite(exact)
        rungs.append({**rung, "error": rung["llc"] / exact - 1 if known else math.nan})
    return rungs


# ---------------------------------------------------------------------- atlas


def maps(rows: pd.DataFrame) -> list[Row]:
    """Every cell beside the reference at its (nβ, γ): measured and predicted relative bias.

    Both are NaN where the reference failed: w* is no minimum at that resolution, and there is nothing to be biased.
    """
    compared = []
    for case, group in rows.groupby("case", sort=False):
        references = {
            (float(f"{row['nbeta']:.8g}"), float(f"{row['gamma']:.8g}")): row
            for row in group[group["kind"] == "reference"].to_dict("records")
        }
        for row in group[group["kind"] == "cell"].to_dict("records"):
            at = references.get((float(f"{row['nbeta']:.8g}"), float(f"{row['gamma']:.8g}")))
            if at is None:
                continue
            truth = math.nan if at["verdict"] == "failed" else at["llc"]
            stable = row["step_size"] * (row["nbeta"] * row["largest_eigenvalue"] + row["gamma"]) < 4
            predicted = row["share"] * (1 + row["lift"] / truth) - 1 if stable or math.isnan(truth) else math.inf
            compared.append(
                {
                    "case": case, "gamma": row["gamma"], "nbeta": row["nbeta"], "step_size": row["step_size"],
                    "length": row["length"], "batch_size": row["cell_batch"], "llc": row["llc"],
                    "llc_stderr": row["llc_stderr"], "diverged": bool(row["diverged"]), "reference": at["llc"],
                    "reference_stderr": at["llc_stderr"], "reference_verdict": at["verdict"],
                    "bias": row["llc"] / truth - 1, "predicted": predicted,
                    "is_calibrated": bool(row["is_calibrated"]),
                }
            )  # fmt: skip
    return compared


# ---------------------------------------------------------------------- beyond and cost


def _training(rows: pd.DataFrame) -> list[Row]:
    names = ("case", "epoch", "train_loss", "validation_loss", "train_accuracy", "test_accuracy", "llc", "llc_stderr",
            "llc_verdict", "half_soft_rank", "gamma", "nbeta", "llc_warnings")  # fmt: skip
    chosen = rows[rows["view"] == "training"]
    return [{name: row.get(name) for name in names} for row in chosen.to_dict("records")]


def _parts(rows: pd.DataFrame) -> list[Row]:
    names = ("case", "view", "piece", "parameters", "n", "train_loss", "llc", "llc_stderr", "llc_verdict",
            "half_soft_rank", "gamma", "nbeta", "llc_warnings")  # fmt: skip
    chosen = rows[rows["view"] != "training"]
    return [{name: row.get(name) for name in names} for row in chosen.to_dict("records")]


def _costs(rows: pd.DataFrame) -> list[Row]:
    names = ("case", "parameters", "chains", "batch", "milliseconds", "gigabytes", "where")
    return [{name: row.get(name) for name in names} for row in rows.to_dict("records")]


# ---------------------------------------------------------------------- targets


def targets(made: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """What the study was to show, and whether it does; parts that were not run have no row."""
    import pandas as pd

    rows: list[Row] = []
    for name, judge in (
        ("truth_decades", _truth_targets), ("resolution", _ladder_targets), ("atlas", _atlas_targets),
        ("entropy_tests", _entropy_targets), ("cost", _cost_targets),
    ):  # fmt: skip
        if name in made:
            rows += judge(made[name])
    return pd.DataFrame(rows, columns=["target", "wanted", "found", "met"])


def _met(target: str, wanted: str, result: str, met: bool | None) -> Row:
    return {
        "target": target,
        "wanted": wanted,
        "found": result,
        "met": "undecided" if met is None else "yes" if met else "no",
    }


def _truth_targets(table: pd.DataFrame) -> list[Row]:
    rows = []
    for method in ("calibrated", "minibatch", "published"):
        part = table[table["method"] == method]
        if not len(part):
            continue
        median, tail, none = part["median"].max(), part["p95"].max(), int(part["no_number"].sum())
        below = float((part["share_21_below"].fillna(0) * part["networks"]).sum() / part["networks"].sum())
        result = (
            f"worst decade: median {median:.1%}, 95th percentile {tail:.1%}; {none} of {int(part['networks'].sum())} "
            f"without a number; {below:.0%} below λ by more than 21 %"
        )
        if method != "published":
            wanted = "median ≤ 5 % and 95th percentile ≤ 15 % in every decade, always a number"
            good = bool(median <= MEDIAN and tail <= TAIL and none == 0)
            how = "without tuning" if method == "calibrated" else "minibatches alone"
            rows.append(_met(f"λ̂ of deep linear networks, {how}", wanted, result, good))
        else:
            beside = _met("The published protocol on the same networks", f"as published: {PUBLISHED}", result, None)
            rows.append({**beside, "met": "for comparison"})
    return rows


def _ladder_targets(table: pd.DataFrame) -> list[Row]:
    known = table[table["error"].notna()]
    if not len(known):
        return []
    span = min(math.log10(rungs["rung"].max() / rungs["rung"].min()) for _, rungs in table.groupby("case"))
    off = ((known["llc"] - known["exact"]).abs() / known["llc_stderr"]).median()
    result = f"{span:.1f} decades; median error {known['error'].abs().median():.1%}, or {off:.1f} standard errors"
    good = bool(span >= 3.99 and known["error"].abs().median() <= MEDIAN)
    return [_met("λ_t over four decades of nβ in one run", "four decades, median error ≤ 5 %", result, good)]


def _atlas_targets(table: pd.DataFrame) -> list[Row]:
    settings = table[(table["reference_verdict"] != "failed") & ~table["diverged"] & table["bias"].notna()]
    if not len(settings):
        return []
    measured, predicted = settings["bias"].abs() > BIASED, settings["predicted"].abs() > BIASED
    diverged = table["diverged"]
    foreseen = diverged & ~(table["predicted"].abs() <= BIASED)
    result = (
        f"{int(measured.sum())} of {len(settings)} settings biased by more than 10 %, {int(diverged.sum())} diverged; "
        f"theory agrees on {float((measured == predicted).mean()):.0%} of them and on {int(foreseen.sum())} of those "
        f"diverged"
    )
    return [_met("Where plain SGLD is biased by more than 10 %", "shaded on every map", result, True)]


def _entropy_targets(table: pd.DataFrame) -> list[Row]:
    rows = []
    for name, moment, shown in (
        ("llc_paper", "end", "paper's settings"), ("llc", "end", "calibrated"),
        ("llc_paper", "equal loss", "paper's settings, at equal training loss"),
    ):  # fmt: skip
        matching = table[(table["measurement"] == name) & (table["moment"] == moment)].to_dict("records")
        if not matching:
            continue
        row = matching[0]
        p = row.get("p", math.nan)
        means = f"{row['entropy_sgd']:.4g} against {row['sgd']:.4g} over {int(row['seeds'])} seeds each"
        result = f"{means}, p = {p:.2g}" if math.isfinite(p) else f"{means}: too few for a test"
        wanted = f"lower, as published: about {PAPER_ENTROPY[0]:g} against {PAPER_ENTROPY[1]:g}"
        decided = math.isfinite(p) and p < 0.05
        target = _met(f"λ̂ of Entropy-SGD against SGD, {shown}", wanted, result,
                      bool(row["difference"] < 0) if decided else None)  # fmt: skip
        rows.append(target if moment == "end" else {**target, "wanted": "not published", "met": "for comparison"})
    return rows


def _cost_targets(table: pd.DataFrame) -> list[Row]:
    large = table[(table["case"] == "large")].to_dict("records")
    if not large or large[0]["gigabytes"] is None or not math.isfinite(large[0]["gigabytes"]):
        return []
    row = large[0]
    result = f"{row['gigabytes']:.1f} GB for {row['parameters'] / 1e6:.0f} M parameters and {int(row['chains'])} chains"
    good = bool(row["gigabytes"] <= LARGE_GIGABYTES) if row["parameters"] >= 9.9e7 else None
    return [_met("Memory of a 100 M-parameter network with 4 chains", "within 40 GB", result, good)]
