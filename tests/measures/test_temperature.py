import math

import numpy as np
import pytest
import torch
from torch import nn

import basinscope as bs
from basins import quadratic
from basinscope.errors import InputError
from basinscope.exact import finite, normal_mixture
from basinscope.measures.temperature import line_fit, pooled, regression_of, temperature_regression
from basinscope.sampling.tempered import TemperedMean
from chance import SAMPLED, assert_share, assert_within

f64 = torch.float64


def mean(beta, value, stderr=0.1, **changes):
    common = {"ess": 100.0, "rhat": 1.0, "chains": 4, "draws": 100, "warmup": 100, "divergences": 0, "sampler": "hmc"}
    return TemperedMean(beta, value, stderr, **{**common, **changes})


def test_generalized_least_squares_against_the_normal_equations():
    rng = np.random.default_rng(0)
    x, y, root = rng.normal(size=5), rng.normal(size=5), rng.normal(size=(5, 5))
    covariance = root @ root.T
    design = np.stack([np.ones(5), x], 1)
    inverse = np.linalg.inv(covariance)
    normal = np.linalg.inv(design.T @ inverse @ design)
    fit = line_fit(x, y, covariance)
    assert [fit.intercept, fit.slope] == pytest.approx(normal @ design.T @ inverse @ y)
    assert fit.stderr == pytest.approx(normal[1, 1] ** 0.5)


def test_the_slope_of_a_line_has_the_spread_it_says(seed):
    rng = np.random.default_rng(seed)
    x = np.linspace(1, 3, 4)
    covariance = 0.2 * np.eye(4) + 0.1
    noise = rng.multivariate_normal(np.zeros(4), covariance, size=2000)
    fits = [line_fit(x, 2 + 0.5 * x + row, covariance) for row in noise]
    slopes = np.array([fit.slope for fit in fits])
    assert_within(slopes.mean(), 0.5, fits[0].stderr / 2000**0.5)
    assert_within(slopes.std() / fits[0].stderr, 1.0, 1 / 4000**0.5)


def test_pooling_knows_spread_beyond_the_errors(seed):
    rng = np.random.default_rng(seed)
    hits = 0
    for _ in range(300):
        own = rng.uniform(0.05, 0.5, size=8)
        values = 1 + 0.3 * rng.normal(size=8) + own * rng.normal(size=8)
        centre, stderr, _ = pooled(values, own)
        hits += abs(centre - 1) < 2.365 * stderr  # t with 7 degrees of freedom, 95 %
    assert_share(hits, 300, 0.95)


def test_quadratics_have_the_exact_slope(seed):
    curvatures, gamma = [1.0, 5.0, 20.0], 2.0
    land = quadratic(curvatures, n=300, noise=0.3, dtype=f64)
    betas = [0.1, 0.2, 0.4]
    exact = [300 * finite.quadratic(curvatures, 300 * beta, gamma) / (300 * beta) for beta in betas]
    slope = np.polyfit([1 / beta for beta in betas], exact, 1)[0]
    est = temperature_regression(land, betas=betas, gamma=gamma, budget=20, seed=seed, progress=False)
    assert est.stderr < 0.05 * slope
    assert_within(est.value, slope, est.stderr, SAMPLED, bias=0.005 * slope)
    assert est.diagnostics["r_squared"] > 0.99
    assert est.verdict == "doubtful"
    assert "one data set" in est.warnings[0]


class Mixture(nn.Module):
    """½N(b, 1) + ½N(c, 1): its learning coefficient at the truth N(0, 1) is ¾, as with a free weight."""

    def __init__(self):
        super().__init__()
        self.means = nn.Parameter(torch.zeros(2, dtype=f64))

    def forward(self, x):
        return torch.logsumexp(-0.5 * (x[:, None] - self.means) ** 2, 1) - math.log(2 * math.sqrt(2 * math.pi))


