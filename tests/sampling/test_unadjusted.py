import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import basinscope as bs
from basins import quadratic
from basinscope.measures.planting import plant
from basinscope.sampling.calibration import Resolution
from basinscope.sampling.chains import ChainLosses
from basinscope.sampling.equilibrium import Mean, Virials
from basinscope.sampling.extrapolation import DISCRETIZATION, LIFT_SPREAD, UNSEEN_BEND, extrapolated
from basinscope.sampling.local import Sampler, Settings
from basinscope.sampling.minibatches import gradient_noise, minibatches, noise_trace
from basinscope.sampling.pace import MAX_STABLE_STEP
from basinscope.sampling.target import Target, Whitening
from chance import SAMPLED, assert_within

SIZES = (0.2, 0.1)
LIFT = 5.0  # of a unit step, as foreseen


def fit(values, errors=(0.1, 0.1), lift=LIFT, virials=(100.0, 100.0), freedom=math.inf, sizes=SIZES,
        control=False):  # fmt: skip
    """`extrapolated` of runs whose means, standard errors and virials are given, with noise that lifts them so."""
    rows = zip(sizes, values, errors, np.broadcast_to(lift, len(sizes)), virials, strict=True)

    def run(size, value, error, lift, virial):
        told = Virials(np.array([virial, 0.0]), np.array([0.1, 1.0]), np.array([100.0, 0.0]))

        def corrected(correction):
            """As a run does: half of what the virial lacks beyond chance is made up for."""
            lacking = (1 - virial / 100) * (1 - correction.chance[0])
            return Mean(value * (1 + lacking / 2), error, freedom)

        return SimpleNamespace(
            step_size=size, corrected=corrected, profits=lambda: control, virials=lambda: told, noise=8 * lift,
            target=SimpleNamespace(nbeta=1.0, drop=0.0),
        )  # fmt: skip

    return extrapolated([run(*each) for each in rows])


def line_on(values, **settings):
    """Of means with the lifted virials that such noise makes."""
    virials = [100 + 2 * LIFT * size for size in settings.get("sizes", SIZES)]
    return fit(values, virials=virials[: len(values)], **settings)


def test_a_lift_as_foreseen_is_taken_out():
    found = line_on([3 + LIFT * size for size in SIZES])
    assert found.value == pytest.approx(3.0, abs=1e-6)
    assert found.slope == pytest.approx(LIFT * 0.1 / 3, abs=1e-6)
    one = fit([3 + LIFT * 0.2], errors=(0.1,), virials=(102.0,), sizes=(0.2,))
    assert one.value == pytest.approx(3.0, abs=1e-6), "of one step size alone"
    assert one.stderr > found.stderr


@pytest.mark.parametrize("left", [0.0, 1.0])
def test_control_variates_take_some_of_the_lift_out(left):
    """All of it on a quadratic, less elsewhere: means that are known well tell, and the error covers both."""
    values, virials = [3 + left * LIFT * size for size in SIZES], [100 + 2 * LIFT * size for size in SIZES]
    precise = fit(values, errors=(1e-3, 1e-3), virials=virials, control=True)
    assert precise.value == pytest.approx(3.0, abs=0.1)
    vague = fit(values, errors=(1.0, 1.0), virials=virials, control=True)
    assert abs(vague.value - 3.0) < LIFT * SIZES[0] / 2
    assert vague.systematic > abs(vague.value - 3.0)


def test_means_that_are_known_well_say_what_the_lift_is():
    precise = line_on([3 + 2 * LIFT * size for size in SIZES], errors=(1e-4, 1e-4))
    assert precise.value == pytest.approx(3.0, abs=0.05)
    # Where they are not, it is foreseen: half of a lift of 1 that is not is left in the mean.
    vague = line_on([3 + 2 * LIFT * size for size in SIZES], errors=(3.0, 3.0))
    assert vague.value == pytest.approx(3 + 0.75 * LIFT * 0.2, abs=0.05)


