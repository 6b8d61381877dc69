"""Gibbs samplers and integrals of the study beside closed forms and brute force."""

import math

import numpy as np
import pandas as pd
import pytest

from basinscope.exact import finite
from basinscope.runs.driver import run
from basinscope.runs.results import Results
from basinscope.runs.settings import resolved
from basinscope.runs.store import Store
from chance import assert_within
from studies.exact_coefficients import gibbs
from studies.exact_coefficients.cases import GROUPS, units, valley_exact
from studies.exact_coefficients.report import answer, tables
from studies.exact_coefficients.study import STUDY


def test_draws_of_a_layer_are_those_of_its_normal_distribution(seed):
    rng = np.random.default_rng(seed)
    above, below, target = rng.normal(size=(3, 2)), rng.normal(size=(4, 5)), rng.normal(size=(3, 5))
    centre, t, gamma = rng.normal(size=(2, 4)), 2.0, 0.7
    design = np.kron(above, below.T)  # of row-major W
    covariance = np.linalg.inv(t * design.T @ design + gamma * np.eye(8))
    mean = covariance @ (t * design.T @ target.ravel() + gamma * centre.ravel())
    count = 40_000
    many = (np.broadcast_to(each, (count, *each.shape)) for each in (above, below))
    drawn = gibbs.layer(*many, target, t, gamma, centre, rng).reshape(count, 8)
    assert_within(drawn.mean(0), mean, np.sqrt(np.diag(covariance) / count))
    products = (drawn - mean)[:, :, None] * (drawn - mean)[:, None, :]
    assert_within(products.mean(0), covariance, products.std(0) / math.sqrt(count))


def test_one_layer_is_quadratic(seed):
    sweep = gibbs.linear([3, 3], 1, 1.0, 400, np.random.default_rng(seed))
    (rung,) = gibbs.climbed(sweep, [50.0], 30)
    assert_within(rung.mean, 9 * finite.quadratic([1.0], 50.0, 1.0), rung.stderr)


def test_two_layers_at_the_origin(seed):
    # ‖AB‖²/2 with both factors at the origin: an integral over the singular values of one.
    sweep = gibbs.linear([2, 2, 2], 0, 1.0, 200, np.random.default_rng(seed))
    rungs = gibbs.climbed(sweep, [10.0, 1000.0], 120)
    expected = finite.matrix_product(2, 2, 2, 1000.0, 1.0)
    assert_within(rungs[-1].mean, expected, rungs[-1].stderr)


@pytest.mark.parametrize("name", GROUPS)
def test_units_see_their_own_inputs_alone(name):
    network = units(name, 0)
    active = network.inner @ network.x > 0
    assert (active == (network.group[:, None] == network.place)).all()
    _, groups = GROUPS[name]
    for number, (_, rank) in enumerate(groups):
        own = network.group == number
        assert np.linalg.matrix_rank(network.outer[:, own] @ network.inner[own]) == rank
        assert np.linalg.matrix_rank(network.x[:, network.place == number]) == 3


def test_a_relu_network_that_never_changes_sides_is_linear(seed):
    network = units("1 output, 3 units", 0)
    rng = np.random.default_rng(seed)
    (ours,) = gibbs.climbed(gibbs.relu(network, 400.0, 200, rng), [4e6], 60)
    # λ = 3/2, all of it regular: the rank of the Jacobian is 3.
    assert_within(ours.mean, 1.5, ours.stderr, bias=0.02)


@pytest.mark.parametrize(("nbeta", "gamma"), [(50.0, 1.0), (200.0, 20.0)])
def test_the_valley_is_a_sum_over_a_grid(nbeta, gamma):
    x, y = np.meshgrid(np.linspace(-8, 8, 1601), 1 + np.linspace(-8, 8, 1601), indexing="ij")
    energy = 0.5 * nbeta * (x * y**2) ** 2
    weight = np.exp(-energy - 0.5 * gamma * (x**2 + (y - 1) ** 2))
    assert valley_exact(nbeta, gamma) == pytest.approx((weight * energy).sum() / weight.sum(), rel=1e-4)


def test_the_answer_follows_the_numbers():
    ladder = {"exact": 2.0, "multiplicity": 1, "parameters": 8, "stderr": 0.01}
    rows = [{"part": "depth", "layers": layers, "t": t, "llc": 2.0 - 1 / t, **ladder}
            for layers in (1, 2) for t in (10.0, 100.0)]  # fmt: skip
    rows += [{"part": "relu", "network": "a", "t": 100.0, "llc": 1.9, **ladder}]
    rows += [{"part": "gamma", "nbeta": 1e4, "gamma": 100.0, "exact": 0.49, "llc": 0.5, "stderr": 0.1, "verdict": "ok"}]
    text = answer(tables(pd.DataFrame(rows)))
    assert "within 0.5% of λ at every depth from 1 to 2 layers" in text
    assert "additive rule within 5.0%" in text
    assert "for γ from 100 to 100 only" in text


@pytest.mark.slow
def test_a_small_study_from_end_to_end(tmp_path):
    assert run(STUDY, tmp_path / "store", scale="smoke", progress=False).complete
    results = Results(STUDY, resolved(STUDY, "smoke", {}), Store(tmp_path / "store"))
    written = results.write(tmp_path / "out")
    assert [path.name for path in written[-3:]] == ["coefficients.png", "gamma.png", "README.md"]
    assert written[-1].read_text().splitlines()[2].startswith("Sampled λ̂ of linear networks is within ")
