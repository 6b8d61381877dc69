"""Steps and batches of minibatch chains: what they stand for, and how they are chosen."""

import math

import pytest
import torch

import basinscope as bs
from basins import quadratic
from basinscope.measures.llc import llc
from basinscope.measures.planting import plant
from basinscope.sampling.chains import ChainLosses
from basinscope.sampling.minibatches import evaluations
from basinscope.sampling.pace import (
    MAX_LIFT,
    MAX_STABLE_STEP,
    MIN_ENERGY,
    MIN_STEP,
    Noise,
    Pace,
    batches,
    fastest,
    largest_step,
    slowest_mode,
)
from basinscope.sampling.target import Target, Whitening
from chance import SAMPLED, assert_within

N = 5000


def target(rest=0.01, gamma=1.0):
    """A posterior whose slowest mode has the whitened curvature γr²."""
    losses = ChainLosses(quadratic([1.0, 1.0], n=N, noise=1.0))
    return Target(losses, 100.0, gamma, Whitening.identity(losses.origin, rest))


def best(noise=None, price=float, seconds=1e9, batch_size=500, grows=True, stable=MAX_STABLE_STEP):
    sizes = batches(batch_size, N, grows)
    return fastest(target(), noise or Noise(0.0, 0.0), sizes, stable, seconds, price)


def foreseen(trace, energy, batch=500):
    """The noise of batches of that size."""
    return Noise(trace * batch, energy)


def test_momentum_makes_a_step_as_long_as_it_is_said_to_be():
    for size in (0.1, MAX_STABLE_STEP, 3.0, 40.0):
        kernel = Pace(1, size, MAX_STABLE_STEP, 1.0).kernel(torch.tensor([1.0, 0.25]))
        assert float(kernel.step_size[0]) <= MAX_STABLE_STEP + 1e-12
        spread = kernel.step_size * (1 + kernel.persistence) / (1 - kernel.persistence)
        assert spread.tolist() == pytest.approx([size, size / 4], rel=1e-6)


def test_without_noise_smaller_steps_have_the_same_friction():
    fractions = torch.tensor([1.0, 0.25])
    quiet = Pace(1, 3.0, MAX_STABLE_STEP, 1.0, noisy=False)
    kernel = quiet.kernel(fractions)
    assert kernel.step_size.tolist() == pytest.approx([MAX_STABLE_STEP, MAX_STABLE_STEP / 4])
    friction = -kernel.persistence.log() / kernel.step_size.sqrt()
    assert float(friction[0]) == pytest.approx(float(friction[1]), rel=1e-5)
    assert float(kernel.persistence[0]) == pytest.approx(quiet.persistence, rel=1e-6)
    # A slow mode relaxes at a rate of a/friction in time, √ε of which is a step.
    assert quiet.relaxation(0.25, 0.01) == pytest.approx(2 * quiet.relaxation(1.0, 0.01))
    noisy = quiet._replace(noisy=True)
    assert noisy.relaxation(0.25, 0.01) == pytest.approx(4 * noisy.relaxation(1.0, 0.01))


def test_dear_steps_are_shorter():
    assert best(seconds=4e5, price=lambda batch: 30.0 * batch).size < best(seconds=4e5).size, "few relax fewer modes"


def test_the_largest_step_damps_the_slowest_mode_critically():
    slow = target()
    h, a = math.sqrt(MAX_STABLE_STEP), slowest_mode(slow)
    assert a == pytest.approx(1e-4)
    most = largest_step(slow, MAX_STABLE_STEP, steps=1e9)
    kept = Pace(1, most, MAX_STABLE_STEP, 1.0).persistence
    assert -math.log(kept) / h == pytest.approx(2 * math.sqrt(a), rel=1e-9)
    few = largest_step(slow, MAX_STABLE_STEP, steps=200)
    assert MAX_STABLE_STEP < few < most, "modes that a short run cannot relax ask for no momentum"
    unstable = MAX_STABLE_STEP / 100  # curvature is a hundred times what is known: slow modes may be as much slower
    kept = Pace(1, largest_step(slow, unstable, 1e9), unstable, 1.0).persistence
    assert -math.log(kept) / math.sqrt(unstable) == pytest.approx(2 * math.sqrt(a / 100), rel=1e-6)
    # without slow modes there is nothing that momentum is good for: ε_c is no more than a few ε
    assert largest_step(target(rest=1.0), MAX_STABLE_STEP, 1e9) < 3 * MAX_STABLE_STEP


