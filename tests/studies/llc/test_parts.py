"""The pieces of the study against what they stand for."""

import math
from dataclasses import replace

import pandas as pd
import pytest
import torch
from torch import nn

import basinscope as bs
from basinscope.errors import InputError
from basinscope.sampling.calibration import resolution
from basinscope.sampling.chains import ChainLosses
from basinscope.sampling.local import Settings
from basinscope.training import train
from basinscope.zoo.data import characters
from basinscope.zoo.models import ffnn, transformer
from chance import SAMPLED, assert_within
from studies.common.classifiers import standardized
from studies.llc import atlas, beyond, cases, entropy, figures, truth
from studies.llc import resolution as ladder
from studies.llc.beyond import accuracy, pieces, subsets
from studies.llc.jobs import jobs as all_jobs
from studies.llc.settings import LlcSettings


def blob(n=64):
    x = torch.randn(n, 3, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 0] > 0).long()


def first(part, **changes):
    return next(all_jobs(LlcSettings(parts=(part,), **changes)))


# ---------------------------------------------------------------------- Entropy-SGD against SGD


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "entropy-sgd"])
def test_networks_through_training_cut_off_and_gone_on(optimizer, tmp_path, monkeypatch):
    changes = {"data": "digits", "entropy_widths": (6,), "entropy_samples": 100, "entropy_looks": (1, 3),
               "entropy_batch": 20, "entropy_lr": 0.05, "entropy_draws": 16, "entropy_full": 1,
               "entropy_budget": 0.1, "entropy_seeds": 2}  # fmt: skip
    given = all_jobs(LlcSettings(parts=("entropy",), **changes))
    jobs = [job for job in given if job.optimizer == optimizer]
    whole = entropy.run(jobs, tmp_path / "whole")
    assert [[row["epoch"] for row in rows] for rows in whole] == [[1, 3]] * 2
    assert all(rows[1]["train_loss"] < rows[0]["train_loss"] for rows in whole)
    assert ["llc" in row for rows in whole for row in rows] == [False, True, False, False]  # of one seed, at the end

    def interrupted(*given, old=entropy.measured, **options):
        if given[3] == 3:
            raise KeyboardInterrupt
        return old(*given, **options)

    with monkeypatch.context() as patched:
        patched.setattr(entropy, "measured", interrupted)
        with pytest.raises(KeyboardInterrupt):
            entropy.run(jobs, tmp_path / "cut")
    assert (tmp_path / "cut" / "population.safetensors").is_file()
    assert repr(entropy.run(jobs, tmp_path / "cut")) == repr(whole)
    assert [file.name for file in (tmp_path / "cut").iterdir()] == ["looks.json"]


def test_inputs_are_standardized_by_those_of_training():
    data = standardized(bs.zoo.data.load("digits"))
    assert float(data.train[0].mean()) == pytest.approx(0, abs=1e-5)
    assert float(data.train[0].std(correction=0)) == pytest.approx(1, abs=1e-5)
    assert float(data.test[0].mean()) == pytest.approx(0, abs=0.1)


# ---------------------------------------------------------------------- parts of a network


def test_pieces_and_subsets():
    torch.manual_seed(0)
    data = characters(12, 8, test=4)
    land = bs.Landscape(transformer(29, 8, layers=1, width=8, heads=2), "cross_entropy", data.train)
    named = pieces(land)
    assert list(named) == ["block 0, head 0", "block 0, head 1", "block 0, feedforward", "embedding", "read-out"]
    assert sum(part.n for part in subsets(land).values()) == land.n
    assert 0 <= accuracy(land) <= 1
    flat = bs.Landscape(ffnn([3, 4, 2]), "cross_entropy", blob())
    assert list(pieces(flat)) == ["1 Linear", "3 Linear"]
    assert sum(part.dimension for part in pieces(flat).values()) == flat.dimension


def test_parts_that_were_measured_are_not_measured_again(tmp_path, monkeypatch):
    land = bs.Landscape(ffnn([3, 4, 2]), "cross_entropy", blob())
    job = first("beyond", beyond_budget=0.1, beyond_sampler="sgld", beyond_chains=2, beyond_draws=20)
    subject = replace(cases.subject("text", "small", 0), gamma=1.0)
    named, file = pieces(land), tmp_path / "pieces.json"
    whole = beyond.parts(named, job, subject, tmp_path / "whole.json")
    beyond.parts({"1 Linear": named["1 Linear"]}, job, subject, file)  # cut off after the first
    measured = []
    monkeypatch.setattr(beyond, "measured", lambda *given, old=beyond.measured: measured.append(given) or old(*given))
    assert repr(beyond.parts(named, job, subject, file)) == repr(whole)
    assert [given[0] for given in measured] == [named["3 Linear"]]
    assert [row["piece"] for row in whole] == list(named)
    assert all(row["llc_warnings"] for row in whole if row["llc_verdict"] != "ok")


