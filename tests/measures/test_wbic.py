import json
import math

import pytest
import torch
from torch import nn

import basinscope as bs
from basins import quadratic
from chance import SAMPLED, assert_within

CHEAP = {"rtol": 0.05, "budget": 5.0, "progress": False}


def test_it_is_the_loss_plus_log_n_times_lambda(seed):
    sigma, n, gamma = [1.0, 0.3, 0.01], 300, 1.0
    land = quadratic(sigma, n=n, noise=0.5)
    found = bs.wbic(land, gamma=gamma, seed=seed, **CHEAP)
    coefficient = bs.llc(land, gamma=gamma, seed=seed, **CHEAP)
    total = float(land.per_sample().sum())
    assert found.name == "wbic"
    assert found.value == pytest.approx(total + math.log(n) * coefficient.value, rel=1e-9)
    assert found.stderr == pytest.approx(math.log(n) * coefficient.stderr, rel=1e-9)
    assert found.verdict == coefficient.verdict
    assert found.diagnostics["llc"] == coefficient.value
    assert found.diagnostics["llc_stderr"] == coefficient.stderr
    # And right: E[n L_n] over the exact Gaussian posterior.
    t = n / math.log(n)
    exact = total + math.log(n) * sum(0.5 * t * s / (t * s + gamma) for s in sigma)
    assert found.stderr < 0.05 * (exact - total)
    assert_within(found.value, exact, found.stderr, SAMPLED, bias=1e-3 * (exact - total))
    json.dumps(found.to_dict(), allow_nan=False)


def test_conjugate_regression_by_quadrature(seed):
    # Six points, y = w₀ + w₁x with unit noise and prior N(0, 4): the posterior mean of n L_n at β = 1/log 6 is known to
    # ten digits. The localiser stands at w* instead of zero, so w* = 0 makes the two posteriors one.
    x = torch.arange(-2.0, 4.0)[:, None]
    y = torch.tensor([-1.1, -0.3, 0.2, 1.4, 1.9, 3.2])[:, None]
    net = nn.Linear(1, 1)
    for parameter in net.parameters():
        nn.init.zeros_(parameter)
    found = bs.wbic(bs.Landscape(net, "gaussian", (x, y), sigma=1.0), gamma=0.25, seed=seed, draws=300, **CHEAP)
    assert found.stderr < 0.15
    assert_within(found.value, 7.3235156306, found.stderr, SAMPLED, bias=0.01)
    assert found.verdict == "ok", "w* = 0 is far from the minimum, λ̂ is negative, and the mean of n L_n is right"


def test_failure_is_passed_on():
    found = bs.wbic(quadratic([1.0]), gamma=1.0, sampler="sgld", step_size=1e3, draws=64, progress=False)
    assert found.verdict == "failed"
    assert math.isnan(found.value)


def test_settings_reach_the_sampler():
    land = quadratic([1.0, 0.5])
    settings = {"sampler": "sgld", "chains": 3, "draws": 20, "step_size": 1e-3, "batch_size": 7, "burn_in": 0.25}
    found = bs.wbic(land, gamma=2.0, seed=3, progress=False, **settings)
    for name in ("sampler", "chains", "draws", "batch_size"):
        assert found.diagnostics[name] == settings[name]
    assert found.diagnostics["step_sizes"] == [1e-3]
    assert found.diagnostics["burn_in"] == 5
    assert found.diagnostics["gamma"] == 2.0
    assert found.diagnostics["nbeta"] == pytest.approx(200 / math.log(200))
    with pytest.raises(bs.InputError, match="step_size must be a positive finite number, got 0"):
        bs.wbic(land, step_size=0)


def test_it_needs_log_n():
    with pytest.raises(bs.InputError, match="at least 3 samples, got n=2"):
        bs.wbic(quadratic([1.0], n=2))