def test_noise_limits_the_step():
    assert best(grows=False).size == pytest.approx(largest_step(target(), MAX_STABLE_STEP, 1e9 / 500))
    # A step ε lifts nβ·excess by ε·trace/8, of which a share is allowed.
    assert best(foreseen(800.0, 50.0), grows=False).size == pytest.approx(MAX_LIFT * 50 / 100)
    assert best(foreseen(800.0, 50.0, batch=250), grows=False).size == pytest.approx(2 * MAX_LIFT * 50 / 100)
    assert best(foreseen(800.0, -3.0), grows=False).size == pytest.approx(MAX_LIFT * MIN_ENERGY / 100)
    assert best(foreseen(1e12, 50.0), grows=False).size == MIN_STEP


def test_all_data_are_taken_where_noise_costs_more_than_they_do():
    assert best(foreseen(8.0, 50.0)).batch == 500
    loud = foreseen(80_000.0, 50.0)
    assert best(loud).batch == N
    assert best(loud).size == pytest.approx(largest_step(target(), MAX_STABLE_STEP, 1e9 / N))
    assert not best(loud).noisy
    assert best(loud, grows=False).batch == 500
    assert best(loud, price=lambda samples: 1.0).batch == N
    assert best(batch_size=N).batch == N


def test_larger_batches_are_taken_where_they_cost_little():
    cheap = best(foreseen(800.0, 50.0), price=lambda samples: 1000.0 if samples < N else 1e9)
    assert cheap.batch == 2000  # the largest of 500, 1,000, 2,000 and all
    assert cheap.size == pytest.approx(4 * MAX_LIFT * 50 / 100)


def test_as_many_samples_as_there_are_leave_no_noise():
    there = target()
    evaluate = evaluations(there, N, torch.Generator().manual_seed(0), None)
    position = torch.randn(2, 2, generator=torch.Generator().manual_seed(1))
    assert torch.equal(evaluate(position).gradient, there.full(position).gradient)
    assert torch.equal(evaluate(position).gradient, evaluate(position).gradient)


@pytest.mark.slow
def test_slow_modes_relax(seed):
    """Chains that go as they choose to are in equilibrium, and agree with the exact value."""
    planted = plant((12, 7, 12), 6, 4000, seed=0)
    found = llc(planted.land, gamma=6.0, sampler="minibatch", budget=10.0, seed=seed, progress=False)
    assert_within(found.diagnostics["virial"], 1.0, found.diagnostics["virial_stderr"], SAMPLED, bias=0.05)
    exact = planted.at(found.diagnostics["nbeta"], 6.0)
    assert found.stderr < 0.1 * exact
    assert_within(found.value, exact, found.stderr, SAMPLED)


def test_chains_that_are_always_lost_give_no_number_and_end():
    class Cliff(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(2))

        def forward(self, x):
            return x @ self.weight / (self.weight.abs().sum() == 0)

    x = torch.randn(600, 2, generator=torch.Generator().manual_seed(0))
    land = bs.Landscape(Cliff(), "gaussian", (x, torch.zeros(600)), sigma=1.0)
    found = llc(land, gamma=1.0, sampler="minibatch", chains=6, batch_size=32, budget=0.1, seed=0, progress=False)
    assert found.verdict == "failed"
    assert math.isnan(found.value)
