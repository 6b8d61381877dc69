"""`README.md` of the results: the answer, the claims one by one, the figures, and what the numbers are worth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from studies.common.pages import data_and_scale, in_words, markdown_table

from .authors import TOLERANCE
from .claims import SIGNIFICANT, WAYS, decides
from .tables import JUDGED, MEASUREMENTS

if TYPE_CHECKING:
    import pandas as pd

FIGURES = {
    "sizes": "Figure 1: λ̂ and training loss of every network at the end of training, ours filled, the authors' hollow.",
    "epochs": "Figure 2: the courses of λ̂, Tr H, losses and update size over training.",
    "smoothing": "Figure 3: λ̂ and training loss against the smoothing α and the floor ε, the authors' values hollow.",
    "branches": "Figures 4–6: SGD until the split, then each optimizer on its own, with the training loss below.",
    "overfitting": "Figures 7–8: λ̂, WBIC and Tr H while the validation loss rises.",
    "judged": "Beyond the paper: natural gradient relative to SGD by every measurement, networks side by side.",
}


def page(
    table: pd.DataFrame, made: Mapping[str, pd.DataFrame], answers: pd.DataFrame, origin: Mapping[str, Any]
) -> str:
    """The page as Markdown, from all rows, the tables, the judged claims, and where the rows come from."""
    data, small = data_and_scale(table["data"])
    parts = [
        "# Does natural gradient find less degenerate solutions than SGD?",
        "",
        answer(made) + small,
        "",
        "[Saghir et al. (2024)](https://arxiv.org/abs/2409.04913) say so, from the local learning coefficient λ̂ by "
        "SGLD with nβ = 26.4, γ = 100 and a step of 1e-4. Their networks are trained again by the settings of their "
        "public code. Each comparison is then repeated: at equal training loss; without the bias of their estimator, "
        "by the basin coefficient of calibrated chains at nβ = n/log n; by half the soft rank of the Fisher matrix; "
        "and by Tr H.",
        "",
        *_summary(answers),
        *_figures(made),
        *_agreement(made),
        *_judgement(made),
        *_doubts(table),
        "## How it was run",
        "",
        f"{origin['results']} of {origin['jobs']} trainings on {data}, {origin['seconds'] / 60:.0f} minutes on "
        f"{', '.join(origin['device'])}, added up over processes. To run it again: `basinscope study run "
        "studies/ngd_vs_sgd --scale paper`, then `basinscope study report ngd-vs-sgd`.",
        "",
        "`sizes.csv` has a row for every network and optimizer; `agreement.csv` ours beside the published values; "
        "`claims.csv` every claim in every setting with its numbers; `sizes_compared`, `judged` and `convolutions` the "
        "tests; `epochs`, `smoothing`, `branches`, `overfitting` and `variants` (KFAC, the exact Fisher matrix, and "
        "the online method without rounding errors) the rest. `table.parquet` has every row.",
        "",
    ]
    return "\n".join(parts)


def answer(made: Mapping[str, pd.DataFrame]) -> str:
    """The first line: how many networks support the claim by each of three measurements, and how near theirs are."""
    clauses = [
        clause
        for name, moment, words in (
            ("llc_paper", "end", "Trained and measured as its authors did, natural gradient ends with a higher λ̂ than "
             "SGD in"),
            ("llc_paper", "matched", "at equal training loss in"),
            ("llc_basin", "end", "by the calibrated basin coefficient in"),
        )
        if (clause := _counted(made, name, moment, words))
    ]  # fmt: skip
    if not clauses:
        return "No comparison has been measured yet."
    if "agreement" in made and len(first := made["agreement"][made["agreement"]["figure"] == "1"]):
        clauses.append(
            f"{int(first['agrees'].sum())} of {len(first)} published means of Figure 1 are met within "
            f"{TOLERANCE['1']:.0%}"
        )
    return "; ".join(clauses) + "."


def _counted(made: Mapping[str, pd.DataFrame], name: str, moment: str, words: str) -> str:
    """In how many networks natural gradient is higher, and lower, by one measurement; empty if it was not made."""
    for part in ("sizes_compared", "judged"):
        rows = made[part].to_dict("records") if part in made else []
        rows = [row for row in rows if (row["measurement"], row["moment"]) == (name, moment)]
        if rows:
            clear = [row["difference"] for row in rows if decides(row) and row["p_holm"] < SIGNIFICANT]
            above, below = sum(value > 0 for value in clear), sum(value < 0 for value in clear)
            return f"{words} {above} of {len(rows)} networks (lower in {below})"
    return ""


def _summary(answers: pd.DataFrame) -> list[str]:
    """Every claim in one line, with a column for each way of measuring, and where it was found not to hold."""
    lines = []
    for (claim, paper), rows in answers.groupby(["claim", "paper"], sort=False):
        cells = [_cell(rows.loc[rows["way"] == way, "holds"].tolist()) for way in WAYS.values()]
        fails = list(dict.fromkeys(rows.loc[(rows["holds"] == "no") & rows["way"].notna(), "setting"]))
        lines.append((claim, paper, *cells, "; ".join(fails[:4]) + (" …" if len(fails) > 4 else "") or "–"))
    return [
        "## Claim by claim",
        "",
        "`yes` and `no`: the test decides at the 5 % level after Holm's correction, from three seeds or more and "
        "values of which four fifths are `ok`; of series, the rank correlation is beyond 0.8, or has the other sign. "
        "Numbers count settings. A dash: not measured.",
        "",
        *markdown_table(("claim", "Saghir et al.", *WAYS.values(), "does not hold in"), lines),
    ]


def _cell(verdicts: Sequence[str]) -> str:
    if not verdicts:
        return "–"
    counts = Counter(verdicts)
    return ", ".join(f"{name} {counts[name]}" for name in ("yes", "in part", "no", "undecided") if counts[name])


def _figures(made: Mapping[str, pd.DataFrame]) -> list[str]:
    lines = []
    for name, caption in FIGURES.items():
        if name in made:
            lines += [f"![{caption}]({name}.png)", "", caption, ""]
    return lines


def _agreement(made: Mapping[str, pd.DataFrame]) -> list[str]:
    """λ̂ by the authors' settings, ours and theirs."""
    if "agreement" not in made:
        return []
    table = made["agreement"]
    lines = []
    for row in table.to_dict("records"):
        lines.append((
            row["figure"], f"{row['data']}, {row['network']}, {row['optimizer']}", row["setting"],
            f"{row['llc']:.1f} ± {row['llc_stderr']:.1f}", f"{row['published']:.1f} ± {row['published_stderr']:.1f}",
            f"{row['relative']:+.0%}", f"{row['train_loss']:.3g}", f"{row['published_loss']:.3g}",
        ))  # fmt: skip
    counted = "; ".join(
        f"Figure {figure}: {int(rows['agrees'].sum())} of {len(rows)} within {TOLERANCE[figure]:.0%}"
        for figure, rows in table.groupby("figure", sort=False)
    )
    columns = ("figure", "network", "setting", "λ̂ here", "λ̂ published", "difference", "loss here", "loss published")
    return ["## Beside the published values", "", f"{counted}.", "", *markdown_table(columns, lines)]


