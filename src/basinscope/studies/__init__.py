"""The studies that come with Basinscope, by name. Nothing is loaded before it is asked for."""

from __future__ import annotations

from typing import NamedTuple


class Known(NamedTuple):
    """A study that can be run by name: where it is, and what it asks."""

    reference: str
    title: str


CATALOGUE = {
    "quadratics": Known("basinscope.studies.quadratics:STUDY", "λ̂ of quadratic basins beside its exact value"),
    "learning-curves": Known(
        "basinscope.studies.learning_curves:STUDY",
        "n times the generalization error beside λ, and its anti-correlation with leave-one-out",
    ),
    "temperature-regression": Known(
        "basinscope.studies.temperature:STUDY",
        "λ̂ as the slope of the loss in temperature, beside exact values",
    ),
    "wbic-selection": Known(
        "basinscope.studies.selection:STUDY",
        "Which of AIC, BIC, WBIC, WAIC and leave-one-out finds the width of the true network",
    ),
    "ngd-vs-sgd": Known(
        "basinscope.studies.ngd_vs_sgd.study:STUDY",
        "Does natural gradient find less degenerate solutions than SGD?",
    ),
    "llc": Known(
        "basinscope.studies.llc.study:STUDY",
        "The learning coefficient from toy models to transformers",
    ),
    "flatness": Known(
        "basinscope.studies.flatness.study:STUDY",
        "Does flatness tell how well a network generalizes?",
    ),
}