@pytest.mark.slow
def test_a_normal_mixture_beside_its_coefficient(seed):
    # On two data sets, whose slopes scatter by O(1/√log n) beyond what chains know: they stay as they are.
    def land(number):
        x = torch.randn(500, generator=torch.Generator().manual_seed(number), dtype=f64)
        return bs.Landscape(Mixture(), lambda output, target: -output, (x, x))

    est = temperature_regression(
        [land(number) for number in range(2)], gamma=0.1, betas=[0.1, 0.3], budget=6, seed=seed, progress=False
    )
    sampled = math.hypot(*est.diagnostics["slope_stderrs"]) / 2
    assert sampled < 0.05
    assert_within(est.value, float(normal_mixture(2)[0]), sampled, SAMPLED, bias=0.05)


@pytest.mark.slow
def test_nuts_gives_the_same_slope_and_the_figure_shows_it(seed):
    land = quadratic([1.0, 5.0], n=100, dtype=f64)
    settings = {"betas": [0.2, 0.6], "gamma": 1.0, "seed": seed, "progress": False}
    reference = temperature_regression([land, land], sampler="nuts", draws=100, **settings)
    engine = temperature_regression([land, land], budget=10, **settings)
    assert reference.diagnostics["sampler"] == "nuts"
    assert_within(reference.value, engine.value, math.hypot(reference.stderr, engine.stderr), SAMPLED)
    left, right = engine.plot().axes
    assert left.get_xlabel() == "temperature 1/β"
    assert right.get_xlabel() == "slope"


def test_verdicts():
    falling = regression_of([[mean(1.0, 5.0), mean(0.5, 4.0)]] * 2, [10, 10], [1.0, 1.0])
    assert falling.verdict == "failed"
    assert "does not rise" in falling.warnings[0]
    stuck = regression_of([[mean(1.0, 1.0, rhat=2.0), mean(0.5, 2.0, 0.01)]] * 2, [10, 10], [1.0, 1.0])
    assert any("split-R̂ = 2.000" in reason for reason in stuck.warnings)
    diverged = regression_of(
        [[mean(1.0, 1.0, divergences=9, sampler="nuts"), mean(0.5, 2.0)]] * 2, [10, 10], [1.0, 1.0]
    )
    assert any("divergences: 18 of" in reason for reason in diverged.warnings)
    lost = regression_of([[mean(1.0, math.nan), mean(0.5, 2.0)]], [10], [1.0])
    assert lost.verdict == "failed"
    with pytest.raises(InputError, match="nothing to plot"):
        lost.plot()


@pytest.mark.parametrize(
    ("lands", "settings", "message"),
    [
        ([], {}, "lands must be a Landscape or several"),
        ("land", {}, "lands must be a Landscape or several"),
        (None, {"betas": [0.1, 0.1]}, "at least two different values"),
        (None, {"betas": [0.1, -1.0]}, r"betas\[1\] must be a positive finite number, got -1.0"),
        (None, {"sampler": "gibbs"}, "unknown sampler 'gibbs'"),
        (None, {"gamma": 0.0}, "gamma must be a positive finite number"),
    ],
)
def test_bad_input_is_refused(lands, settings, message):
    with pytest.raises(InputError, match=message):
        temperature_regression(quadratic([1.0]) if lands is None else lands, **settings)


def test_a_ladder_of_its_own_needs_samples():
    land = quadratic([1.0], n=2)
    with pytest.raises(InputError, match="need at least 3 samples, got n=2"):
        temperature_regression(land)


def test_runs_that_move_or_are_not_in_equilibrium_are_doubted():
    def of(**changes):
        calm = {"virial": 1.0, "virial_stderr": 0.01, "drift": 0.0}
        points = [mean(1.0, 1.0, 0.001, **calm), mean(0.5, 2.0, 0.001, **(calm | changes))]
        return regression_of([points, points], [10, 10], [1.0, 1.0])

    assert of().verdict == "ok", of().warnings
    moving = of(drift=0.3)  # the second mean of a line over 1/β = 1, 2 moves the slope by as much
    assert moving.diagnostics["drift"] == pytest.approx(0.3)
    assert moving.warnings == ("not converged: λ̂ still moves by 30% over the last half — raise budget",)
    away = of(virial=0.8)
    assert [warning.partition(" —")[0] for warning in away.warnings] == [
        "not in equilibrium: the virial ratio is 0.80 instead of 1, at β = 0.5"
    ]
