import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from basinscope.runs.driver import run
from basinscope.runs.results import Results
from basinscope.runs.settings import resolved
from basinscope.runs.store import Store
from studies.ngd_vs_sgd import plan
from studies.ngd_vs_sgd.__main__ import key_of, main, planned
from studies.ngd_vs_sgd.running import Moment, Trained, matching, run_branches, run_population, settled
from studies.ngd_vs_sgd.study import STUDY

TINY = [
    "data=[digits]", "networks=['1x3']", "network=1x3", "variant_network=1x3", "samples=60", "variant_samples=60",
    "batch_size=30", "seeds=2", "few_seeds=2", "branch_seeds=2", "full_seeds=0", "epochs=2", "every=2", "draws=16",
    "alphas=[0.1]", "epsilons=[1.0e-10, 1.0e-3, 1.0]", "sweep_epochs=1", "trunk_epochs=1",
    "low_trunk_epochs=1", "branch_epochs=1", "curve_epochs=1", "overfit_samples=60", "overfit_epochs=4",
    "overfit_every=1", "lr=0.5",
]  # fmt: skip


def changes():
    return [word for change in TINY for word in ("--set", change)]


@pytest.mark.slow
def test_all_parts_run_without_pydantic_and_become_tables_figures_and_a_page(tmp_path):
    """The whole way of a run elsewhere: plain files, taken into a store, reported."""
    blocked = "import sys; sys.modules['pydantic'] = None; from studies.ngd_vs_sgd.__main__ import main; "
    command = ["run", "--scale", "smoke", *changes(), "--out", str(tmp_path / "out"), "--scratch", str(tmp_path / "s")]
    told = subprocess.run(
        [sys.executable, "-c", blocked + f"sys.exit(main({command!r}))"], capture_output=True, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    jobs = list(plan.jobs(planned("smoke", TINY)))
    assert {file.stem for file in (tmp_path / "out").iterdir()} == {key_of(job) for job in jobs}

    assert main(["adopt", str(tmp_path / "out"), "--store", str(tmp_path / "store")]) == 0
    given = {name: list(v) if isinstance(v, tuple) else v for name, v in vars(planned("smoke", TINY)).items()}
    results = Results(STUDY, resolved(STUDY, "smoke", given), Store(tmp_path / "store"))
    assert not results.missing
    written = {path.name for path in results.write(tmp_path / "report")}
    assert {f"{part}.{kind}" for part in plan.PARTS for kind in ("csv", "png")} <= written
    page = (tmp_path / "report" / "README.md").read_text()
    assert "smoke scale" in page
    assert all(claim in page for claim in ("at every size", "less smoothing", "after the split", "overfits"))
    assert STUDY.findings(results)


def test_the_study_runs_singly_and_in_populations(tmp_path):
    tiny = planned("smoke", [*TINY, "parts=[epochs, sizes]", "few_seeds=1"])
    given = {name: list(v) if isinstance(v, tuple) else v for name, v in vars(tiny).items()}
    assert run(STUDY, tmp_path / "store", settings=given, progress=False).complete
    results = Results(STUDY, resolved(STUDY, "smoke", given), Store(tmp_path / "store"))
    assert set(results.table["moment"]) == {"training", "end", "matched"}
    assert results.table["llc_paper"].notna().any()


def test_a_run_stops_before_its_time_and_goes_on_where_it_was(tmp_path, capsys):
    only = [
        "--scale",
        "smoke",
        *changes(),
        "--set",
        "parts=[epochs]",
        "--out",
        str(tmp_path),
        "--scratch",
        str(tmp_path / "s"),
    ]
    assert main(["run", *only, "--minutes", "0"]) == 3
    assert "4 units left" in capsys.readouterr().out
    job = next(plan.jobs(planned("smoke", [*TINY, "parts=[epochs]"])))
    (tmp_path / f"{key_of(job)}.json").write_text(json.dumps({}))
    assert main(["run", *only, "--minutes", "0"]) == 3
    assert "3 units left" in capsys.readouterr().out


def test_an_unknown_setting_is_named(capsys, tmp_path):
    assert main(["plan", "--set", "seed=3", "--out", str(tmp_path)]) == 2
    assert "seeds" in capsys.readouterr().err


def test_branches_start_where_the_trunk_ended_and_all_five_combinations_are_there(tmp_path):
    jobs = [job for job in plan.jobs(planned("smoke", [*TINY, "parts=[branches]"])) if job.seed == 0]
    assert sum(len(job.rates) for job in jobs) == 7  # two SGD continuations, and the five combinations' other branch
    rows = run_branches(jobs[1], tmp_path)
    assert list(dict.fromkeys(row["run"] for row in rows)) == ["trunk", *jobs[1].rates]
    assert not set(jobs[1].config()) & {name for row in rows for name in row}
    end = max(row["step"] for row in rows if row["run"] == "trunk")
    assert {row["origin"] for row in rows if row["run"] != "trunk"} == {end}
    assert all(row["step"] > end for row in rows if row["run"] != "trunk")


def test_a_trunk_ends_when_it_is_flat_after_its_drop_and_not_before():
    def told(*losses):
        return settled([{"train_loss": 2.3}, *({"train_loss": loss, "llc_paper": 5.0} for loss in losses)])

    assert told(2.30, 2.29, 2.28, 2.27) is None
    assert told(1.5, 1.2, 1.0) is None
    assert "flat" in told(1.5, 1.01, 1.0, 0.99)
    assert settled([]) is None


def test_a_population_of_lenets_is_measured_at_its_end_and_at_equal_loss():
    few = [*TINY, "parts=[sizes]", "networks=[lenet5]", "samples=12", "batch_size=6", "epochs=1", "seeds=1"]
    jobs = list(plan.jobs(planned("smoke", few)))
    rows = run_population(jobs)
    assert sorted(row["moment"] for each in rows for row in each) == ["end", "end", "matched"]
    assert all(row["hessian_trace"] > 0 for each in rows for row in each)


def test_matching_takes_the_moment_nearest_to_where_the_slower_twin_ended():
    def group(*losses):
        moments = [Moment(step, {}, torch.tensor(each)) for step, each in enumerate(losses)]
        return Trained([], moments, frozenset(), 1)

    fast = group([2.0, 2.0, 2.0], [1.0, 1.2, 1.0], [0.5, 0.5, 0.5])
    slow = group([2.0, 2.0, 2.0], [0.9, 0.4, torch.nan])
    assert {m: moment.step for m, moment in matching(fast, slow).items()} == {0: 1}
    assert {m: moment.step for m, moment in matching(slow, fast).items()} == {1: 1}


def test_the_paper_scale_is_what_the_paper_did():
    found = plan.Plan()
    assert (found.size_alpha, found.alpha, found.epsilon, found.lr, found.batch_size) == (1e-2, 1e-1, 1e-10, 1e-2, 128)
    jobs = list(plan.jobs(found))
    assert len({key_of(job) for job in jobs}) == len(jobs)
    assert max(sum(map(plan.cost, unit)) for unit in plan.units(jobs)) < 300
    assert all(plan.job_of(job.config()) == job for job in jobs)
    assert {job.network for job in jobs if job.part == "sizes"} >= {"1x64", "2x512", "lenet5"}
    assert replace(jobs[0], seed=1) in jobs
