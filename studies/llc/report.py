"""`README.md` of the results: the targets, whether they are met, and the numbers behind them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from studies.common.pages import in_words, markdown_table

from .tables import PUBLISHED, targets

if TYPE_CHECKING:
    import pandas as pd


def page(made: Mapping[str, pd.DataFrame], origin: Mapping[str, Any]) -> str:
    """The page as Markdown."""
    devices = ", ".join(origin["device"])
    parts = [
        "# The learning coefficient from toy models to transformers",
        "",
        "Written by `basinscope study report llc`; do not edit. "
        f"{origin['results']} of {origin['jobs']} jobs, {origin['seconds'] / 60:.0f} minutes of {devices}."
        + _scale(origin),
        "",
        "## Targets",
        "",
        *_targets(made, complete=origin["results"] == origin["jobs"]),
        *_truth(made),
        *_resolution(made),
        *_atlas(made),
        *_entropy(made),
        *_beyond(made),
        *_cost(made),
        "## Files",
        "",
        "A CSV for every table and a PNG for every figure; `table.parquet` has every row, `provenance.json` where they "
        "come from.",
        "",
    ]
    return "\n".join(parts)


def _targets(made: Mapping[str, pd.DataFrame], complete: bool) -> list[str]:
    """A line for each target; with jobs still to come none is met but so far."""
    return markdown_table(
        ("target", "wanted", "found", "met"),
        (
            (r["target"], r["wanted"], r["found"], r["met"] if complete or r["met"] != "yes" else "so far")
            for r in targets(made).to_dict("records")
        ),
    )


def _scale(origin: Mapping[str, Any]) -> str:
    small = origin["settings"].get("data") == "digits"
    return " This is the smoke scale: it shows that the study runs, and settles little." if small else ""


def _markdown(table: pd.DataFrame, columns: Mapping[str, str]) -> list[str]:
    """Columns of a table, by their titles."""
    shown = {name: title for name, title in columns.items() if name in table}
    rows = ([_cell(row[name]) for name in shown] for row in table.to_dict("records"))
    return markdown_table(list(shown.values()), rows)


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if 1000 <= abs(value) < math.inf else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _truth(made: Mapping[str, pd.DataFrame]) -> list[str]:
    if "truth_decades" not in made:
        return []
    columns = {
        "method": "method", "decade": "10^", "networks": "networks", "no_number": "no number", "failed": "failed",
        "doubtful": "doubtful", "median": "median error", "p95": "95th percentile", "signed_median": "signed median",
        "share_21_below": "share below λ by > 21 %", "seconds": "seconds each",
    }  # fmt: skip
    return [
        "## Deep linear networks of known λ",
        "",
        "Random widths, depths (up to 5 hidden layers) and ranks, every factor of the rank of the map: there λ of the "
        "point is Aoyagi's exact value. `calibrated` is `bs.llc(land, gamma=truth_gamma·width)` at nβ = n/log n, "
        "nothing else: Hamiltonian chains where they are affordable, minibatches in the larger networks; `minibatch` "
        "is the same without Hamiltonian chains: nothing is accepted or rejected, batches have 512 samples to begin "
        "with, and more of them, up to all, where gradient noise costs more. Inputs are normal and orthogonal, and "
        "make the steep directions at w* `truth_stiffness` times as stiff as γ: the posterior is then the same for any "
        "number of samples, and there are as many as inputs, for minibatches `minibatch_samples`, and 60 nominal "
        "seconds at least. "
        "The distance to λ holds the finite resolution, too: at (nβ, γ) a perfect sampler would find less than λ, most "
        "so in deep networks of low rank. By Gibbs sampling, at the paper scale's settings: 1 % (median) and 12 % "
        "(95th percentile) below λ in decade 2, 0 and 9 % in decade 3, at most 5 % in decade 4, 0 and 5 % in decade 5. "
        "`published` is SGLD as in the code of Lau et al.: inputs uniform on [−10, 10], mean squared error over "
        "outputs, γ = 1, batches of 500, all draws kept, ε·nβ interpolated between the smallest and the largest "
        "networks of that code, two chains. They report "
        f"{PUBLISHED}; their networks have factors of higher rank than the map, where the local value is larger than "
        "the one they compare with.",
        "",
        *_markdown(made["truth_decades"], columns),
        "![λ̂ against λ](truth.png)",
        "",
    ]


def _resolution(made: Mapping[str, pd.DataFrame]) -> list[str]:
    if "resolution" not in made:
        return []
    columns = {"case": "case", "rung": "nβ", "llc": "λ̂", "llc_stderr": "±", "exact": "exact λ_t", "error": "error",
               "half_soft_rank": "½ soft rank", "heat_capacity": "(nβ)²Var L", "verdict": "verdict"}  # fmt: skip
    return [
        "## λ̂ is a function of the resolution",
        "",
        "One set of Metropolis-adjusted chains goes down a ladder of nβ at fixed γ, from the "
        "coldest rung on. Exact values: closed form for the "
        "quadratic basin and for the chain of matrices; for the network of rank 3 the sum of both parts, which leaves "
        "out how the localiser ties them together. The classifier is trained, then labels are drawn from its own "
        "probabilities, so that w* is the true parameter.",
        "",
        *_markdown(made["resolution"], columns),
        "![λ_t over nβ](resolution.png)",
        "",
    ]


def _atlas(made: Mapping[str, pd.DataFrame]) -> list[str]:
    if "atlas" not in made:
        return []
    figures = [f"![bias of plain SGLD, {case}](atlas_{case}.png)" for case in dict.fromkeys(made["atlas"]["case"])]
    return [
        "## Where plain SGLD is biased",
        "",
        "A trained classifier with labels drawn from its own probabilities. Relative distance of plain SGLD to "
        "Metropolis-adjusted chains at the same (nβ, γ). Theory: step size and "
        "minibatches lift λ̂ by (ε nβ/8) Tr H + (ε (nβ)²/8m)(1 − m/n) Tr C, and modes slower than the run are missing "
        "as if γ were larger by 1/(εk).",
        "",
        f"Verdicts of the references, one for each (nβ, γ): {in_words(_references(made['atlas']))}. What lies beside a "
        "doubtful one is drawn hollow: there the bias is that of two estimates. `atlas.csv` has all settings, those of "
        "γ and of the chain length, too.",
        "",
        *figures,
        "",
    ]


def _references(atlas: pd.DataFrame) -> list[str]:
    """Verdicts of the references, each once."""
    return list(atlas.drop_duplicates(["case", "nbeta", "gamma"])["reference_verdict"])


def _entropy(made: Mapping[str, pd.DataFrame]) -> list[str]:
    if "entropy_tests" not in made:
        return []
    columns = {"moment": "moment", "measurement": "measurement", "entropy_sgd": "Entropy-SGD", "sgd": "SGD",
               "difference": "difference", "low": "95 % from", "high": "to", "p": "p", "effect": "Hedges' g",
               "seeds": "seeds"}  # fmt: skip
    return [
        "## Entropy-SGD against SGD",
        "",
        "Trained as in the code of Lau et al.: standardized inputs, SGD with Nesterov's momentum of 0.9, Entropy-SGD "
        "with inner loops of 5 steps and momentum of 0.9 in both loops; at the paper scale 200 epochs with batches of "
        "512 and a learning rate of 0.01, of Entropy-SGD's inner loop 0.1. Both optimizers get the same number of "
        "gradients. `llc_paper`: SGLD at nβ = n/log n, γ = 100, 4 chains from w*, all draws kept. `llc`: the "
        "calibrated estimator at the same (nβ, γ), for a few seeds at the end. At equal loss: of two networks of one "
        "seed the faster is taken where it had the training loss that the slower one ended with, interpolated between "
        "the moments of the figure.",
        "",
        *_markdown(made["entropy_tests"], columns),
        "![λ̂ of both](entropy.png)",
        "",
    ]


def _beyond(made: Mapping[str, pd.DataFrame]) -> list[str]:
    lines = ["## Beyond feedforward networks", ""]
    if "beyond_training" in made:
        columns = {"case": "network", "epoch": "epoch", "train_loss": "training loss", "validation_loss": "test loss",
                   "train_accuracy": "training accuracy", "test_accuracy": "test accuracy", "llc": "λ̂",
                   "llc_stderr": "±", "llc_verdict": "verdict", "half_soft_rank": "½ soft rank"}  # fmt: skip
        lines += [*_markdown(made["beyond_training"], columns), "![through training](beyond_training.png)", ""]
    if "beyond_parts" in made:
        columns = {"case": "network", "view": "parts of the", "piece": "part", "parameters": "parameters",
                   "n": "samples", "llc": "λ̂", "llc_stderr": "±", "llc_verdict": "verdict",
                   "half_soft_rank": "½ soft rank"}  # fmt: skip
        lines += [*_markdown(made["beyond_parts"], columns), "![parts](beyond_parts.png)", ""]
    return lines if len(lines) > 2 else []


def _cost(made: Mapping[str, pd.DataFrame]) -> list[str]:
    if "cost" not in made:
        return []
    columns = {"case": "architecture", "parameters": "parameters", "chains": "chains", "batch": "batch",
               "milliseconds": "ms per chain draw", "gigabytes": "peak GB", "where": "device"}  # fmt: skip
    return ["## Cost of a chain draw", "", *_markdown(made["cost"], columns)]
