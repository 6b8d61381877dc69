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
from studies.temperature_regression.study import STUDY as TEMPERATURE
from studies.temperature_regression.study import regression

f64 = torch.float64


def finished(study, settings, folder):
    assert run(study, folder / "store", settings=settings, progress=False).complete
    results = Results(study, resolved(study, "smoke", settings), Store(folder / "store"))
    return results, results.write(folder / "out")


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


@pytest.mark.slow
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
