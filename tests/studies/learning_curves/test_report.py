"""Tables and page of the learning curves."""

import numpy as np
import pandas as pd
import pytest

from basinscope.runs.driver import run
from basinscope.runs.results import Results
from basinscope.runs.settings import resolved
from basinscope.runs.store import Store
from studies.learning_curves.report import answer
from studies.learning_curves.study import STUDY
from studies.learning_curves.tables import summary, temperatures, value


def stored(limit):
    """Eight data sets of the mixture whose errors mirror each other around half a limit."""
    away = np.linspace(-1, 1, 8)
    rows = [
        {"model": "mixture", "samples": n, "beta": beta, "Bg": limit / 2 + a, "Cv": limit / 2 - a, "Bt": -a, "V": 2.0}
        | {"Gg": 1.0, "Gt": 0.0}
        for n in (50, 100)
        for beta in (1.0, 2.0)
        for a in away
    ]
    return pd.DataFrame(rows)


def test_means_errors_and_correlation():
    made = summary(stored(1.5))
    assert list(made.columns) == ["model", "n", "quantity", "mean", "stderr", "data_sets"]
    assert value(made, "mixture", 50, "n(Bg+Cv)") == pytest.approx((1.5, 0.0))
    assert value(made, "mixture", 50, "corr(Bg,Cv)") == pytest.approx((-1.0, 0.0))
    assert value(made, "mixture", 50, "sd(nBg)/sd(nCv)")[0] == pytest.approx(1.0)
    spread = np.linspace(-1, 1, 8).std(ddof=1)
    assert value(made, "mixture", 50, "nBg") == pytest.approx((0.75, spread / 8**0.5))
    warm = temperatures(stored(1.5))
    at_two = warm[(warm["beta"] == 2) & (warm["n"] == 50)].set_index("quantity")["mean"]
    assert at_two["n(Bg+Cv)-(β-1)V"] == pytest.approx(1.5 - 2.0)
    assert at_two["βV/2"] == pytest.approx(2.0)


def test_the_answer_follows_the_numbers():
    assert "to within 2% or two standard errors of it in 1:" in answer(summary(stored(1.5)))
    assert "to within 2% or two standard errors of it in 0:" in answer(summary(stored(1.3)))
    assert "correlated at −1.000" in answer(summary(stored(1.5)))


def test_a_small_study_from_end_to_end(tmp_path):
    settings = {"models": ["mixture"], "samples": [60], "tempered_samples": [60], "data_sets": 3}
    assert run(STUDY, tmp_path / "store", settings=settings, progress=False).complete
    results = Results(STUDY, resolved(STUDY, "smoke", settings), Store(tmp_path / "store"))
    written = results.write(tmp_path / "out")
    assert [path.name for path in written[-4:]] == ["summary.csv", "temperatures.csv", "curves.png", "README.md"]
    table = results.table
    assert table["beta"].tolist() == [1.0, 0.5, 2.0] * 3
    assert (table["Gg"] > table["Bg"]).all()  # Jensen
    assert (abs(table["Bg"] + table["Cv"] - (table["beta"] - 1) * table["V"] - 1.5 / table["beta"]) < 1).all()
    assert written[-1].read_text().splitlines()[2].startswith("From n = 60 to 60 the sum of Bayes")
