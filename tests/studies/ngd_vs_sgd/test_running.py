from dataclasses import replace

import pytest
import torch

from basinscope.runs.driver import run
from basinscope.runs.results import Results
from basinscope.runs.settings import overrides, resolved
from basinscope.runs.store import Store
from basinscope.runs.units import planned, units
from basinscope.training import Member, Population
from studies.ngd_vs_sgd.cases import builder, data_of, seeded_network, stacked
from studies.ngd_vs_sgd.populations import (
    BRANCHED,
    Moment,
    Trained,
    matching,
    run_branches,
    run_population,
)
from studies.ngd_vs_sgd.report import FIGURES
from studies.ngd_vs_sgd.settings import PARTS, NgdVsSgdSettings
from studies.ngd_vs_sgd.study import STUDY

TINY = [
    "data=[digits]", "networks=['1x3']", "network=1x3", "variant_network=1x3", "samples=60", "variant_samples=60",
    "batch_size=30", "seeds=2", "few_seeds=2", "full_seeds=1", "budget=0.02", "epochs=2", "draws=16", "measured=[1]",
    "alphas=[0.1]", "epsilons=[1.0e-10, 1.0e-3, 1.0]", "sweep_epochs=1",
    "trunks=['digits 0.1 2 4 sgd@0.1 online@0.1 online@0.2', 'digits 0.2 1 3 sgd@0.2']", "branch_every=3",
    "curve_epochs=2", "overfit_samples=60", "overfit_epochs=4", "overfit_every=1", "lr=0.1",
]  # fmt: skip


def settings_of(*texts):
    return resolved(STUDY, "smoke", overrides([*TINY, *texts]))


def all_jobs(*texts):
    return list(STUDY.jobs(settings_of(*texts)))


@pytest.mark.slow
def test_all_parts_run_and_become_tables_figures_and_a_page(tmp_path):
    assert run(STUDY, tmp_path / "store", settings=overrides(TINY), progress=False).complete
    results = Results(STUDY, settings_of(), Store(tmp_path / "store"))
    written = {path.name for path in results.write(tmp_path / "report")}
    assert {f"{part}.csv" for part in PARTS} | {f"{name}.png" for name in FIGURES} | {"claims.csv"} <= written
    page = (tmp_path / "report" / "README.md").read_text()
    assert "smoke scale" in page
    assert all(claim in page for claim in ("at every size", "less smoothing", "after the split", "overfits"))
    assert STUDY.findings(results)


def test_the_study_runs_singly_and_in_populations(tmp_path):
    few = ["parts=[variants, sizes]", "few_seeds=1"]
    assert run(STUDY, tmp_path / "store", settings=overrides([*TINY, *few]), progress=False).complete
    results = Results(STUDY, settings_of(*few), Store(tmp_path / "store"))
    assert set(results.table["moment"]) == {"training", "end", "matched"}
    assert results.table["llc_paper"].notna().any()


def test_branches_start_where_their_trunks_ended_and_end_where_they_should():
    jobs = all_jobs("parts=[branches]")
    assert [(job.lr, job.seed) for job in jobs] == [(0.1, 0), (0.1, 1), (0.2, 0), (0.2, 1)]
    for job, result in zip(jobs, run_branches(jobs), strict=True):
        rows = result.rows
        assert list(dict.fromkeys(row["run"] for row in rows)) == ["trunk", *job.rates]
        assert not set(job.config()) & {column for row in rows for column in row}
        for name in ("trunk", *job.rates):
            epochs = [row["epoch"] for row in rows if row["run"] == name]
            first, last = (0, job.trunk_epochs) if name == "trunk" else (job.trunk_epochs + 1, job.epochs)
            assert epochs == list(range(first, last + 1))
            measured = [row["epoch"] for row in rows if row["run"] == name and "llc_paper" in row]
            assert measured == [epoch for epoch in epochs if (epoch % 3 == 0 and epoch) or epoch > last - 2]
        end = max(row["step"] for row in rows if row["run"] == "trunk")
        assert {row["origin"] for row in rows if row["run"] != "trunk"} == {end}


def test_a_branch_is_the_networks_own_training_from_the_end_of_its_trunk():
    """By hand, on the samples that the population draws: SGD with Nesterov's momentum, velocity zero at the split."""
    jobs = all_jobs("parts=[branches]", "few_seeds=1")[1:]
    (result,) = run_branches(jobs)
    rows = result.rows
    (job,) = jobs
    data = data_of(job)
    net = seeded_network(job)
    for seed, epochs in ((job.seed, 1), (job.seed + BRANCHED, 2)):
        drawn = Population([net], [Member(seed=seed, batch_size=30)], data.train, optimizer="sgd")
        sgd = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9, nesterov=True)
        for step in range(2 * epochs):
            few = drawn.batch(0, step)
            sgd.zero_grad()
            torch.nn.functional.cross_entropy(net(data.train[0][few]), data.train[1][few]).backward()
            before = [parameter.detach().clone() for parameter in net.parameters()]
            sgd.step()
    lengths = [float((p.detach() - old).norm()) for p, old in zip(net.parameters(), before, strict=True)]
    loss = torch.nn.functional.cross_entropy(net(data.train[0]), data.train[1])
    assert rows[-1]["train_loss"] == pytest.approx(loss.item(), rel=1e-4)
    assert rows[-1]["update_norm"] == pytest.approx(sum(each**2 for each in lengths) ** 0.5, rel=1e-3)
    assert rows[-1]["update_norm_paper"] == pytest.approx(sum(lengths), rel=1e-3)
    met = (net(data.test[0]).argmax(1) == data.test[1]).float().mean()
    assert rows[-1]["accuracy"] == pytest.approx(float(met), abs=1e-6)