def _judgement(made: Mapping[str, pd.DataFrame]) -> list[str]:
    """Natural gradient less SGD in the judged networks: each measurement at the end and at equal training loss."""
    if "judged" not in made:
        return []
    table = made["judged"]
    lines = []
    for (network, moment), rows in table.groupby(["network", "moment"], sort=False):
        values = rows.set_index("measurement")
        shown = [
            f"{row['ngd']:.3g} / {row['sgd']:.3g}" if (row := _row(values, name)) is not None else "–"
            for name in ("llc_paper", "llc_basin", "llc_coarse_basin", "half_soft_rank", "hessian_trace",
                         "validation_loss", "accuracy")
        ]  # fmt: skip
        loss = f"{rows['ngd_loss'].iloc[0]:.3g} / {rows['sgd_loss'].iloc[0]:.3g}"
        when = "end" if moment == "end" else "equal loss"
        lines.append((network, when, loss, *shown, _bias(values)))
    columns = (
        "network", "when", "training loss", "λ̂, authors' SGLD", "basin, nβ = n/log n", "basin, nβ = 26.4",
        "½ soft rank", "Tr H", "test loss", "accuracy", "bias in the difference",
    )  # fmt: skip
    return [
        "## Judged at equal loss and without bias",
        "",
        "NGD / SGD, means over seeds, none left out. The last column says which part of the difference in λ̂ is the "
        "leading bias of the authors' SGLD, and what the difference becomes at half their step and with chains ten "
        "times as long. Equal loss is often reached within an epoch: test loss and accuracy are interpolated there.",
        "",
        *_generalization(table),
        *markdown_table(columns, lines),
    ]


def _row(values: pd.DataFrame, name: str) -> Any:
    return values.loc[name] if name in values.index else None


def _bias(values: pd.DataFrame) -> str:
    plain, bias = _row(values, "llc_paper"), _row(values, "step_bias")
    if plain is None or bias is None or not plain["difference"]:
        return "–"
    others = [_row(values, name) for name in ("llc_paper_half_step", "llc_paper_long")]
    shown = " and ".join(f"{row['difference']:+.3g}" for row in others if row is not None)
    return f"{bias['difference'] / plain['difference']:.0%} of {plain['difference']:+.3g}; {shown}"


def _generalization(table: pd.DataFrame) -> list[str]:
    """Whether the optimizer with the higher λ̂ has the higher test loss at equal training loss."""
    matched = table[table["moment"] == "matched"].set_index(["network", "measurement"])["difference"].unstack()
    if not {"llc_paper", "validation_loss"} <= set(matched):
        return []
    agree = int((matched["llc_paper"] * matched["validation_loss"] > 0).sum())
    return [
        f"At equal training loss the optimizer with the higher λ̂ has the higher test loss in {agree} of {len(matched)} "
        "networks; singular learning theory expects that on average.",
        "",
    ]


def _doubts(table: pd.DataFrame) -> list[str]:
    """How often a measurement was doubtful or failed, and which trainings diverged."""
    lines = ["## What the numbers are worth", ""]
    for name in ("llc", "llc_coarse", "llc_paper"):
        column = f"{name}_verdict"
        if column in table:
            lines.append(f"- {MEASUREMENTS[name]}: {in_words(table[column].dropna())}.")
    if "llc_at_minimum" in table:
        places = table["llc_at_minimum"].dropna()
        lines.append(
            f"- {int((places == 'yes').sum())} of {len(places)} networks are at a minimum at nβ = n/log n; of the "
            "others the basin coefficient is that of the basin they are in."
        )
    if "step_bias" in table and table["step_bias"].notna().any():
        share = (table["step_bias"] / table["llc_paper"]).dropna()
        share = share[share > 0]
        if len(share):
            lines.append(
                f"- The {JUDGED['step_bias']}, (ε nβ/8) Tr H + (ε (nβ)²/8m) Tr C, is {share.median():.1%} of its λ̂ "
                f"(median; at most {share.max():.1%})."
            )
    lost = table[table["outcome"] == "diverged"].groupby(["part", "optimizer"]).size()
    lines += [f"- Diverged: {count} rows of {part}, {kind}." for (part, kind), count in lost.items()]
    return [*lines, ""]
