"""Predictions against exact ones, and scores against their definitions."""

import numpy as np
import pytest
import torch

import basinscope as bs
from basins import classifier, quadratic
from basinscope.measures.predictions import scores
from chance import assert_within

QUICK = {"gamma": 1.0, "sampler": "hmc", "rtol": 0.05, "budget": 1.0, "progress": False}


def test_outputs_of_a_line_spread_as_they_must(seed):
    sigma = [1.0, 0.3]
    land = quadratic(sigma, n=20, noise=0.5, dtype=torch.float64)
    x = torch.tensor([[1.0, 2.0], [0.0, -1.0]], dtype=torch.float64)
    found = bs.predict(land, x, nbeta=20.0, chains=24, draws=100, seed=seed, **QUICK)
    assert_within(found.mean, land.outputs(land.parameters, x).numpy(), found.stderr, 23)
    exact = (x.numpy() ** 2 / (20 * np.array(sigma) + 1)).sum(1)
    assert found.variance[:, 0] == pytest.approx(exact, rel=0.3)
    assert found.verdict == "ok", found.warnings
    with pytest.raises(bs.InputError, match="calibration is that of probabilities"):
        found.calibration(torch.zeros(2))


def test_probabilities_are_means_over_the_draws():
    land = classifier()
    post = bs.posterior(land, chains=4, draws=20, seed=1, **QUICK)
    x = land.samples.inputs
    found = bs.predict(post, x, progress=False)
    origin = land.flatten(land.parameters)
    drawn = torch.stack([
        torch.stack([land.outputs(land.unflatten(origin + row), x).softmax(1) for row in delta])
        for delta, _ in post.draws()
    ])  # fmt: skip
    assert found.mean == pytest.approx(drawn.mean((0, 1)).double().numpy(), abs=1e-6)
    assert found.point == pytest.approx(land.outputs(land.parameters, x).softmax(1).double().numpy(), abs=1e-6)
    scored = found.calibration(land.samples.target)
    # −log of a mean is at most the mean of −log.
    assert scored.posterior.log_loss <= float(post.observe(progress=False).mean.mean()) + 1e-9
    assert scored.point.log_loss == pytest.approx(float(land.per_sample().mean()), rel=1e-5)


def test_scores_are_what_they_say():
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(3), size=50_000)
    classes = np.array([rng.choice(3, p=row) for row in probabilities[:5000]])
    honest = scores(probabilities[:5000], classes, 15)
    assert honest.calibration_error < 0.05
    sure = scores(np.eye(3)[rng.integers(3, size=3000)], rng.integers(3, size=3000), 15)
    assert sure.log_loss == np.inf
    assert sure.calibration_error == pytest.approx(2 / 3, abs=0.06)
    assert sure.accuracy == pytest.approx(1 / 3, abs=0.06)


def test_bad_input():
    land = classifier()
    post = bs.posterior(land, chains=4, draws=16, **QUICK)
    x = land.samples.inputs
    found = bs.predict(post, x[:4], progress=False)
    with pytest.raises(bs.InputError, match="a class for each of 4 inputs, got 3"):
        found.calibration(torch.zeros(3))
    with pytest.raises(bs.InputError, match="target must be classes from 0 to"):
        found.calibration(torch.full((4,), 99))
    with pytest.raises(bs.InputError, match="inputs must be a tensor"):
        bs.predict(post, [1.0])
    custom = bs.Landscape(torch.nn.Linear(1, 1), lambda z, y: (z - y).abs().sum(1), (torch.ones(4, 1),) * 2)
    with pytest.raises(bs.InputError, match="predictions are those of a likelihood"):
        bs.predict(custom, torch.ones(2, 1))
