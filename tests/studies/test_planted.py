import math

import numpy as np
import pandas as pd
import pytest
import torch

from basinscope.exact import normal_mixture, reduced_rank
from basinscope.runs.driver import run
from basinscope.runs.results import Results
from basinscope.runs.settings import resolved
from basinscope.runs.store import Store
from studies.common.planted import PLANTED, averaged_tanh
from studies.learning_curves.study import STUDY as CURVES
from studies.learning_curves.study import summarized
from studies.temperature_regression.study import STUDY as TEMPERATURE
from studies.temperature_regression.study import regression
from studies.wbic_selection.candidates import FAMILIES, NOISE, RIDGE, _units, fitted
from studies.wbic_selection.study import CRITERIA, chosen
from studies.wbic_selection.study import STUDY as SELECTION

f64 = torch.float64


def finished(study, settings, folder):
    assert run(study, folder / "store", settings=settings, progress=False).complete
    results = Results(study, resolved(study, "smoke", settings), Store(folder / "store"))
    return results, results.write(folder / "out")


@pytest.mark.parametrize("name", PLANTED)
def test_the_truth_is_where_no_new_data_lower_the_loss(name):
    planted = PLANTED[name]
    test = planted.test(4000, 1)
    origin = test.flatten(test.parameters)
    point = origin.clone().requires_grad_()
    (slope,) = torch.autograd.grad(test.losses(test.unflatten(point), test.samples).mean(), point)
    # Both signs of the noise, or quantiles: the gradient at the truth vanishes but for rounding, or for the tails.
    assert slope.abs().max() < 0.01
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        moved = origin + 0.3 * torch.randn(len(origin), generator=generator, dtype=f64)
        assert float(test.per_sample(test.unflatten(moved)).mean()) > float(test.per_sample().mean()) - 1e-3
    assert planted.draw(30, 0).n == 30
    assert not torch.equal(planted.draw(30, 0).per_sample(), planted.draw(30, 1).per_sample())


def test_coefficients_are_the_exact_ones():
    assert PLANTED["mixture"].coefficient == normal_mixture(2)
    assert PLANTED["reduced-rank"].coefficient == reduced_rank(2, 2, 4, 1)