def test_accuracy_of_a_perfect_network():
    net = nn.Linear(3, 2, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[-1.0, 0, 0], [1.0, 0, 0]]))
    inputs, labels = blob()
    assert accuracy(bs.Landscape(net, "cross_entropy", (inputs, labels))) == 1.0
    assert accuracy(bs.Landscape(net, "mse", (inputs, nn.functional.one_hot(labels, 2).float()))) == 1.0
    assert accuracy(bs.Landscape(net, "mse", (inputs, nn.functional.one_hot(1 - labels, 2).float()))) == 0.0


def test_grokking_has_a_minimum():
    """Its loss is that of a regression, on indicators of the sums."""
    case = cases.subject("grokking", "small", 0)
    land = bs.Landscape(case.network, case.loss, case.data.train)
    assert case.data.train[1].sum(1).unique().tolist() == [1.0]
    assert float(land.per_sample().mean()) == pytest.approx(0.5, abs=0.1)  # a network at its start says nothing yet
    run = train(
        case.network, case.data.train, case.optimizer, loss=case.loss, epochs=300, batch_size=case.batch_size,
        progress=False,
    )  # fmt: skip
    learned = bs.Landscape(run.model, case.loss, case.data.train)
    assert accuracy(learned) == 1.0
    assert bs.operator_norm(learned, progress=False).value > 1.0


def test_soft_ranks_are_taken_where_products_are_cheap(monkeypatch):
    land = bs.Landscape(ffnn([3, 4, 2]), "cross_entropy", blob())
    job = first("beyond", beyond_budget=0.1, beyond_sampler="sgld", beyond_chains=2, beyond_draws=20)
    subject = replace(cases.subject("text", "small", 0), gamma=1.0)
    cheap = beyond.measured(land, job, subject)
    decay = cheap["gamma"] / cheap["nbeta"]
    assert cheap["half_soft_rank"] == pytest.approx(bs.soft_rank(land, weight_decay=decay).value / 2, rel=0.1)
    monkeypatch.setattr(beyond, "_CHEAP", land.n * land.dimension - 1)
    dear = beyond.measured(land, job, subject)
    assert math.isnan(dear["half_soft_rank"])
    assert dear["llc"].value == cheap["llc"].value


@pytest.mark.parametrize("rank", [1.0, math.nan])
def test_figures_with_and_without_soft_ranks(rank):
    row = {"case": "text", "view": "weights", "piece": "read-out", "epoch": 1, "llc": 2.0, "llc_stderr": 0.1,
           "llc_verdict": "ok", "half_soft_rank": rank, "train_loss": 1.0, "validation_loss": 1.1,
           "train_accuracy": 0.6, "test_accuracy": 0.5}  # fmt: skip
    labels = {"λ̂"} | ({"½ soft rank"} if rank == 1.0 else set())
    for make in (figures.figure_training, figures.figure_parts):
        legend = make(pd.DataFrame([row])).axes[0].get_legend()
        assert {text.get_text() for text in legend.get_texts()} == labels


# ---------------------------------------------------------------------- atlas


def quadratic():
    """H = diag(2, 0.5), no noise in the residuals."""
    basis = torch.linalg.qr(torch.randn(200, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64))[0]
    x = basis * torch.tensor([2.0, 0.5], dtype=torch.float64).sqrt() * 200**0.5
    net = nn.Linear(2, 1, bias=False, dtype=torch.float64)
    nn.init.ones_(net.weight)
    return bs.Landscape(net, "gaussian", (x, net(x).detach()), sigma=1.0)


@pytest.mark.slow
def test_cells_of_plain_sgld_against_its_exact_stationary_law(seed):
    """On a quadratic with all data in a batch SGLD's variance is 1/(a(1 − εa/4)); each chain has its own (nβ, γ, ε)."""
    land = quadratic()
    job = replace(first("atlas"), batch_size=200, lengths=(1500,), chains=32, seed=seed)
    wanted = [atlas.Cell(1.0, t, eps, 1500, 200) for t, eps in ((50.0, 0.02), (50.0, 0.005), (10.0, 0.1))]
    for cell, row in zip(wanted, atlas.measure(land, wanted, job), strict=True):
        exact = 0.0
        for sigma in (2.0, 0.5):
            a = cell.nbeta * sigma + cell.gamma
            exact += 0.5 * cell.nbeta * sigma / (a * (1 - cell.step_size * a / 4))
        # batches are drawn with replacement, and add a little noise of their own
        assert_within(row["llc"], exact, row["llc_stderr"], SAMPLED, bias=0.03 * exact)
        assert not row["diverged"]


def test_diverging_cells_say_so():
    job = replace(first("atlas"), batch_size=200, lengths=(64,), chains=2)
    (row,) = atlas.measure(quadratic(), [atlas.Cell(1.0, 50.0, 5.0, 64, 200)], job)
    assert row["diverged"]
    assert math.isnan(row["llc"])


