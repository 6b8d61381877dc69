"""`README.md` of the results: the paper's claims, and what is left of each under every measurement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from studies.common.pages import data_and_scale, in_words, markdown_table

from .claims import WAYS, claims
from .tables import COMPARED, MEASUREMENTS

if TYPE_CHECKING:
    import pandas as pd

# λ̂ of 784-256-256-10 networks with the paper's sampler settings, NGD beside SGD, one seed each.
PAPER = {
    "mnist": ((44.5, 43.5), (46.7, 43.3), (55.2, 50.9)),
    "fashion_mnist": ((42.2, 36.1), (48.1, 40.7), (44.7, 38.2)),
}


def page(table: pd.DataFrame, made: Mapping[str, pd.DataFrame], origin: Mapping[str, Any]) -> str:
    """The page as Markdown."""
    answers = claims(made)
    parts = [
        "# Natural gradient against SGD: which claims survive which measurement",
        "",
        "Written by `basinscope study report ngd-vs-sgd`; do not edit. " + _origin(table, origin),
        "",
        "[Saghir, Raghavendra, Liu and Gunter (2024)](https://arxiv.org/abs/2409.04913) train with “NGD” and SGD at "
        "one learning rate and compare λ̂ from SGLD with nβ = 26.4, γ = 100, step 1e-4 and no burn-in. Here each "
        "comparison is measured (i) that way, (ii) at nβ = n/log n with the calibrated estimator, (iii) at equal "
        "training loss, and (iv) by ½·soft rank alone, which needs no sampling. “NGD (online)” is the optimizer that "
        "they ran, with the rounding errors of their code, “accurate” the same without them; KFAC and the exact Fisher "
        "matrix are what they describe.",
        "",
        "`yes`: the measurement supports the claim at the 5 % level after Holm's correction (or, for series, a rank "
        "correlation beyond 0.8). `no`: it contradicts it. `in part`: some cases support it and none contradicts it. "
        "`undecided`: it does neither. A dash: in (ii) too few λ̂ above zero for a test, elsewhere not measured.",
        "",
        *_summary(answers),
        *_table(answers),
        "",
        *_beside_the_paper(made),
        *_doubts(table),
        "## Files",
        "",
        "A CSV and a PNG for each part: `sizes` (Fig. 1), `epochs` and `epochs_compared` (Fig. 2), `variants` (three "
        "natural gradients), `smoothing` (Fig. 3), `branches` (Fig. 4–6), `overfitting` (Fig. 7–8). `table.parquet` "
        "has every row, `provenance.json` where they come from.",
        "",
    ]
    return "\n".join(parts)


def _origin(table: pd.DataFrame, origin: Mapping[str, Any]) -> str:
    data, small = data_and_scale(table["data"])
    devices = ", ".join(origin["device"])
    return (
        f"{origin['results']} of {origin['jobs']} trainings on {data}, {origin['seconds'] / 60:.0f} minutes on "
        f"{devices}, added up over processes that ran side by side.{small}"
    )


def _summary(table: pd.DataFrame) -> list[str]:
    """Every claim in one line for each variant and setting, with a column for each way of measuring."""
    ways = list(WAYS.values())
    lines = []
    for (claim, variant, setting), rows in table.groupby(["claim", "variant", "setting"], sort=False):
        answers = dict(zip(rows["way"], rows["holds"], strict=True))
        lines.append((claim, f"{variant}; {setting}", *(answers.get(way, "–") for way in ways)))
    return ["## In short", "", *markdown_table(("claim", "NGD variant, setting", *ways), lines)]


def _table(table: pd.DataFrame) -> list[str]:
    lines = []
    for (claim, paper), rows in table.groupby(["claim", "paper"], sort=False):
        columns = rows[["variant", "measurement", "holds", "numbers"]].itertuples(index=False, name=None)
        lines += [f"## {claim}", "", f"Paper — {paper}.", ""]
        lines += markdown_table(("NGD variant", "measurement", "holds", "numbers"), columns)
    return lines


def _beside_the_paper(made: Mapping[str, pd.DataFrame]) -> list[str]:
    """λ̂ by the paper's settings, theirs and ours."""
    lines = []
    for data, pairs in PAPER.items():
        theirs = "; ".join(f"{ngd} / {sgd}" for ngd, sgd in pairs)
        ours = [row for name in ("sizes", COMPARED) if name in made for row in made[name].to_dict("records")]
        wanted = {"data": data, "network": "2x256", "moment": "end", "measurement": "llc_paper"}
        here = [
            f"{row['ngd']:.1f} / {row['sgd']:.1f} after {row['epochs']} epochs"
            for row in ours
            if wanted.items() <= row.items()
        ]
        lines.append((data, theirs, "; ".join(here) or "not run"))
    columns = ("data", "Saghir et al., 784-256-256-10, single seeds", "here")
    return ["## λ̂ by the paper's settings, NGD / SGD", "", *markdown_table(columns, lines)]


def _doubts(table: pd.DataFrame) -> list[str]:
    """How often a measurement was doubtful or failed, and how large the known bias of the paper's sampler is."""
    lines = ["## What the numbers are worth", ""]
    for name in ("llc", "llc_paper"):
        column = f"{name}_verdict"
        if column in table:
            lines.append(f"- {MEASUREMENTS[name]}: {in_words(table[column])}.")
    if "llc" in table and table["llc"].notna().any():
        measured = table[table["llc"].notna()]
        lines.append(
            f"- {int((measured['llc'] <= 0).sum())} of {len(measured)} calibrated λ̂ are not positive: those networks "
            f"are at no minimum at that resolution, and λ̂ says nothing about them."
        )
    if "step_bias" in table and table["step_bias"].notna().any():
        share = (table["step_bias"] / table["llc_paper"]).dropna()
        share = share[share > 0]
        if len(share):
            lines.append(
                f"- The leading bias of the paper's sampler, (ε nβ/8) Tr H + (ε (nβ)²/8m) Tr C, is "
                f"{share.median():.1%} of its λ̂ (median; at most {share.max():.1%})."
            )
    diverged = table[table["outcome"] == "diverged"].groupby(["part", "optimizer"]).size()
    lines += [f"- Diverged: {count} rows of {part}, {kind}." for (part, kind), count in diverged.items()]
    return [*lines, ""]