def test_averaged_observations_have_the_loss_of_all_of_them():
    # n observations at m places: nL_n is (n/m) times the summed loss of their means, up to a constant.
    rng = np.random.default_rng(0)
    land = averaged_tanh(50 * 20, seed=3)
    x, means = land.samples.inputs, land.samples.target
    noise = rng.normal(size=(50, 20))
    noise += means.numpy() - noise.mean(1, keepdims=True)
    weights = [torch.tensor([0.5, -0.2], dtype=f64), torch.tensor([0.3, 1.0], dtype=f64)]
    differences = []
    for scale in (0.0, 1.0):
        parameters = {name: scale * weight for name, weight in zip(land.parameters, weights, strict=True)}
        output = land.outputs(parameters, x).numpy()
        differences.append((0.5 * (noise - output) ** 2).sum() - 20 * 0.5 * ((means.numpy() - output) ** 2).sum())
    assert differences[0] == pytest.approx(differences[1])


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_derivatives_of_the_units(activation):
    rng = np.random.default_rng(0)
    weights, x = rng.normal(size=7), rng.normal(size=5)
    steps = 1e-6 * np.eye(7)
    numerical = [
        (_units(weights + step, x, activation)[0] - _units(weights - step, x, activation)[0]) / 2e-6 for step in steps
    ]
    assert np.allclose(_units(weights, x, activation)[1], np.array(numerical).T, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_fit_is_a_minimum_at_least_as_good_as_the_truth(family):
    data = FAMILIES[family].draw(200, 2, 4)
    land = fitted(family, 2, data, 0)
    loss = float(land.per_sample().mean())
    floor = 0.5 * math.log(2 * math.pi * NOISE**2) * data[1].shape[1]
    assert loss < floor + 0.5 * data[1].shape[1] * 1.1  # residuals no larger than the noise that was planted
    point = land.flatten(land.parameters).requires_grad_()
    (slope,) = torch.autograd.grad(land.losses(land.unflatten(point), land.samples).sum(), point)
    pull = 0.0 if family == "reduced-rank" else RIDGE
    steepest = 10.0 if family == "relu" else 1e-2  # a minimum may lie at a ReLU's kink
    assert (slope + pull * point).abs().max() < steepest
    narrow = float(fitted(family, 1, data, 0).per_sample().mean())
    wide = float(fitted(family, 3, data, 0).per_sample().mean())
    assert wide <= loss + 5e-3 < narrow


def test_shares_of_choices():
    rows = []
    for seed, best in enumerate((1, 2, 2, 3)):
        for width in (1, 2, 3):
            values = {name: float(abs(width - best)) for name in CRITERIA} | {"bic": float(width)}
            rows.append({"family": "tanh", "samples": 10, "seed": seed, "width": width, "true_width": 2, **values})
    table = chosen(pd.DataFrame(rows)).set_index("criterion")
    assert table.loc["wbic", ["right", "too_small", "too_large"]].tolist() == [0.5, 0.25, 0.25]
    assert table.loc["bic", ["right", "too_small", "mean_width"]].tolist() == [0.0, 1.0, 1.0]
    assert (table["stderr"] > 0).all()


@pytest.mark.slow
def test_a_small_selection_from_end_to_end(tmp_path):
    settings = {"families": ["tanh"], "samples": [60], "widths": [1, 2], "seeds": 1, "budget": 0.3}
    results, written = finished(SELECTION, settings, tmp_path)
    assert [path.name for path in written[-2:]] == ["choices.csv", "choices.png"]
    table = results.table
    assert table["parameters"].tolist() == [4, 7]
    assert np.allclose(table["bic"] - table["loss"], 0.5 * table["parameters"] * math.log(60))
    assert np.allclose(table["aic"] - table["loss"], table["parameters"])
    assert np.allclose(table["wbic"] - table["loss"], table["llc"] * math.log(60))
    assert (abs(table["waic"] - table["loo"]) < 2).all()


def test_small_learning_curves_from_end_to_end(tmp_path):
    settings = {"models": ["mixture"], "samples": [60], "seeds": 3, "budget": 0.5, "draws": 400}
    results, written = finished(CURVES, settings, tmp_path)
    assert [path.name for path in written[-2:]] == ["summary.csv", "curves.png"]
    table = results.table
    assert (table["gibbs_error"] > table["bayes_error"]).all()  # Jensen
    assert (abs(60 * (table["leave_one_out_error"] - table["waic_error"])) < 0.1).all()
    # n(Bg + Cv) = 2λ = 3/2 up to what n = 60 leaves.
    assert (abs(60 * (table["bayes_error"] + table["leave_one_out_error"]) - 1.5) < 0.75).all()
    summary = summarized(table)
    assert summary["sum"].iloc[0] == pytest.approx(
        summary["bayes_error"].iloc[0] + summary["leave_one_out_error"].iloc[0]
    )


def test_averaged_observations_have_the_slope_of_single_ones(tmp_path):
    settings = {
        "models": ["tanh"],
        "tanh_samples": 100_000,
        "temperatures": [0.5, 2.0],
        "data_sets": 1,
        "nuts_data_sets": 0,
        "budget": 2,
    }
    results, _ = finished(TEMPERATURE, settings, tmp_path)
    assert regression(results.table).value == pytest.approx(results.table["slope"].iloc[0], rel=1e-6)
    assert regression(results.table).value == pytest.approx(2 / 3, rel=0.3)
    assert results.table["beta"].tolist() == pytest.approx([2 / math.log(100_000), 0.5 / math.log(100_000)])


@pytest.mark.slow
def test_a_small_temperature_study_from_end_to_end(tmp_path):
    settings = {
        "models": ["reduced-rank"],
        "samples": 200,
        "temperatures": [0.5, 2.0],
        "nuts_data_sets": 0,
        "budget": 3,
    }
    results, written = finished(TEMPERATURE, settings, tmp_path)
    assert [path.name for path in written[-2:]] == ["summary.csv", "slopes.png"]
    estimate = regression(results.table)
    assert estimate.diagnostics["n"] == [200, 200]
    assert estimate.value == pytest.approx(3.0, rel=0.25)
    assert pd.read_csv(written[-2])["exact"].tolist() == [3.0]
