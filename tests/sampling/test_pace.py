"""Steps and batches of minibatch chains: what they stand for, and how they are chosen."""

import math
from types import SimpleNamespace

import pytest
import torch

import basinscope as bs
from basins import quadratic
from basinscope.measures.llc import llc
from basinscope.measures.planting import plant
from basinscope.sampling.chains import ChainLosses
from basinscope.sampling.equilibrium import Mean
from basinscope.sampling.minibatches import evaluations
from basinscope.sampling.pace import (
    LARGEST_STEP,
    TOLERATED_BIAS,
    Pace,
    Pacing,
    largest_step,
    seen_steps,
    slowest_mode,
)
from basinscope.sampling.target import Target, Whitening
from chance import SAMPLED, assert_within

N = 5000


def target(rest=0.01, gamma=1.0):
    """A posterior whose slowest mode has the whitened curvature γr²."""
    losses = ChainLosses(quadratic([1.0, 1.0], n=N, noise=1.0))
    return Target(losses, 100.0, gamma, Whitening.identity(losses.origin, rest))


def pacing(price=lambda samples: float(samples), budget=1e9, batch_size=500, grows=True):
    return Pacing(target(), lambda samples, chains: chains * price(samples), batch_size, grows, 1, budget)


def test_momentum_makes_a_step_as_long_as_it_is_said_to_be():
    for size in (0.1, LARGEST_STEP, 3.0, 40.0):
        kernel = Pace(1, size, LARGEST_STEP, 1.0).kernel(torch.tensor([1.0, 0.25]))
        assert float(kernel.step_size[0]) <= LARGEST_STEP + 1e-12
        spread = kernel.step_size * (1 + kernel.persistence) / (1 - kernel.persistence)
        assert spread.tolist() == pytest.approx([size, size / 4], rel=1e-6)


def test_without_noise_smaller_steps_have_the_same_friction():
    fractions = torch.tensor([1.0, 0.25])
    quiet = Pace(1, 3.0, LARGEST_STEP, 1.0, noisy=False)
    kernel = quiet.kernel(fractions)
    assert kernel.step_size.tolist() == pytest.approx([LARGEST_STEP, LARGEST_STEP / 4])
    friction = -kernel.persistence.log() / kernel.step_size.sqrt()
    assert float(friction[0]) == pytest.approx(float(friction[1]), rel=1e-5)
    assert float(kernel.persistence[0]) == pytest.approx(quiet.persistence, rel=1e-6)
    # A slow mode relaxes at a rate of a/friction in time, √ε of which is a step.
    assert quiet.relaxation(0.25, 0.01) == pytest.approx(2 * quiet.relaxation(1.0, 0.01))
    noisy = quiet._replace(noisy=True)
    assert noisy.relaxation(0.25, 0.01) == pytest.approx(4 * noisy.relaxation(1.0, 0.01))


def test_fewer_chains_make_more_steps():
    many = pacing(budget=4e5)
    few = many.best()
    many.go_on(30, 4e5)
    assert many.best().price == pytest.approx(30 * few.price)
    assert many.best().size < few.size, "fewer steps can relax fewer modes"


def test_the_largest_step_damps_the_slowest_mode_critically():
    slow = target()
    h, a = math.sqrt(LARGEST_STEP), slowest_mode(slow)
    assert a == pytest.approx(1e-4)
    most = largest_step(slow, LARGEST_STEP, steps=1e9)
    kept = Pace(1, most, LARGEST_STEP, 1.0).persistence
    assert -math.log(kept) / h == pytest.approx(2 * math.sqrt(a), rel=1e-9)
    few = largest_step(slow, LARGEST_STEP, steps=200)
    assert LARGEST_STEP < few < most, "modes that a short run cannot relax ask for no momentum"
    unstable = LARGEST_STEP / 100  # curvature is a hundred times what is known: slow modes may be as much slower
    kept = Pace(1, largest_step(slow, unstable, 1e9), unstable, 1.0).persistence
    assert -math.log(kept) / math.sqrt(unstable) == pytest.approx(2 * math.sqrt(a / 100), rel=1e-6)
    # without slow modes there is nothing that momentum is good for: ε_c is no more than a few ε
    assert largest_step(target(rest=1.0), LARGEST_STEP, 1e9) < 3 * LARGEST_STEP


