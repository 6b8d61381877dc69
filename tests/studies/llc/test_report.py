"""From rows to tables, targets, figures and a page; and the whole way of a run, cut off, carried away and restored."""

import math

import numpy as np
import pandas as pd
import pytest

from basinscope.runs.driver import run
from basinscope.runs.restoring import restore
from basinscope.runs.results import Results
from basinscope.runs.settings import overrides, resolved
from basinscope.runs.store import Store
from studies.llc.report import page
from studies.llc.study import STUDY
from studies.llc.tables import comparisons, decades, maps, tables, targets

TINY = [
    "decades=[2]", "networks=[1]", "minibatch_samples=200", "truth_budgets=[0.2]", "published_draws=[64]",
    "rungs=[10.0, 1000.0]", "ladder_cases=[quadratic]", "ladder_budget=0.2", "factors=[0.5, 1.0]",
    "lengths=[32, 64]", "batches=[16, 400]", "atlas_budget=0.05", "entropy_seeds=3", "entropy_looks=[1, 2]",
    "entropy_full=0", "entropy_draws=16", "entropy_samples=100", "beyond_cases=[grokking]", "grokking_epochs=20",
    "beyond_moments=1", "beyond_budget=0.05", "cost_cases=[mlp]", "cost_draws=2", "atlas_epochs=10",
]  # fmt: skip


