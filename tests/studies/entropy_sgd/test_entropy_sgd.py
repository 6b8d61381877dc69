"""Parts of the published difference add up, and a small study runs from end to end."""

import numpy as np
import pandas as pd
import pytest

from basinscope.runs.driver import run
from basinscope.runs.results import Results
from basinscope.runs.settings import resolved
from basinscope.runs.store import Store
from studies.entropy_sgd.report import answer, tables
from studies.entropy_sgd.study import STUDY, trainings

SETTINGS = {"gammas": [100.0, 350.0], "lengths": [400, 4000]}


def networks():
    """Networks whose basin is larger by 20 with Entropy-SGD, and whose drop is larger by 5."""
    rows = []
    for seed in range(6):
        for optimizer, more in (("entropy-sgd", 1.0), ("sgd", 0.0)):
            noise = 0.1 * np.sin(7 * seed + more)
            basin, drop = 100 + 20 * more + noise, 1 + 5 * more + noise
            row = {"optimizer": optimizer, "seed": seed, "parameters": 10, "n": 100, "sgld_400": 60 - 30 * more + noise,
                   "sgld_4000": 90.0 + noise, "sgld_late": 104.0 + noise}  # fmt: skip
            row |= dict.fromkeys(("train_loss", "train_accuracy", "test_loss", "test_accuracy"), 0.1 + noise)
            for gamma, scale in ((100, 1.0), (350, 0.8)):
                row |= {f"at_{gamma}": scale * (basin - drop), f"at_{gamma}_basin": scale * basin,
                        f"at_{gamma}_drop": scale * drop, f"at_{gamma}_verdict": "ok"}  # fmt: skip
            rows.append(row)
    return pd.DataFrame(rows)


def test_parts_add_up_to_the_published_difference():
    comparison = tables(networks(), SETTINGS)["comparison"].set_index("name")["difference"]
    total = sum(comparison[name] for name in ("at_100", "resolution", "step_size", "rest"))
    assert total == pytest.approx(comparison["sgld_400"])
    assert comparison["at_100_basin"] == pytest.approx(20, abs=0.2)


def test_estimates_that_failed_are_left_out():
    table = networks()
    table.loc[0, ["at_100_verdict", "at_100_basin"]] = ["failed", 1e9]
    comparison = tables(table, SETTINGS)["comparison"].set_index("name")
    assert comparison.loc["at_100_basin", "difference"] == pytest.approx(20, abs=0.2)
    assert comparison.loc["at_100_basin", "networks"] == 11


def test_the_answer_says_what_entropy_sgd_does():
    said = answer(tables(networks(), SETTINGS)["comparison"], SETTINGS)
    assert said.startswith("Entropy-SGD ends in a basin whose coefficient is larger than that of SGD's")
    assert "higher above the bottom of it" in said


def test_every_network_has_a_training_of_its_own():
    jobs = list(STUDY.jobs(resolved(STUDY, "digits", {})))
    found = [(each.optimizer, each.seed) for job in jobs for each in trainings(job)]
    assert len(set(found)) == len(found) == 32


@pytest.mark.slow
def test_a_small_study_from_end_to_end(tmp_path):
    pytest.importorskip("sklearn")
    assert run(STUDY, tmp_path / "store", scale="smoke", progress=False).complete
    results = Results(STUDY, resolved(STUDY, "smoke", {}), Store(tmp_path / "store"))
    written = results.write(tmp_path / "out")
    assert [path.name for path in written[-2:]] == ["differences.png", "README.md"]
