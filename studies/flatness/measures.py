"""The measures that are compared, the gaps they are to predict, and what tells networks apart."""

from __future__ import annotations

from dataclasses import dataclass

KEY = ("inputs", "schedule", "architecture", "data", "samples", "decay", "batch_size", "lr")
CLUSTER = ("architecture", "data", "samples", "decay")  # networks that differ in batch size and rate alone are alike
GAPS = {"test set": "gap", "held out": "gap_held"}  # the loss on either less that on the training samples
LEARNED = 0.2  # accuracy on the training set above which a network of ten classes has learned anything


@dataclass(frozen=True)
class Measure:
    """A measure of complexity.

    Attributes:
        column: where the joint table has it.
        label: what it is called.
        paper: τ in the paper's Table 1, if it is there.
        kind: `curvature`, `cheap` (stand-ins for F), `gradients`, `sampling`, `held out` or `plain`.
        per_sample: whether it is n times something that a gap is compared with, so that its n-th part counts too.
    """

    column: str
    label: str
    paper: float | None
    kind: str
    per_sample: bool = True


MEASURES = (
    Measure("soft_rank_train", "rank_λ(F)", 0.84, "curvature"),
    Measure("log_det_train", "½ log det(F/λ + I)", 0.82, "curvature"),
    Measure("soft_rank_kfac_train", "rank_λ(F), KFAC", 0.78, "cheap"),
    Measure("log_det_kfac_train", "½ log det, KFAC", 0.76, "cheap"),
    Measure("log_det_diagonal_train", "½ log det, diagonal", 0.72, "cheap"),
    Measure("soft_rank_diagonal_train", "rank_λ(F), diagonal", 0.68, "cheap"),
    Measure("trace_f_train", "Tr F", 0.28, "curvature"),
    Measure("norm_f_train", "‖F‖₂", 0.08, "curvature"),
    Measure("soft_rank_ekfac_train", "rank_λ(F), EKFAC", None, "cheap"),
    Measure("log_det_ekfac_train", "½ log det, EKFAC", None, "cheap"),
    Measure("soft_rank_2_train", "rank_λ⁽²⁾(F)", None, "curvature"),
    Measure("n_tic_train", "TIC, training data", None, "gradients"),
    Measure("n_eq8_train", "(Tr C/Tr F) rank_λ(F), training data", None, "gradients"),
    Measure("trace_c_train", "Tr C", None, "gradients"),
    Measure("trace_ratio_train", "Tr C/Tr F, training data", None, "gradients"),
    Measure("llc", "λ̂ (β = 1/log n)", None, "sampling"),
    Measure("llc_bayes", "λ̂ (β = 1)", None, "sampling"),
    Measure("half_soft_rank_llc", "½ rank at λ̂'s resolution", None, "curvature"),
    Measure("fluctuation", "ν̂", None, "sampling"),
    Measure("wbic_gap", "WBIC/n − training loss", None, "sampling", per_sample=False),
    Measure("waic_gap", "WAIC − training loss", None, "sampling", per_sample=False),
    Measure("cv_gap", "cross-validation", None, "held out", per_sample=False),
    Measure("less_decay", "−weight decay", None, "plain", per_sample=False),
    Measure("less_loss_train", "−training loss", None, "plain", per_sample=False),
    Measure("weight_norm", "‖θ‖", None, "plain", per_sample=False),
    Measure("less_margin_train", "−margin", None, "plain", per_sample=False),
)
BASELINES = (
    "less_decay",
    "less_loss_train",
    "weight_norm",
    "less_margin_train",
    "cv_gap",
)  # what costs nothing, and cross-validation

# Predictions of the gap itself, 1/n included, by the column of the joint table.
PREDICTIONS = {
    "eq8_test": "(1/n)(Tr C/Tr F) rank_λ(F), test data",
    "tic_test": "TIC, test data",
    "thomas_tic_test": "(1/n) Tr C F⁺, truncated, test data",
    "eq6_test": "(1/n) Tr C/Tr F, test data",
    "eq7_test": "(1/n)(Tr C/Tr F) rank(F), test data",
    "eq8_kfac_test": "KFAC, test data",
    "eq8_ekfac_test": "EKFAC, test data",
    "eq8_diagonal_test": "diagonal, test data",
    "eq8_train": "(1/n)(Tr C/Tr F) rank_λ(F), training data",
    "rank_train": "(1/n) rank_λ(F), training data",
    "mixed": "(1/n)(Tr C/Tr F, test) rank_λ(F, train)",
    "tic_train": "TIC, training data",
    "fluctuation_gap": "2ν̂/n",
    "llc_gap": "2λ̂/n (β = 1)",
    "waic_gap": "WAIC − training loss",
    "cv_gap": "cross-validation",
}