def test_the_error_is_that_of_pooled_means_where_the_lift_is_small():
    found = fit([3.0, 3.0], lift=0.0)
    discretization = DISCRETIZATION * 3 * 0.75
    assert found.stderr == pytest.approx(math.hypot(0.1 / math.sqrt(2), discretization), rel=0.05)
    assert found.systematic == pytest.approx(discretization, rel=0.3)
    lifted = line_on([3 + LIFT * size for size in SIZES], errors=(1e-3, 1e-3))
    assert lifted.stderr >= UNSEEN_BEND * LIFT * 0.1


def test_values_scatter_by_their_standard_error(seed):
    """Means with Monte Carlo errors about lifts that scatter about the foreseen ones."""
    rng = np.random.default_rng(seed)
    errors = np.array([0.1, 0.12])
    z = []
    for slope in rng.normal(1.0, LIFT_SPREAD, 2000):
        found = line_on(3 + slope * LIFT * np.array(SIZES) + errors * rng.normal(size=2), errors=errors)
        z.append((found.value - 3) / found.stderr)
    # Unit variance, or less: bends that are not there, and a misfit by chance, widen the error.
    assert 0.6 < np.var(z) < 1.0 + 3 * math.sqrt(2 / 2000)
    assert_within(np.mean(z), 0.0, np.std(z) / math.sqrt(2000))


def test_means_off_every_line_widen_the_error():
    on = line_on([3 + LIFT * size for size in SIZES], errors=(0.01, 0.01))
    off = line_on([3 + LIFT * SIZES[0], 6 + LIFT * SIZES[1]], errors=(0.01, 0.01))
    assert off.stderr > 2 * on.stderr


def test_what_no_chain_has_seen_is_missing_at_all_step_sizes():
    values = [3 + LIFT * size for size in SIZES]
    seen, partly = line_on(values), fit(values, virials=[80 + 2 * LIFT * size for size in SIZES])
    assert seen.value == pytest.approx(3.0)
    assert partly.value == pytest.approx((3 + 3 / 0.8) / 2, rel=0.02), "in the middle of what it may be"
    charged = (3 / 0.8 - 3) / math.sqrt(12)
    assert partly.stderr == pytest.approx(math.hypot(seen.stderr, charged), rel=0.05)


def test_degrees_of_freedom_of_a_value():
    # Welch and Satterthwaite: of the chains' own errors; what is charged besides is taken as known.
    few = fit([3.0, 3.0], lift=0.0, freedom=3.0)
    assert 3 < few.freedom < 12
    assert fit([3.0, 3.0], lift=0.0).freedom == math.inf
    assert line_on([3 + LIFT * size for size in SIZES], freedom=3.0).freedom > few.freedom


def test_noise_trace_of_a_regression(seed):
    # Minibatch gradients of a regression with residuals e, at w*: covariance nβ²/m · (1/n) Σ e² x xᵀ, exactly.
    land = quadratic([2.0, 0.5], n=400, noise=1.5, dtype=torch.float64)
    losses = ChainLosses(land)
    target = Target(losses, 10.0, 1.0, Whitening.identity(losses.origin, 0.3))
    generator = torch.Generator().manual_seed(seed)
    zero = torch.zeros(500, 2, dtype=torch.float64)
    x, y = land.samples.inputs, land.samples.target
    residual = x @ land.parameters["weight"].T - y
    exact = 0.09 * 100 / 16 * float((residual * x).square().sum(1).mean())
    plain = noise_trace(minibatches(target, 16, generator, None), zero, repeats=20)
    # 20 × 500 pairs of a sum of two squares, the larger of which has most of it: relative standard error about √(2/10⁴)
    assert_within(plain / exact, 1.0, math.sqrt(2 / 1e4), freedom=50)
    mean = losses.gradient(zero[:1])[0]
    assert noise_trace(minibatches(target, 16, generator, mean), zero) < 1e-20 * exact


def test_minibatches_are_fresh_and_repeat_with_the_seed():
    land = quadratic([1.0, 1.0], n=50, noise=1.0)
    losses = ChainLosses(land)
    target = Target(losses, 1.0, 1.0, Whitening.identity(losses.origin))
    zero = torch.zeros(4, 2)

    def gradients():
        evaluate = minibatches(target, 5, torch.Generator().manual_seed(0), None)
        return evaluate(zero).gradient, evaluate(zero).gradient

    first, second = gradients()
    assert not torch.equal(first, second)
    assert len({tuple(row) for row in first.tolist()}) == 4, "every chain has samples of its own"
    assert torch.equal(gradients()[1], second)


