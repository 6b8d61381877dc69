"""The whole way: trained in pieces, measured, taken into a store, reported."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from basinscope.errors import InputError
from basinscope.landscape import Landscape
from basinscope.runs.driver import run
from basinscope.runs.results import Results
from basinscope.runs.settings import resolved
from basinscope.runs.store import Store
from basinscope.studies.flatness import cases, plan
from basinscope.studies.flatness.__main__ import PLAIN, main
from basinscope.studies.flatness.arms import ARMS
from basinscope.studies.flatness.cases import data_set, held_out, network_of, samples_of
from basinscope.studies.flatness.fitting import cross_validated, fitted
from basinscope.studies.flatness.measuring import measured, temperatures
from basinscope.studies.flatness.running import run_unit
from basinscope.studies.flatness.study import STUDY
from basinscope.training.population import Member, Population

TINY = [
    "steps=60", "samples=[60, 90]", "decays=[1.0, 100.0]", "lrs=[0.01]", "width=3", "channels=[2, 2]", "draws=6",
    "warmup=6", "leapfrogs=2", "folds=2", "test_samples=50",
]  # fmt: skip


def changes(extra=()):
    return [word for change in [*TINY, *extra] for word in ("--set", change)]


def unit(part="grid", architecture="mlp", extra=()):
    found = plan.units(plan.jobs(PLAIN.planned("smoke", [*TINY, *extra])))
    return next(each for each in found if (each[0].part, each[0].architecture) == (part, architecture))


def test_the_paper_scale_is_what_the_paper_did():
    jobs = list(plan.jobs(plan.Plan()))
    grid = [job for job in jobs if job.part == "grid"]
    assert len(grid) == (11 + 7 + 7) * 243
    assert len({PLAIN.key(job) for job in jobs}) == len(jobs)
    assert len({job.seed for job in grid}) == 11 * 243  # the same network has the same seed in all arms
    first = grid[0]
    assert first.steps == 200_000
    assert first.weight_decay == pytest.approx(1e-5 / 5000)
    assert all(plan.job_of(job.config()) == job for job in jobs)
    counts = {
        job.architecture: sum(weight.numel() for weight in network_of(job).parameters()) for job in grid
    }  # fmt: skip
    assert counts == {"mlp": 4210, "bigmlp": 9180, "cnn": 4680}
    for name in ARMS:
        arm = [job for job in plan.jobs(plan.Plan(arms=(name,))) if job.part == "grid"]
        assert len(arm) == 1701
        assert sum(map(plan.training, arm)) < 15 * 60
        assert sum(map(plan.cost, arm)) < 2 * 15 * 60


def test_smoke_has_48_networks():
    jobs = list(plan.jobs(PLAIN.planned("smoke", [])))
    assert sum(job.part == "grid" for job in jobs) == 48
    assert {job.data for job in jobs} == {"digits"}


def test_training_that_runs_out_of_time_goes_on_to_the_same_weights(tmp_path):
    jobs = unit(extra=["steps=400"])
    whole = fitted(jobs, tmp_path / "whole")
    pieces = 1
    while (found := fitted(jobs, tmp_path / "pieces", seconds=1e-3)) is None:  # a block of steps each time
        assert (tmp_path / "pieces" / "state.npz").is_file()
        pieces += 1
    assert pieces > 2
    assert torch.equal(found.weights, whole.weights)
    assert not (tmp_path / "pieces" / "state.npz").exists()
    again = fitted(jobs, tmp_path / "pieces")
    assert torch.equal(again.weights, whole.weights)
    assert again.seconds > 0
    with pytest.raises(InputError, match="other networks"):
        fitted(jobs[:2], tmp_path / "pieces")


def test_a_member_is_trained_on_its_own_samples_as_if_alone(tmp_path):
    jobs = unit()
    found = fitted(jobs, tmp_path)
    job = jobs[-1]
    (x, y), _ = samples_of(job)
    assert len(y) == job.samples
    alone = Population(
        lambda: network_of(job), [Member(job.seed, job.lr, job.weight_decay, job.batch_size)], (x, y)
    )  # fmt: skip
    alone.train(job.steps, progress=False)
    theirs = torch.cat([part[0].flatten() for part in alone.parameters.values()])
    assert torch.allclose(found.weights[-1], theirs, atol=1e-5)


def test_cross_validation_leaves_each_fold_out_once(tmp_path):
    jobs = unit("folds")
    rows = cross_validated(jobs, tmp_path)
    job, row = jobs[0], rows[0]
    (x, y), _ = samples_of(job)
    gaps, losses = [], []
    for fold in range(job.folds):
        out = torch.arange(job.samples) % job.folds == fold
        member = Member(job.seed + 1 + fold, job.lr, job.weight_decay, job.batch_size)
        alone = Population(lambda: network_of(job), [member], (x[~out], y[~out]))
        alone.train(job.steps, progress=False)
        held = float(alone.evaluate((x[out], y[out])).loss[0])
        gaps.append(held - float(alone.evaluate().loss[0]))
        losses.append(held)
    assert row["cv_gap"] == pytest.approx(np.mean(gaps), rel=1e-3)
    assert row["cv_loss"] == pytest.approx(np.mean(losses), rel=1e-3)
    assert row["cv_stderr"] == pytest.approx(np.std(gaps, ddof=1) / np.sqrt(2), rel=1e-2)


def test_rows_hold_what_the_network_does(tmp_path):
    jobs = unit(architecture="cnn")
    fit = fitted(jobs, tmp_path)
    own = plan.batches(jobs)[1]
    rows = measured(own, fit, [jobs.index(job) for job in own])
    for job, row in zip(own, rows, strict=True):
        train, test = samples_of(job)
        point = fit.point(jobs.index(job), network_of(job))
        losses = [float(Landscape(network_of(job), "cross_entropy", pair).at(point).per_sample().mean())
                  for pair in (train, test, held_out(job))]  # fmt: skip
        assert row["loss_train"] == pytest.approx(losses[0], rel=1e-5)
        assert row["gap"] == pytest.approx(losses[1] - losses[0], rel=1e-4)
        assert row["gap_held"] == pytest.approx(losses[2] - losses[0], rel=1e-4)
        assert len(test[1]) == 50
        assert row["llc_remainder"] == row["llc"] - row["half_soft_rank_llc"]
        assert row["llc_gamma"] == pytest.approx(100 + temperatures(job)["llc"] * job.weight_decay)
        assert row["waic"] == pytest.approx(row["bayes_train_loss"] + 2 * row["fluctuation"] / job.samples)
        assert row["bayes_train_loss"] <= row["gibbs_train_loss"]
        assert not set(row) & set(job.config())


def test_no_sample_held_out_was_trained_on():
    job = unit(architecture="cnn")[0]
    images, labels = data_set("digits").train
    for samples in (300, 900):
        own = held_out(replace(job, samples=samples))
        assert torch.equal(own[0], images[samples:])
        assert torch.equal(own[1], labels[samples:])
    own = held_out(replace(job, samples=len(labels)))  # nothing is left of the file
    assert torch.equal(own[0], samples_of(replace(job, samples=len(labels)))[1][0])


def test_shared_devices_count_their_share(monkeypatch):
    monkeypatch.setattr(cases.time, "monotonic", lambda: 8.0)
    assert cases.device_clock() == 8.0
    monkeypatch.setenv(cases.SHARED_BY, "4")
    assert cases.device_clock() == 2.0


def test_a_diverged_network_is_told(tmp_path):
    jobs = unit()
    fit = replace(fitted(jobs, tmp_path), diverged=[3, *[-1] * (len(jobs) - 1)])
    own = plan.batches(jobs)[0]
    rows = measured(own, fit, [jobs.index(job) for job in own])
    assert [row["outcome"] for row in rows] == ["diverged", "finished"]
    assert "gap" not in rows[0]


def test_only_what_is_wanted_is_measured_and_the_training_phase_stops(tmp_path):
    jobs = unit()
    assert list(run_unit(jobs, jobs, tmp_path, phase="train")) == []
    assert (tmp_path / "weights.npz").is_file()
    found = [job for part in run_unit(jobs, jobs[:1], tmp_path) for job, _ in part]
    assert found == jobs[:1]
    assert list(run_unit(jobs, jobs, tmp_path, seconds=0)) == []


def test_packed_data_give_the_same_samples(tmp_path, monkeypatch):
    whole = data_set("digits")
    assert main(["pack", "--out", str(tmp_path), "--data", "digits"]) == 0
    monkeypatch.setenv(cases.PACKED, str(tmp_path))
    data_set.cache_clear()
    try:
        packed = data_set("digits")
        assert torch.equal(packed.train[0], whole.train[0])
        assert torch.equal(packed.test[1], whole.test[1])
        with pytest.raises(InputError, match="pack"):
            data_set("mnist")
    finally:
        data_set.cache_clear()


@pytest.mark.slow
def test_the_whole_way_without_pydantic(tmp_path):
    blocked = "import sys; sys.modules['pydantic'] = None; from basinscope.studies.flatness.__main__ import main; "
    base = ["run", "--scale", "smoke", *changes(), "--out", str(tmp_path / "out"), "--scratch", str(tmp_path / "s")]
    for command, status in (([*base, "--phase", "train", "--only", "grid-*"], 0), ([*base, "--only", "*-cnn-*"], 0),
                            (base, 0)):  # fmt: skip
        told = subprocess.run(
            [sys.executable, "-c", blocked + f"sys.exit(main({command!r}))"], capture_output=True, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert told.returncode == status, told.stderr
    jobs = list(plan.jobs(PLAIN.planned("smoke", TINY)))
    assert {file.stem for file in (tmp_path / "out").iterdir()} == {PLAIN.key(job) for job in jobs}
    assert main(["run", *base[1:], "--minutes", "0"]) == 0  # nothing is left

    assert main(["adopt", str(tmp_path / "out"), "--store", str(tmp_path / "store")]) == 0
    given = {name: list(v) if isinstance(v, tuple) else v for name, v in vars(PLAIN.planned("smoke", TINY)).items()}
    results = Results(STUDY, resolved(STUDY, "smoke", given), Store(tmp_path / "store"))
    assert not results.missing
    written = {path.name for path in results.write(tmp_path / "report")}
    assert {"networks.parquet", "kendall.csv", "cells.csv", "predictions.csv", "README.md", "table1.png",
            "best_where.png", "sampling.png", "figure1_test_data.png", "figure4_windows.png",
            "figure5_to_7_relations.png"} <= written  # fmt: skip
    networks = pd.read_parquet(tmp_path / "report" / "networks.parquet")
    assert len(networks) == 12
    assert networks["cv_gap"].notna().all()
    page = (tmp_path / "report" / "README.md").read_text()
    assert "smoke scale" in page
    assert "0.84" in page
    assert "| hole-free |" in page
    assert pd.read_csv(tmp_path / "report" / "criterion.csv")["networks"].tolist() == [12]
    assert "| paper 004, 7 Titan Xp" in page
    assert STUDY.findings(results)[0].rows


def test_a_run_without_time_says_what_is_left(tmp_path, capsys):
    only = ["--scale", "smoke", *changes(), "--out", str(tmp_path), "--scratch", str(tmp_path / "s")]
    assert main(["run", *only, "--minutes", "0"]) == 3
    assert "6 units left" in capsys.readouterr().out
    assert main(["plan", *only]) == 0
    assert "grid: 12 jobs in 3 units" in capsys.readouterr().out
    job = next(plan.jobs(PLAIN.planned("smoke", TINY)))
    Path(tmp_path / f"{PLAIN.key(job)}.json").write_text(json.dumps({}))
    assert main(["plan", *only]) == 0
    assert "grid: 11 jobs in 3 units" in capsys.readouterr().out


def test_the_study_runs_as_any_other(tmp_path):
    few = [*TINY, "architectures=[mlp]", "samples=[60]"]
    given = {name: list(v) if isinstance(v, tuple) else v for name, v in vars(PLAIN.planned("smoke", few)).items()}
    assert run(STUDY, tmp_path / "store", settings=given, progress=False).complete
    results = Results(STUDY, resolved(STUDY, "smoke", given), Store(tmp_path / "store"))
    assert results.table["gap"].notna().sum() == 2
    assert results.table["cv_gap"].notna().sum() == 2


def test_the_study_runs_a_group(tmp_path):
    class Place:
        folder = tmp_path

    jobs = [STUDY.job(job.config()) for job in unit("folds")]
    found = STUDY.run_group(jobs, Place())
    assert len(found) == len(jobs)
    assert found[0].rows[0]["cv_gap"]
    assert STUDY.group_key(jobs[0]) == ("folds", "raw", "constant", "mlp", 64)
    assert STUDY.cost(jobs[0]) > 0