def truth(errors, method="calibrated", decade=2):
    return pd.DataFrame(
        {
            "part": "truth", "method": method, "decade": decade, "seed": range(len(errors)), "error": errors,
            "verdict": ["failed" if math.isnan(each) else "ok" for each in errors], "spent": 1.0, "exact": 10.0,
            "llc": [10 * (1 + each) for each in errors], "parameters": 500, "widths": [[5, 4, 5]] * len(errors),
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    ("errors", "met"),
    [([0.01, -0.02, 0.03], "yes"), ([0.01, -0.2, 0.03], "no"), ([0.06, 0.06, 0.06], "no"), ([0.01, math.nan], "no")],
)
def test_the_target_of_the_ground_truth(errors, met):
    judged = targets(tables(truth(errors)))
    assert judged["met"].tolist() == [met]


def test_with_jobs_to_come_a_target_is_met_only_so_far():
    made = tables(truth([0.01, -0.02, 0.03]))
    origin = {"device": ["CPU"], "jobs": 3, "results": 3, "seconds": 60.0, "settings": {}}
    assert "| yes |" in page(made, origin)
    assert "| so far |" in page(made, origin | {"jobs": 4})


def test_errors_by_decade():
    table = pd.concat([truth([0.1, -0.3, math.nan]), truth([0.02], decade=3), truth([-0.5], "published")])
    rows = {(row["method"], row["decade"]): row for row in decades(table)}
    assert rows["calibrated", 2]["median"] == pytest.approx(0.2)
    assert rows["calibrated", 2]["signed_median"] == pytest.approx(-0.1)
    assert (rows["calibrated", 2]["no_number"], rows["calibrated", 2]["failed"]) == (1, 1)
    assert rows["calibrated", 2]["share_21_below"] == 0.5
    assert rows["published", 2]["share_21_below"] == 1.0
    judged = targets(tables(table))
    assert judged["met"].tolist() == ["no", "for comparison"]


def test_cells_are_compared_with_the_reference_at_their_own_resolution():
    common = {"part": "atlas", "case": "small", "largest_eigenvalue": 2.0, "verdict": "ok"}
    rows = [
        {**common, "kind": "reference", "gamma": 1.0, "nbeta": 10.0, "llc": 5.0, "llc_stderr": 0.1},
        {**common, "kind": "cell", "gamma": 1.0, "nbeta": 10.0, "step_size": 0.01, "length": 50, "cell_batch": 8,
         "llc": 6.0, "llc_stderr": 0.1, "diverged": False, "lift": 0.5, "share": 0.9, "is_calibrated": True},
        {**common, "kind": "cell", "gamma": 1.0, "nbeta": 10.0, "step_size": 1.0, "length": 50, "cell_batch": 8,
         "llc": math.nan, "llc_stderr": math.nan, "diverged": True, "lift": 50.0, "share": 1.0,
         "is_calibrated": False},
        {**common, "kind": "cell", "gamma": 3.0, "nbeta": 10.0, "step_size": 1.0, "length": 50, "cell_batch": 8,
         "llc": 1.0, "llc_stderr": 0.1, "diverged": False, "lift": 50.0, "share": 1.0, "is_calibrated": False},
    ]  # fmt: skip
    compared = maps(pd.DataFrame(rows))
    assert [row["bias"] for row in compared[:1]] == [pytest.approx(0.2)]
    assert compared[0]["predicted"] == pytest.approx(0.9 * 1.1 - 1)
    assert (compared[1]["diverged"], compared[1]["predicted"]) == (True, math.inf)
    assert len(compared) == 2  # nothing is known at γ = 3
    failed = [row | ({"verdict": "failed", "llc": -3.0} if row["kind"] == "reference" else {}) for row in rows]
    assert all(math.isnan(row["bias"]) and math.isnan(row["predicted"]) for row in maps(pd.DataFrame(failed)))


def trained_twice():
    """λ̂ = 50 − 10 log L, whatever the optimizer; Entropy-SGD is slower."""
    rng = np.random.default_rng(0)
    rows = []
    for kind, rate in (("sgd", 1.0), ("entropy-sgd", 0.5)):
        for seed in range(10):
            for epoch in (1, 2, 4, 8):
                loss = math.exp(-rate * epoch * (1 + 0.05 * rng.random()))
                rows.append(
                    {"part": "entropy", "optimizer": kind, "seed": seed, "epoch": epoch, "outcome": "finished",
                     "train_loss": loss, "llc_paper": 50 - 10 * math.log(loss), "llc_paper_verdict": "ok",
                     "llc": 30.0 + rng.normal() if epoch == 8 else math.nan, "llc_verdict": "ok"}
                )  # fmt: skip
    return pd.DataFrame(rows)


def test_entropy_against_sgd_at_the_end_and_at_equal_loss():
    rows = trained_twice()
    rows.loc[3, ["llc_paper", "llc_paper_verdict"]] = [1e9, "failed"]  # of SGD, at the end
    by_name = {(row["moment"], row["measurement"]): row for row in comparisons(rows)}
    end = by_name["end", "llc_paper"]
    assert end["difference"] == pytest.approx(-40, abs=3)
    assert end["p"] < 1e-9
    assert end["seeds"] == 9
    assert by_name["equal loss", "llc_paper"]["difference"] == pytest.approx(0, abs=1e-9)
    losses = by_name["equal loss", "train_loss"]
    assert losses["entropy_sgd"] == pytest.approx(losses["sgd"], rel=1e-9)
    assert ("equal loss", "llc") not in by_name
    judged = targets(tables(rows))
    assert judged["met"].tolist() == ["yes", "undecided", "for comparison"]


def test_networks_that_never_have_the_same_loss_are_not_compared():
    rows = trained_twice()
    alone = rows[(rows["optimizer"] == "sgd") & (rows["epoch"] > 4) | (rows["optimizer"] == "entropy-sgd")]
    assert {row["moment"] for row in comparisons(alone)} == {"end"}


@pytest.mark.slow
def test_all_parts_run_and_become_tables_figures_and_a_page_and_are_restored_from_it(tmp_path):
    settings = overrides(TINY)
    assert run(STUDY, tmp_path / "store", settings=settings, progress=False).complete
    results = Results(STUDY, resolved(STUDY, "smoke", settings), Store(tmp_path / "store"))
    written = {path.name for path in results.write(tmp_path / "report")}
    assert {"truth.png", "resolution.png", "atlas_small.png", "entropy.png", "beyond_training.png"} <= written
    assert {"truth_decades.csv", "atlas.csv", "entropy_tests.csv", "cost.csv"} <= written
    written_page = (tmp_path / "report" / "README.md").read_text()
    assert "smoke scale" in written_page
    assert "| target | wanted | found | met |" in written_page
    assert STUDY.findings(results)

    assert restore(STUDY, tmp_path / "report", Store(tmp_path / "again")) == (len(results.jobs), len(results.jobs))
    assert run(STUDY, tmp_path / "again", settings=settings, progress=False).fresh == 0
    restored = Results(STUDY, resolved(STUDY, "smoke", settings), Store(tmp_path / "again"))
    restored.write(tmp_path / "same")
    for name in {name for name in written if name.endswith((".csv", ".json", ".md", ".parquet"))}:
        assert (tmp_path / "same" / name).read_bytes() == (tmp_path / "report" / name).read_bytes()
