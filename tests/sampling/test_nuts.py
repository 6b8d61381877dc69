import math
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import basinscope as bs
from basins import Product, quadratic
from basinscope.errors import InputError
from basinscope.exact import finite
from basinscope.sampling.chains import ChainLosses
from basinscope.sampling.diagnostics import effective_size
from basinscope.sampling.local import Settings
from basinscope.sampling.nuts import local_density, nuts
from basinscope.sampling.tempered import tempered_means
from chance import SAMPLED, assert_within

f64 = torch.float64


def assert_mean(values, truth):
    """Assert that the mean of (chains, draws) is as near to the truth as chance allows."""
    assert_within(values.mean(), truth, values.std() / math.sqrt(effective_size(values)), SAMPLED)


def silent(fraction, text):
    pass


def hyperbola(dtype=f64):
    ones = torch.ones(3, 1, dtype=dtype)
    return bs.Landscape(Product(dtype=dtype), "mse", (ones, torch.zeros_like(ones)))


@pytest.mark.slow
def test_moments_of_a_banana(seed):
    # x ~ N(0, 1) and y | x ~ N((x² − 1)/2, 1): E y = 0, E y² = 3/2, E x²y = 1.
    def banana(w):
        return -0.5 * w[0] ** 2 - 0.5 * (w[1] - 0.5 * (w[0] ** 2 - 1)) ** 2

    run = nuts(banana, torch.zeros(2), draws=500, warmup=250, acceptance=0.95, seed=seed)
    x, y = run.draws[..., 0], run.draws[..., 1]
    assert run.draws.shape == (4, 500, 2)
    for values, truth in ((x, 0), (x**2, 1), (y, 0), (y**2, 1.5), (x**2 * y, 1)):
        assert_mean(values, truth)
    assert effective_size(x) > 200
    assert run.warmup == 250
    assert run.gradients > 4 * 750


@pytest.mark.slow
def test_the_hyperbola_beside_its_exact_value(seed):
    run = nuts(
        local_density(ChainLosses(hyperbola()), 4.0, 1.0),
        torch.zeros(2),
        draws=300,
        warmup=200,
        acceptance=0.95,
        seed=seed,
    )
    energy = 4.0 * 0.5 * run.draws.prod(-1) ** 2
    assert_mean(energy, finite.hyperbola(4.0, 1.0))


def test_a_seed_repeats():
    first, second = (nuts(lambda w: -0.5 * w @ w, torch.zeros(3), draws=20, warmup=50, chains=2, seed=7) for _ in "ab")
    assert np.array_equal(first.draws, second.draws)


def test_divergences_are_told(seed):
    # The ends of the hyperbola are narrower than a step that most of it accepts.
    run = nuts(
        lambda w: -5e4 * w.prod() ** 2 - 0.5 * w.square().sum(),
        torch.zeros(2), draws=100, warmup=100, acceptance=0.6, seed=seed,
    )  # fmt: skip
    assert run.divergences.sum() > 0


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(f64, marks=pytest.mark.slow)])
def test_engine_and_nuts_agree_with_the_exact_value_of_a_quadratic(dtype, seed):
    land = quadratic([1.0, 10.0], dtype=dtype)
    exact = land.n / 50.0 * finite.quadratic([1.0, 10.0], 50.0, 1.0)
    for by_nuts, settings in ((True, Settings(draws=200, seed=seed)), (False, Settings(rtol=0.02, seed=seed))):
        found = tempered_means(land, [50.0 / land.n], 1.0, settings, silent, by_nuts=by_nuts)[0]
        assert found.stderr < 0.1 * exact
        assert_within(found.mean, exact, found.stderr, SAMPLED, bias=1e-3 * exact)


@pytest.mark.slow
def test_engine_and_nuts_agree_on_a_reduced_rank_regression(seed):
    net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 3, bias=False)).to(f64)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for layer in net:
            layer.weight.zero_()
            layer.weight[0, 0] = 1.0
        x = torch.randn(80, 2, generator=generator, dtype=f64)
        y = net(x) + torch.randn(80, 3, generator=generator, dtype=f64)
    land = bs.Landscape(net, "mse", (x, y))
    beta = 1 / math.log(80)
    reference = tempered_means(land, [beta], 1.0, Settings(draws=100, seed=seed), silent, by_nuts=True)[0]
    engine = tempered_means(land, [beta], 1.0, Settings(rtol=0.02, seed=seed), silent)[0]
    together = math.hypot(engine.stderr, reference.stderr)
    assert together < 0.15 * reference.mean
    assert_within(engine.mean, reference.mean, together, SAMPLED)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"draws": 2}, "draws must be a whole number of at least 4"),
        ({"chains": 1}, "chains must be a whole number of at least 2"),
        ({"acceptance": 1.0}, "acceptance must lie strictly between 0 and 1, got 1.0"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        nuts(lambda w: -(w**2).sum(), torch.zeros(1), **settings)


def test_a_density_that_is_not_finite_is_refused():
    with pytest.raises(InputError, match="must be finite at the start with its gradient, got -inf"):
        nuts(lambda w: w.sum().log(), torch.zeros(2))


def test_ctrl_c_ends_it_without_a_result():
    """The signals come from the density's own calls, again and again: one that falls before the wait may be lost."""
    calls = 0

    def log_density(w):
        nonlocal calls
        calls += 1
        if calls % 5000 == 0:
            signal.raise_signal(signal.SIGINT)
        return -0.5 * (w**2).sum()

    with pytest.raises(KeyboardInterrupt):
        nuts(log_density, torch.zeros(2), draws=10**6)


@pytest.mark.slow
def test_after_ctrl_c_python_ends_as_it_should():
    """Threads of nutpie that outlived the run had it crash."""
    code = (
        "import signal, torch; from basinscope.sampling.nuts import nuts; calls = []\n"
        "def log_density(w):\n"
        "    calls.append(w)\n"
        "    if len(calls) % 5000 == 0: signal.raise_signal(signal.SIGINT)\n"
        "    return -0.5 * (w**2).sum()\n"
        "try: nuts(log_density, torch.zeros(2), draws=10**6)\n"
        "except KeyboardInterrupt: print('interrupted')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "interrupted\n")