def test_networks_that_are_judged_are_measured_in_full_at_the_end_and_at_equal_loss():
    jobs = all_jobs("parts=[judged]")
    assert {job.optimizer for job in jobs} == {"sgd", "online"}
    for result in run_population(jobs):
        rows = {row["moment"]: row for row in result.rows}
        assert "llc" not in rows["training"]
        judged = {"llc_basin", "llc_coarse_basin", "half_soft_rank", "llc_paper_half_step", "llc_paper_long"}
        assert all(judged <= rows[moment].keys() for moment in ("end", "matched") if moment in rows)


def test_a_population_of_lenets_is_measured_at_its_end_and_at_equal_loss():
    few = [
        "parts=[sizes]",
        "kinds=[sgd, online]",
        "networks=[lenet5]",
        "samples=12",
        "batch_size=6",
        "epochs=1",
        "seeds=1",
    ]
    jobs = all_jobs(*few)
    rows = [result.rows for result in run_population(jobs)]
    moments = [row["moment"] for each in rows for row in each]
    assert sorted(moments) == ["end", "end", "matched", "training", "training"]
    assert all(row["hessian_trace"] > 0 for each in rows for row in each if row["moment"] != "training")


def test_matching_takes_the_moment_nearest_to_where_the_slower_twin_ended():
    def group(*losses):
        moments = [Moment(step, {}, torch.tensor(each), {}) for step, each in enumerate(losses)]
        return Trained([], moments, frozenset(), 1)

    fast = group([2.0, 2.0, 2.0], [1.0, 1.2, 1.0], [0.5, 0.5, 0.5])
    slow = group([2.0, 2.0, 2.0], [0.9, 0.4, torch.nan])
    assert {m: moment.step for m, moment in matching(fast, slow).items()} == {0: 1}
    assert {m: moment.step for m, moment in matching(slow, fast).items()} == {1: 1}


def test_the_paper_scale_is_what_the_authors_did():
    settings = NgdVsSgdSettings()
    assert (settings.size_alpha, settings.alpha, settings.epsilon) == (1e-2, 1e-1, 1e-10)
    assert (settings.lr, settings.batch_size, settings.momentum) == (1e-2, 128, 0.9)
    assert (settings.epochs, settings.seeds, settings.draws, settings.gamma) == (20, 30, 1000, 100.0)
    jobs, plans = list(STUDY.jobs(settings)), planned(STUDY, settings)
    assert max(unit.cost for unit in units(STUDY, plans, lambda key: False)) < 300
    assert {job.network for job in jobs if job.part == "sizes"} == {"1x64", "1x128", "1x256", "2x64", "2x128", "2x256"}
    assert replace(jobs[5], seed=6) in jobs
    swept = {(job.alpha, job.epsilon) for job in jobs if job.part == "smoothing" and job.optimizer == "online"}
    assert len(swept) == 18  # eleven α, eight ε, one of them in both
    assert {job.trunk_epochs for job in jobs if job.part == "branches"} == {15, 20, 30}


def test_images_are_normalized():
    (job,) = all_jobs("parts=[sizes]", "samples=0", "seeds=1", "kinds=[sgd]")
    images = data_of(job).train[0]
    assert abs(float(images.mean())) < 1e-3
    assert float(images.std()) == pytest.approx(1, abs=1e-3)


def test_the_optimizers_have_the_papers_settings_and_the_jobs_own():
    (job,) = all_jobs("parts=[sizes]", "seeds=1", "kinds=[online]")
    net = seeded_network(job)
    for kind in ("sgd", "online", "accurate", "kfac", "exact"):
        group = builder(job, kind, 0.03)(net).param_groups[0]
        assert (group["lr"], group["momentum"], group["nesterov"]) == (0.03, 0.9, True)
        assert kind == "sgd" or (group["alpha"], group["epsilon"]) == (job.alpha, job.epsilon)
        if kind in ("online", "accurate"):
            both = stacked([job, job], kind)
            assert group["single"] == both.single == (kind == "online")
            assert (both.alpha, both.nesterov, both.momentum) == ((job.alpha,) * 2, True, 0.9)