def test_noise_limits_the_step():
    chosen = pacing(grows=False)
    assert chosen.best().size == pytest.approx(largest_step(target(), LARGEST_STEP, 1e9 / 500))
    chosen.noise(trace=800.0, energy=50.0)
    now = chosen.best()
    assert now.size == pytest.approx(TOLERATED_BIAS * 50 / 100)
    chosen.noise(800.0, energy=60.0, now=now, fraction=0.25)  # of which 100·0.025 are the bias of the present step
    assert chosen.best().size == pytest.approx(TOLERATED_BIAS * 57.5 / 100)
    assert chosen.better(now) is None, "not worth starting again"
    chosen.noise(8000.0, energy=60.0, now=now, fraction=0.25)
    assert chosen.better(now) is None, "chains have shown no bias"
    assert chosen.better(now, foreseen=True) == chosen.best(), "where they cannot, noise tells"
    chosen.noise(16.0, energy=60.0, now=now, fraction=0.25)
    assert chosen.better(now) == chosen.best(), "many times as fast"


def test_all_data_are_taken_where_noise_costs_more_than_they_do():
    quiet, loud = pacing(), pacing()
    quiet.noise(trace=8.0, energy=50.0)
    loud.noise(trace=80_000.0, energy=50.0)
    assert quiet.best().batch == 500
    assert loud.best().batch == N
    assert loud.best().size == pytest.approx(largest_step(target(), LARGEST_STEP, 1e9 / N))
    fixed = pacing(grows=False)
    fixed.noise(80_000.0, 50.0)
    assert fixed.best().batch == 500
    free = pacing(price=lambda samples: 1.0)
    free.noise(80_000.0, 50.0)
    assert free.best().batch == N
    assert pacing(batch_size=N).best().batch == N


def test_larger_batches_are_taken_where_they_cost_little():
    cheap = pacing(price=lambda samples: 1000.0 if samples < N else 1e9)
    cheap.noise(trace=800.0, energy=50.0)
    assert cheap.best().batch == 2000  # the largest of 500, 1,000, 2,000 and all
    assert cheap.best().size == pytest.approx(4 * TOLERATED_BIAS * 50 / 100)


def told(means, errors, size=0.4):
    runs = zip((size, size / 2, size / 4), means, errors, strict=True)
    return [SimpleNamespace(step_size=s, plain=lambda m=m, e=e: Mean(m, e)) for s, m, e in runs]


def test_chains_tell_their_bias():
    low, high = seen_steps(told((14.0, 12.0, 11.0), (0.0, 0.0, 0.0)))
    assert low == high == pytest.approx(TOLERATED_BIAS * 10 / 10)
    low, high = seen_steps(told((14.0, 12.0, 11.0), (0.3, 0.3, 0.4)))
    assert low == pytest.approx(TOLERATED_BIAS * (11 - 4 / 3) / (4 / 0.3))
    assert high == pytest.approx(TOLERATED_BIAS * (11 - 2 / 3) / (2 / 0.3))
    assert seen_steps(told((10.0, 10.0, 10.0), (0.1, 0.1, 0.1)))[1] == math.inf
    assert min(seen_steps(told((100.0, 10.0, 1.0), (0.0, 0.0, 0.0)))) > 0, "whatever the bias, there is a smaller step"
    assert min(seen_steps(told((100.0, 10.0, -1.0), (0.0, 0.0, 0.0)))) > 0


def test_what_chains_tell_goes_before_what_noise_lets_expect():
    chosen = pacing(grows=False)
    chosen.noise(trace=800.0, energy=50.0)
    now = chosen.best()
    chosen.seen((0.3, 0.5), now)
    assert chosen.best().size == pytest.approx(0.3)
    chosen.seen((0.01, 0.02), now)
    assert chosen.better(now).size == pytest.approx(0.02)
    chosen.seen((0.01, 0.06), now)
    assert chosen.better(now) is None


def test_steps_that_lose_chains_are_not_taken_again():
    chosen = pacing()
    first = chosen.best()
    chosen.lost(first, 4)
    assert chosen.best().stable == LARGEST_STEP / 4
    assert chosen.best().size < first.size
    assert chosen.better(chosen.best()) is None
    noisy = pacing(grows=False)
    noisy.noise(trace=800.0, energy=50.0)
    noisy.lost(noisy.best(), 4)
    assert noisy.best().size == pytest.approx(TOLERATED_BIAS * 50 / 100 / 4)


def test_a_bias_that_is_no_straight_line_halves_the_step():
    noisy, quiet = pacing(grows=False), pacing(batch_size=N)
    noisy.noise(trace=800.0, energy=50.0)
    noisy.bent(noisy.best())
    assert noisy.best().size == pytest.approx(TOLERATED_BIAS * 50 / 100 / 2)
    quiet.bent(quiet.best())
    assert quiet.best().stable == LARGEST_STEP / 2
    noisy.noise(trace=8.0, energy=50.0)
    assert noisy.best().size == pytest.approx(TOLERATED_BIAS * 50 / 100 / 2), "whatever noise lets expect"
    noisy.seen((0.0, 0.0), noisy.best())
    assert noisy.best().size > 0


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