def test_predictions_are_the_formulas():
    land = quadratic()
    cell = atlas.Cell(1.0, 50.0, 0.01, 400, 20)
    (row,) = atlas.predictions(land, [cell], seed=0)
    x = land.samples.inputs
    noise = float(((x.T @ x) / land.n * 0).trace())  # residuals vanish, and gradients with them
    assert row["lift"] == pytest.approx(0.01 * 50 / 8 * (2.5 + 50 / 20 * 0.9 * noise), rel=0.03)
    extra = 1.0 + 1 / (0.01 * 300)
    exact = sum(s / (s + extra / 50) for s in (2.0, 0.5)) / sum(s / (s + 1 / 50) for s in (2.0, 0.5))
    assert row["share"] == pytest.approx(exact, rel=0.01)


def test_cells_cover_every_pair():
    centre = atlas.Cell(1.0, 100.0, 0.1, 500, 64)
    job = replace(first("atlas"), batch_size=64, factors=(0.5, 1.0, 2.0), lengths=(100, 500))
    listed = set(atlas.cells(centre, job))
    assert centre in listed
    assert len(listed) == 1 + 3 * 2 + 1 + 3 * 4 + 3 * 2  # the centre, axes, and planes off the axes
    other = set(atlas.cells(centre, replace(job, batch_size=8)))
    assert len(other) == 1 + 3 * 2 + 1
    assert {cell.batch_size for cell in other} == {8}


# ---------------------------------------------------------------------- ladder and truth


def test_a_ladder_finds_the_exact_curve(seed):
    job = replace(first("resolution"), case="quadratic", rungs=(10.0, 1000.0, 100_000.0))
    prepared = ladder.subject(job)
    settings = Settings(sampler="hmc", budget=2.0, rtol=0.03, seed=seed)
    for t, row in zip(job.rungs, ladder.descend(prepared.land, job.rungs, 1.0, settings), strict=True):
        exact = prepared.exact(t, 1.0)
        assert_within(row["llc"], exact, row["llc_stderr"], SAMPLED, bias=2e-3 * exact)


@pytest.mark.slow
def test_truth_has_a_row_for_each_method(monkeypatch):
    monkeypatch.setattr(truth, "minibatch_budget", lambda job: 1.0)
    job = replace(first("truth"), widths=(4, 3, 4), rank=2, budget=1.0, draws=64, step_size=1e-4, minibatch_samples=300)
    ours, again, theirs = truth.run(job)
    assert ours["exact"] == theirs["exact"] == 7.0
    assert ours["multiplicity"] == 2
    assert [row["method"] for row in (ours, again, theirs)] == ["calibrated", "minibatch", "published"]
    assert (ours["sampler"], again["sampler"], theirs["sampler"]) == ("hmc", "minibatch", "sgld")
    assert ours["parameters"] == 24
    assert abs(ours["error"]) < 0.3


def test_the_posterior_of_orthogonal_inputs_is_the_same_for_any_number_of_samples():
    job = replace(first("truth"), widths=(5, 4, 3), rank=2)
    net = cases.linear_network(job.widths, job.rank, seed=0)
    delta = torch.randn(3, 32, generator=torch.Generator().manual_seed(1))
    energies = []
    for samples in (5, 6, 700):
        land = truth.stiff_landscape(job, net, samples)
        excess, gradient = ChainLosses(land).full(delta)
        nbeta = resolution(land).nbeta
        energies.append((nbeta * excess, nbeta * gradient.double()))
    first_layer, second_layer = (layer.weight.detach() for layer in net)
    for move, energy in zip(delta, energies[0][0], strict=True):
        below, above = first_layer + move[:20].view(4, 5), second_layer + move[20:].view(3, 4)
        off = (above @ below - second_layer @ first_layer).square().sum()
        assert float(energy) == pytest.approx(0.5 * job.stiffness * job.gamma * float(off), rel=1e-4)
    for excess, gradient in energies[1:]:
        torch.testing.assert_close(excess, energies[0][0], rtol=1e-5, atol=0)
        torch.testing.assert_close(gradient, energies[0][1], rtol=1e-3, atol=1e-5 * float(gradient.abs().max()))


def test_planted_data_are_fitted_exactly():
    net = cases.linear_network((5, 4, 3), 2, seed=0)
    for variance, floor in ((4.0, 1.5 * math.log(2 * math.pi)), (None, 0.0)):
        land = cases.linear_landscape(net, 100, 0, variance)
        if variance:
            x = land.samples.inputs
            torch.testing.assert_close(x.T @ x / 100, variance * torch.eye(5), rtol=0, atol=1e-4)
        assert float(land.per_sample().mean()) == pytest.approx(floor, abs=1e-6)
    assert float(land.samples.inputs.abs().max()) <= 10
    assert resolution(land).nbeta == pytest.approx(100 / math.log(100))
    with pytest.raises(InputError, match="samples must be at least the number of inputs, 5, got 4"):
        cases.linear_landscape(net, 4, 0, 1.0)
