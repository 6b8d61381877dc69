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
from basinscope.sampling.extrapolation import UNSEEN_BEND, extrapolated
from basinscope.sampling.local import Sampler, Settings
from basinscope.sampling.minibatches import gradient_noise, minibatches, noise_trace
from basinscope.sampling.pace import LARGEST_STEP
from basinscope.sampling.target import Target, Whitening
from chance import SAMPLED, assert_within

SIZES = (0.4, 0.2, 0.1)


def fit(values, errors=(0.1, 0.1, 0.1), noises=(0.0, 0.0, 0.0), virials=(100.0, 100.0, 100.0), freedom=math.inf):
    """`extrapolated` of runs whose means, standard errors and virials are given."""
    found = zip(SIZES, values, errors, noises, virials, strict=True)

    def run(size, value, error, noise, virial):
        told = Virials(np.array([virial, 0.0]), np.array([0.1, 1.0]), np.array([100.0, 0.0]))

        def corrected(correction):
            """As a run does: half of what the virial lacks beyond chance is made up for."""
            lacking = (1 - virial / 100) * (1 - correction.chance[0])
            return Mean(value * (1 + lacking / 2), error, freedom)

        return SimpleNamespace(
            step_size=size, corrected=corrected, profits=lambda: False, virials=lambda: told, noise=noise,
            target=SimpleNamespace(nbeta=1.0, drop=0.0),
        )  # fmt: skip

    return extrapolated([run(*each) for each in found])


def line(*args):
    """Value, standard error and slope of a `fit`."""
    found = fit(*args)
    return found.value, found.stderr, found.slope


@pytest.mark.parametrize("errors", [(0.1, 0.1, 0.1), (0.01, 0.2, 0.5), (0.0, 0.0, 0.0)])
def test_straight_lines_are_extrapolated_exactly(errors):
    value, _, slope = line([3 + 5 * size for size in SIZES], errors)
    assert value == pytest.approx(3.0, abs=1e-6)
    assert slope == pytest.approx(5 * 0.1 / 3, abs=1e-6)


def test_standard_error_of_a_straight_line_is_that_of_least_squares_and_a_part_of_the_way():
    errors = np.array([0.1, 0.2, 0.3])
    _, stderr, _ = line([3 + 5 * size for size in SIZES], errors)
    design = np.stack([np.ones(3), SIZES], 1)
    covariance = np.linalg.inv(design.T @ np.diag(errors**-2.0) @ design)
    assert stderr == pytest.approx(math.hypot(math.sqrt(covariance[0, 0]), UNSEEN_BEND * 5 * 0.1))


def test_intercepts_scatter_by_their_standard_error(seed):
    rng = np.random.default_rng(seed)
    errors = np.array([0.1, 0.12, 0.15])
    found = [line(3 + errors * rng.normal(size=3), errors) for _ in range(2000)]
    z = np.array([(value - 3) / stderr for value, stderr, _ in found])
    # Unit variance, or a little less: a bend seen by chance widens the error.
    assert_within(z.var(), 0.9, math.sqrt(2 / 2000), bias=0.1)
    assert_within(z.mean(), 0.0, z.std() / math.sqrt(2000))


def test_a_bend_shows_in_the_standard_error():
    straight = line([3 + 5 * size for size in SIZES])
    bends = [line([3 + 5 * size + bend * size**2 for size in SIZES]) for bend in (10, 30, 100)]
    assert straight[1] < bends[0][1] < bends[1][1] < bends[2][1]
    for value, stderr, _ in bends:
        assert abs(value - 3) < 4 * stderr
    # When Monte Carlo error hides nothing, the bend is the error.
    value, stderr, _ = line([3 + 5 * size + 30 * size**2 for size in SIZES], (1e-6,) * 3)
    assert abs(value - 3) < 4 * stderr


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_a_largest_step_that_is_off_the_line_is_left_out(noise):
    values = [9.0, 3 + 5 * SIZES[1], 3 + 5 * SIZES[2]]
    value, stderr, slope = line(values, (noise,) * 3)
    assert value == pytest.approx(3.0, abs=1e-6)
    assert slope == pytest.approx(5 * 0.1 / 3, abs=1e-6)
    straight, *_ = np.linalg.lstsq(np.stack([np.ones(3), SIZES], 1), np.array(values), rcond=None)
    assert stderr > 0.6 * (3 - straight[0]), "a parabola through the three would be that far from it"


def test_a_parabola_is_off_by_no_more_than_its_bend_says():
    value, stderr, _ = line([3 + 5 * size + 30 * size**2 for size in SIZES], (1e-6,) * 3)
    assert value == pytest.approx(3 - 30 * SIZES[1] * SIZES[2], abs=1e-4)
    assert stderr == pytest.approx(math.hypot(3 - value, UNSEEN_BEND * (3 + 0.5 + 0.3 - value)), rel=1e-3)


def test_what_no_chain_has_seen_is_missing_at_all_step_sizes():
    values = [3 + 5 * size for size in SIZES]
    seen, partly = fit(values), fit(values, virials=(80.0, 80.0, 80.0))
    assert seen.value == pytest.approx(3.0)
    assert partly.value == pytest.approx(3.3, rel=1e-3), "between what was seen and that over the virial ratio"
    charged = (3.3 / 0.8 - 3.3) / math.sqrt(12)
    assert partly.stderr == pytest.approx(math.hypot(seen.stderr, charged), rel=0.05)
    # Bias of the steps lifts the virials as it lifts the means; at step size zero they are right.
    lifted = fit(values, virials=[100 + 50 * size for size in SIZES])
    assert lifted[:2] == pytest.approx(seen[:2], rel=1e-6)


def test_degrees_of_freedom_of_an_intercept():
    # Welch and Satterthwaite: of one dominating error, its own; of several, more.
    few = fit([3.0, 3.0, 3.0], freedom=3.0)
    assert 3 < few.freedom < 9
    assert fit([3.0, 3.0, 3.0]).freedom == math.inf
    steep = fit([3 + 5 * size for size in SIZES], freedom=3.0)
    assert steep.freedom > few.freedom, "the way to zero is not known from chains"


def test_bias_is_extrapolated_in_the_noise_that_makes_it():
    # Noise that goes with the loss: E = 3 + 2εE, so that E = 3/(1 − 2ε), far from a straight line in ε.
    values = [3 / (1 - 2 * size) for size in SIZES]
    found = fit(values, (0.01,) * 3, noises=[40 * value for value in values])
    assert found.value == pytest.approx(3.0, abs=1e-6)
    assert found.slope == pytest.approx(values[-1] / 3 - 1, abs=1e-6)
    assert fit(values, (0.01,) * 3).value < 2.9, "in ε alone it is too low"
    same = fit([3 + 5 * size for size in SIZES], noises=(7.0,) * 3)
    assert same.value == pytest.approx(3.0, abs=1e-6), "noise that is the same everywhere changes nothing"


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
    """A third of the chains find the posterior of a network with slow modes, and the others start from there."""

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
        assert any("first steps" in text for _, text in texts)
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
        _, _, _, texts = self.sampled(seed=0, n=1000, chains=6, batch_size=64, budget=0.1)
        first = [fraction for fraction, text in texts if "first steps" in text]
        assert max(first) < 0.75

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
    assert outcome.runs[0].step_size < LARGEST_STEP
    assert [int(run.alive.sum()) for run in outcome.runs] == [2, 2, 2]
    assert_within(50.0 * outcome.excess, float(planted.coefficient), 50.0 * outcome.stderr, SAMPLED)
