"""The whole way: trained in pieces, measured, taken into a store, reported."""

import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from basinscope.errors import InputError
from basinscope.landscape import Landscape
from basinscope.runs.driver import run
from basinscope.runs.files import Files
from basinscope.runs.results import Results
from basinscope.runs.scratch import Scratch, Unfinished
from basinscope.runs.settings import overrides, resolved
from basinscope.runs.store import Store
from basinscope.training.population import Member, Population
from studies.flatness.arms import ARMS
from studies.flatness.cases import data_set, held_out, network_of, samples_of
from studies.flatness.fitting import cross_validated, fitted
from studies.flatness.jobs import batches, cost, together, training
from studies.flatness.measuring import measured, run_population, temperatures
from studies.flatness.settings import FlatnessSettings
from studies.flatness.study import STUDY

TINY = [
    "steps=60", "samples=[60, 90]", "decays=[1.0, 100.0]", "lrs=[0.01]", "width=3", "channels=[2, 2]", "draws=6",
    "warmup=6", "leapfrogs=2", "folds=2", "test_samples=50",
]  # fmt: skip


def settings_of(*texts, tiny=True):
    return resolved(STUDY, "smoke", overrides([*TINY, *texts] if tiny else texts))


def unit(part="grid", architecture="mlp", extra=()):
    jobs = [job for job in STUDY.jobs(settings_of(*extra)) if (job.part, job.architecture) == (part, architecture)]
    return [job for job in jobs if together(job) == together(jobs[0])]


def of_one_size(jobs, number):
    """Jobs on the same data, and their places among all."""
    places = batches(jobs, range(len(jobs)))[number]
    return [jobs[place] for place in places], places


def test_the_paper_scale_is_what_the_paper_did():
    grid = [job for job in STUDY.jobs(FlatnessSettings()) if job.part == "grid"]
    assert len(grid) == (11 + 7 + 7) * 243
    assert len({job.seed for job in grid}) == 11 * 243  # the same network has the same seed in all arms
    first = grid[0]
    assert first.steps == 200_000
    assert first.weight_decay == pytest.approx(1e-5 / 5000)
    counts = {
        job.architecture: sum(weight.numel() for weight in network_of(job).parameters()) for job in grid
    }  # fmt: skip
    assert counts == {"mlp": 4210, "bigmlp": 9180, "cnn": 4680}
    for name in ARMS:
        arm = [job for job in STUDY.jobs(FlatnessSettings(arms=(name,))) if job.part == "grid"]
        assert len(arm) == 1701
        assert sum(map(training, arm)) < 15 * 60
        assert sum(map(cost, arm)) < 2 * 15 * 60


def test_smoke_has_48_networks():
    jobs = list(STUDY.jobs(settings_of(tiny=False)))
    assert sum(job.part == "grid" for job in jobs) == 48
    assert {job.data for job in jobs} == {"digits"}


def test_training_that_runs_out_of_time_goes_on_to_the_same_weights(tmp_path):
    jobs = unit(extra=["steps=400"])
    whole = fitted(jobs, tmp_path / "whole")
    pieces, resumed = 1, None
    while resumed is None:
        try:
            resumed = fitted(jobs, tmp_path / "pieces", seconds=1e-3)  # a block of steps each time
        except Unfinished:
            assert (tmp_path / "pieces" / "state.npz").is_file()
            pieces += 1
    assert pieces > 2
    assert torch.equal(resumed.weights, whole.weights)
    assert not (tmp_path / "pieces" / "state.npz").exists()
    again = fitted(jobs, tmp_path / "pieces")
    assert torch.equal(again.weights, whole.weights)
    assert again.seconds > 0
    with pytest.raises(InputError, match="other networks"):
        fitted(jobs[:2], tmp_path / "pieces")


def test_a_member_is_trained_on_its_own_samples_as_if_alone(tmp_path):
    jobs = unit()
    fit = fitted(jobs, tmp_path)
    job = jobs[-1]
    (x, y), _ = samples_of(job)
    assert len(y) == job.samples
    alone = Population(
        lambda: network_of(job), [Member(job.seed, job.lr, job.weight_decay, job.batch_size)], (x, y)
    )  # fmt: skip
    alone.train(job.steps, progress=False)
    theirs = torch.cat([part[0].flatten() for part in alone.parameters.values()])
    assert torch.allclose(fit.weights[-1], theirs, atol=1e-5)


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
    chosen, places = of_one_size(jobs, 1)
    rows = measured(chosen, fit, places)
    for job, row in zip(chosen, rows, strict=True):
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
        unseen = held_out(replace(job, samples=samples))
        assert torch.equal(unseen[0], images[samples:])
        assert torch.equal(unseen[1], labels[samples:])
    unseen = held_out(replace(job, samples=len(labels)))  # nothing is left of the file
    assert torch.equal(unseen[0], samples_of(replace(job, samples=len(labels)))[1][0])


def test_a_diverged_network_is_told(tmp_path):
    jobs = unit()
    fit = replace(fitted(jobs, tmp_path), diverged=[3, *[-1] * (len(jobs) - 1)])
    chosen, places = of_one_size(jobs, 0)
    rows = measured(chosen, fit, places)
    assert [row["outcome"] for row in rows] == ["diverged", "finished"]
    assert "gap" not in rows[0]


def test_only_what_is_wanted_is_measured_and_training_that_is_done_is_kept(tmp_path):
    jobs, files = unit(), Files(tmp_path)
    with pytest.raises(Unfinished):
        list(run_population(jobs, Scratch(files, "unit", until=time.time() + 1e-3, wanted=range(len(jobs)))))
    (results,) = run_population(jobs, Scratch(files, "unit", wanted=[1]))
    assert list(results) == [1]
    weights = Scratch(files, "unit").folder / "weights.npz"
    written = weights.stat().st_mtime_ns
    (again,) = run_population(jobs, Scratch(files, "unit", wanted=[1]))
    assert weights.stat().st_mtime_ns == written
    seconds = {name for name in again[1].rows[0] if name.endswith("_seconds")}
    first, second = ({name: row[name] for name in row if name not in seconds} for row in (results[1].rows[0],
                     again[1].rows[0]))  # fmt: skip
    assert first == second


@pytest.mark.slow
def test_the_whole_way(tmp_path):
    """Trained in pieces, as on a machine that is lent for minutes, measured and reported."""
    settings, store = overrides(TINY), tmp_path / "store"
    for minutes in (0.01, 0.02, 0.02):
        run(STUDY, store, settings=settings, minutes=minutes, progress=False)
    assert run(STUDY, store, settings=settings, progress=False).complete
    results = Results(STUDY, settings_of(), Store(store))
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
    assert "| Shoham et al., 7 Titan Xp" in page
    assert STUDY.findings(results)[0].rows


def test_the_study_runs_as_any_other(tmp_path):
    few = ["architectures=[mlp]", "samples=[60]"]
    assert run(STUDY, tmp_path / "store", settings=overrides([*TINY, *few]), progress=False).complete
    results = Results(STUDY, settings_of(*few), Store(tmp_path / "store"))
    assert results.table["gap"].notna().sum() == 2
    assert results.table["cv_gap"].notna().sum() == 2
