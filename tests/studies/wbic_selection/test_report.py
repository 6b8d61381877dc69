"""Tables and page of the selection study."""

import pandas as pd
import pytest

from basinscope.runs.driver import run
from basinscope.runs.results import Results
from basinscope.runs.settings import resolved
from basinscope.runs.store import Store
from studies.wbic_selection.report import answer, extremes
from studies.wbic_selection.study import STUDY
from studies.wbic_selection.tables import CRITERIA, SAMPLED, choices, compared


def stored():
    """Four data sets; WBIC is least at sizes 1, 2, 2, 3, all else at 2; the error grows with the distance from 2."""
    rows = []
    for seed, best in enumerate((1, 2, 2, 3)):
        for size in (1, 2, 3, 4):
            values = {name: float(abs(size - (best if name == "wbic" else 2))) for name in CRITERIA}
            errors = {f"{name}_stderr": 0.1 for name in SAMPLED}
            row = {"truth": "singular-tanh", "samples": 50, "seed": seed, "size": size, "error": abs(size - 2.0)}
            rows.append(row | values | errors)
    return pd.DataFrame(rows)


def test_regret_and_shares():
    made = choices(stored()).set_index("criterion")
    assert made.loc["wbic", ["regret", "true_size", "too_small", "too_large"]].tolist() == [0.5, 0.5, 0.25, 0.25]
    assert made.loc["waic", ["regret", "true_size"]].tolist() == [0.0, 1.0]
    assert made.loc["largest", ["regret", "too_large"]].tolist() == [2.0, 1.0]
    assert made.loc["waic", "regret_of_chance"] == pytest.approx(1.0)
    assert made.loc["waic", "error_beside_difference"] == pytest.approx(0.1 * 2**0.5)
    assert compared(stored(), "wbic", "waic")[0] == pytest.approx(0.5)


def test_the_answer_follows_the_numbers():
    text = answer(stored(), choices(stored()))
    assert "At n = 50 the model that WAIC chooses predicts better than that of WBIC for none of 1 truths" in text
    assert "and WBIC's predicts better for none. Averaged" in text  # 0.5 ± 0.29
    assert text.endswith("Averaged over n, WBIC chooses worst of all criteria for 1 of 1 truths.")
    row = "| singular-tanh | 0.00 (free energy, WAIC, LOO, TIC, AIC and BIC) | 0.50 (WBIC) |"
    assert extremes(choices(stored()))[-1] == row
    worse = stored()
    worse["wbic"] = (
        -worse["size"].astype(float).where(worse["seed"] > 0, 4.0 - abs(worse["size"] - 3))
    )  # sizes 3, 4, 4, 4
    assert "for 1 (singular-tanh) of 1 truths, and WBIC's predicts better for none." in answer(worse, choices(worse))


@pytest.mark.slow
def test_a_small_selection_from_end_to_end(tmp_path):
    settings = {"samples": [50], "data_sets": 2, "particles": 60}
    assert run(STUDY, tmp_path / "store", settings=settings, progress=False).complete
    results = Results(STUDY, resolved(STUDY, "smoke", settings), Store(tmp_path / "store"))
    written = results.write(tmp_path / "out")
    assert [path.name for path in written[-3:]] == ["duel.png", "choices.png", "README.md"]
    table = results.table
    assert len(table) == 5 * 2 * 4
    assert (abs(table["waic"] - table["loo"]) < 2).all()
    assert (table["error"] > 0).all()
    assert written[-1].read_text().splitlines()[2].startswith("At n = 50 the model that WAIC chooses ")
