"""Hamiltonian chains take paths as long as the slowest mode needs and the budget pays for."""

import math

import pytest
import torch
from torch import nn

import basinscope as bs
from basinscope.sampling import adjusted
from basinscope.sampling.chains import ChainLosses
from basinscope.sampling.target import Target, Whitening

NBETA, GAMMA, STIFF, FLAT = 100.0, 1.0, 4, 12


@pytest.fixture
def target():
    """A quadratic of which nothing is known to the sampler but its stiffest curvature: four directions have 2,500
    times the localiser's precision, twelve have 5 times."""
    net = nn.Linear(STIFF + FLAT, 1, bias=False, dtype=torch.float64)
    spread = torch.tensor([25.0] * STIFF + [0.05] * FLAT, dtype=torch.float64).sqrt()
    x = math.sqrt(STIFF + FLAT) * torch.diag(spread)
    land = bs.Landscape(net, "mse", (x, (x @ net.weight.T).detach()))
    losses = ChainLosses(land)
    return Target(losses, NBETA, GAMMA, Whitening.identity(losses.origin, (NBETA * 25.0 + GAMMA) ** -0.5))


def sampled(target, evaluations, draws=None):
    start = torch.zeros(8, STIFF + FLAT, dtype=torch.float64)
    return adjusted.sample(
        target, start, seed=0, rtol=0.02, evaluations=evaluations, draws=draws, report=lambda share, text: None
    )


def test_paths_grow_with_the_budget(target):
    assert sampled(target, 1000).settings["leaps"] == adjusted.MAX_LEAPS
    run = sampled(target, 40_000)
    assert adjusted.MAX_LEAPS < run.settings["leaps"] <= adjusted.LONGEST
    value, stderr = run.excess(control=False)
    exact = 0.5 * (STIFF * 2500 / 2501 + FLAT * 5 / 6)
    assert NBETA * value == pytest.approx(exact, abs=4 * NBETA * stderr)
    assert NBETA * stderr < 0.1 * exact
    assert run.summary("virial").mean / (STIFF + FLAT) == pytest.approx(1.0, abs=0.1)


def test_asked_for_draws_keep_within_the_budget(target):
    run = sampled(target, 40_000, draws=600)
    assert run.trace.draws == 600
    assert run.settings["leaps"] == 40_000 * 3 // 4 // 600


def test_a_run_spends_little_more_than_it_may(target):
    run = sampled(target, 4000)
    assert run.trace.draws * run.settings["leaps"] <= 1.5 * 4000
