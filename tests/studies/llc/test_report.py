"""From rows to tables, targets, figures and a page; and the whole way of a run on a machine without pydantic."""

import math
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from basinscope.runs.results import Results
from basinscope.runs.settings import resolved
from basinscope.runs.store import Store
from studies.llc.__main__ import PLAIN, main
from studies.llc.page import page
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
    found = maps(pd.DataFrame(rows))
    assert [row["bias"] for row in found[:1]] == [pytest.approx(0.2)]
    assert found[0]["predicted"] == pytest.approx(0.9 * 1.1 - 1)
    assert (found[1]["diverged"], found[1]["predicted"]) == (True, math.inf)
    assert len(found) == 2  # nothing is known at γ = 3
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
    found = {(row["moment"], row["measurement"]): row for row in comparisons(rows)}
    end = found["end", "llc_paper"]
    assert end["difference"] == pytest.approx(-40, abs=3)
    assert end["p"] < 1e-9
    assert end["seeds"] == 9
    assert found["equal loss", "llc_paper"]["difference"] == pytest.approx(0, abs=1e-9)
    losses = found["equal loss", "train_loss"]
    assert losses["entropy_sgd"] == pytest.approx(losses["sgd"], rel=1e-9)
    assert ("equal loss", "llc") not in found
    judged = targets(tables(rows))
    assert judged["met"].tolist() == ["yes", "undecided", "for comparison"]


def test_networks_that_never_have_the_same_loss_are_not_compared():
    rows = trained_twice()
    alone = rows[(rows["optimizer"] == "sgd") & (rows["epoch"] > 4) | (rows["optimizer"] == "entropy-sgd")]
    assert {row["moment"] for row in comparisons(alone)} == {"end"}


@pytest.mark.slow
def test_all_parts_run_without_pydantic_and_become_tables_figures_and_a_page(tmp_path):
    changes = [word for change in TINY for word in ("--set", change)]
    blocked = "import sys; sys.modules['pydantic'] = None; from studies.llc.__main__ import main; "
    command = ["run", "--scale", "smoke", *changes, "--out", str(tmp_path / "out"), "--scratch", str(tmp_path / "s")]
    told = subprocess.run(
        [sys.executable, "-c", blocked + f"sys.exit(main({command!r}))"], capture_output=True, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    planned = PLAIN.planned("smoke", TINY)
    jobs = list(PLAIN.plan.jobs(planned))
    assert {file.stem for file in (tmp_path / "out").iterdir()} == {PLAIN.key(job) for job in jobs}

    assert main(["adopt", str(tmp_path / "out"), "--store", str(tmp_path / "store")]) == 0
    given = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(planned).items()}
    results = Results(STUDY, resolved(STUDY, "smoke", given), Store(tmp_path / "store"))
    assert not results.missing
    written = {path.name for path in results.write(tmp_path / "report")}
    assert {"truth.png", "resolution.png", "atlas_small.png", "entropy.png", "beyond_training.png"} <= written
    assert {"truth_decades.csv", "atlas.csv", "entropy_tests.csv", "cost.csv"} <= written
    written_page = (tmp_path / "report" / "README.md").read_text()
    assert "smoke scale" in written_page
    assert "| target | wanted | found | met |" in written_page
    assert STUDY.findings(results)

    restore = ["restore", str(tmp_path / "report"), "--scale", "smoke", *changes, "--out", str(tmp_path / "back")]
    assert main(restore) == 0
    assert main(["adopt", str(tmp_path / "back"), "--store", str(tmp_path / "again")]) == 0
    restored = Results(STUDY, resolved(STUDY, "smoke", given), Store(tmp_path / "again"))
    assert not restored.missing
    restored.write(tmp_path / "same")
    for name in {name for name in written if name.endswith((".csv", ".json", ".md"))} - {"table.csv"}:
        assert (tmp_path / "same" / name).read_text() == (tmp_path / "report" / name).read_text()


def test_only_reports_can_be_restored(tmp_path, capsys):
    (tmp_path / "provenance.json").write_text("{}")
    assert main(["restore", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "names no origins" in capsys.readouterr().err
    (tmp_path / "provenance.json").write_text('{"origins": []}')
    assert main(["restore", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "table.parquet is not there" in capsys.readouterr().err