def test_noise_is_told_chain_by_chain(seed):
    """Three places of a model with the gradients xw: their variance is w² times that of x."""

    class Scale(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))

        def forward(self, x):
            return x.sqrt() * self.weight

    x = torch.linspace(0.5, 1.5, 200, dtype=torch.float64)[:, None]
    losses = ChainLosses(bs.Landscape(Scale(), "gaussian", (x, torch.zeros_like(x)), sigma=1.0))
    target = Target(losses, 10.0, 1.0, Whitening.identity(losses.origin))
    places = torch.tensor([[1.0], [2.0], [0.0]], dtype=torch.float64).repeat(2000, 1)
    found = gradient_noise(minibatches(target, 5, torch.Generator().manual_seed(seed), None), places)
    exact = 100 * float(x.var(correction=0)) / 5
    # 2,000 squares of nearly normal numbers each: relative standard error √(2/2000)
    means = found.view(2000, 3).mean(0) / exact
    assert_within(means[:2] / torch.tensor([1.0, 4.0]), 1.0, math.sqrt(2 / 2000), freedom=50)
    assert float(means[2]) == 0.0


class TestWarming:
    """Chains find the posterior of a network with slow modes by their largest step; then half of them take half."""

    def sampled(self, seed, n=4000, **settings):
        planted = plant((12, 7, 12), 6, n, seed=0)
        settings = Settings(sampler="minibatch", seed=seed, **settings)
        texts = []
        at = Resolution(n / math.log(n), 6.0)
        outcome = Sampler(planted.land, settings).run(at, lambda fraction, text: texts.append((fraction, text)))
        return planted, at, outcome, texts

    @pytest.mark.slow
    def test_all_step_sizes_are_in_equilibrium(self, seed):
        planted, at, outcome, texts = self.sampled(seed, budget=12.0)
        assert any("looking for the posterior" in text for _, text in texts)
        shares = [fraction for fraction, _ in texts]
        assert shares == sorted(shares)
        assert 0 < shares[0] < shares[-1] <= 1.05
        for run in outcome.runs:
            assert run.summary("virial").mean / planted.land.dimension > 0.9, "steps may lift it, by noise"
            assert run.noise > 0
        exact = planted.at(at.nbeta, at.gamma)
        assert at.nbeta * outcome.stderr < 0.1 * exact
        assert_within(at.nbeta * outcome.excess, exact, at.nbeta * outcome.stderr, SAMPLED)

    def test_it_ends_with_its_budget(self):
        _, _, _, texts = self.sampled(seed=0, n=1000, chains=6, batch_size=64, budget=0.5)
        first = [fraction for fraction, text in texts if "looking for the posterior" in text]
        assert min(first) < max(first) < 0.05 + (1 + min(first)) / 2, "half of what is left"

    @pytest.mark.slow
    def test_a_seed_repeats(self):
        one, two = (self.sampled(seed=0, n=1000, chains=6, batch_size=64, budget=0.1)[2] for _ in "ab")
        assert one.excess == two.excess
        assert torch.equal(one.main.position, two.main.position)


@pytest.mark.slow
def test_chains_that_are_lost_make_it_start_again_with_smaller_steps(seed):
    """A deep valley curved so strongly that the first step size loses chains at once: a number comes out anyway."""
    planted = plant((5, 6, 6, 5), 2, 300, curvature=200.0, seed=0)
    settings = Settings(sampler="minibatch", chains=6, batch_size=64, budget=2.0, seed=seed)
    outcome = Sampler(planted.land, settings).run(Resolution(50.0, 4.0), lambda fraction, text: None)
    assert outcome.runs[0].step_size < MAX_STABLE_STEP
    assert [int(run.alive.sum()) for run in outcome.runs] == [3, 3]
    assert_within(50.0 * outcome.excess, float(planted.coefficient), 50.0 * outcome.stderr, SAMPLED)
