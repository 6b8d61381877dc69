"""The selftest: its planted networks against dense linear algebra, its estimates, its verdicts on given errors."""

import math
from fractions import Fraction
from itertools import pairwise

import pytest
import torch
from torch import nn

import basinscope as bs
from basinscope.measures.planting import plant
from basinscope.measures.selftest import relative_error, widths_of
from basinscope.sampling.calibration import Resolution
from chance import SAMPLED, assert_within

f64 = torch.float64


def mlp(*widths, n=400, dtype=torch.float32):
    torch.manual_seed(0)
    layers = []
    for below, above in pairwise(widths):
        layers += [nn.Linear(below, above, dtype=dtype), nn.Tanh()]
    x = torch.randn(n, widths[0], generator=torch.Generator().manual_seed(0), dtype=dtype)
    return bs.Landscape(nn.Sequential(*layers[:-1]), "cross_entropy", (x, (x[:, 0] > 0).long()))


def hessian_of(land):
    def loss(vector):
        return land.losses(land.unflatten(vector), land.samples).mean()

    return torch.autograd.functional.hessian(loss, land.flatten(land.parameters))


# ---------------------------------------------------------------------- the planted network


@pytest.mark.parametrize(("widths", "rank"), [((4, 3, 4), 2), ((3, 4, 2, 3), 1), ((3, 2), 1), ((2, 1, 3), 0)])
def test_the_spectrum_at_the_planted_point(widths, rank):
    """r² eigenvalues Lσ, r(inputs + outputs − 2r) of σ, the others 0; all σ for one layer."""
    planted = plant(widths, rank, 60, curvature=0.7, seed=1, dtype=f64)
    layers, inputs, outputs = len(widths) - 1, widths[0], widths[-1]
    steep, flat = (rank**2, rank * (inputs + outputs - 2 * rank)) if layers > 1 else (0, inputs * outputs)
    exact = [0.7 * layers] * steep + [0.7] * flat
    exact += [0.0] * (planted.land.dimension - len(exact))
    values = torch.linalg.eigvalsh(hessian_of(planted.land)).flip(0)
    assert torch.allclose(values, torch.tensor(exact, dtype=f64), atol=1e-10)
    assert planted.coefficient == bs.exact.deep_linear(list(widths), rank)[0]


def test_the_planted_point_is_a_minimum_of_the_sample():
    for dtype, tiny in ((torch.float32, 1e-6), (f64, 1e-14)):
        land = plant((4, 3, 4), 2, 60, dtype=dtype).land
        point = land.flatten(land.parameters).requires_grad_()
        (slope,) = torch.autograd.grad(land.losses(land.unflatten(point), land.samples).mean(), point)
        assert float(slope.abs().max()) < tiny
        assert land.dtype == dtype


def test_its_value_at_finite_resolution():
    origin = plant((4, 1, 3), 0, 60, curvature=2.0)
    assert origin.at(50.0, 3.0) == pytest.approx(bs.exact.finite.matrix_product(4, 1, 3, 100.0, 3.0))
    full = plant((3, 2, 3), 2, 60, curvature=2.0)  # nothing is left over: all directions are regular or free
    assert full.at(50.0, 3.0) == pytest.approx(0.5 * (4 * 200 / 203 + 4 * 100 / 103))
    assert full.at(1e9, 3.0) == pytest.approx(float(full.coefficient))
    single = plant((3, 2), 1, 60)
    assert (single.coefficient, single.at(9.0, 1.0)) == (Fraction(3), pytest.approx(2.7))


@pytest.mark.parametrize(
    ("widths", "rank", "nbeta", "gamma", "gibbs"),
    [((5, 4, 4), 3, 1000.0, 20.0, 9.164), ((6, 5, 4, 5), 3, 1000.0, 1.0, 12.751), ((8, 8, 8), 7, 100.0, 1.0, 31.694)],
)
def test_its_value_beside_exact_gibbs_sampling(widths, rank, nbeta, gamma, gibbs):
    """Means of long block-Gibbs runs (0.1 %), which know how the localiser ties the parts together."""
    assert plant(widths, rank, 100).at(nbeta, gamma) == pytest.approx(gibbs, rel=0.007)


def test_planting_refuses():
    with pytest.raises(bs.InputError, match="n must exceed"):
        plant((4, 2), 1, 4)
    with pytest.raises(bs.InputError, match="rank"):
        plant((4, 2, 4), 3, 60)


# ---------------------------------------------------------------------- the selftest


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(f64, marks=pytest.mark.slow)])
def test_the_estimator_is_right_on_a_small_network(dtype, seed):
    land = mlp(4, 3, 2, n=100, dtype=dtype)
    tried = bs.selftest(land, nbeta=100.0, gamma=1.0, budget=3.0, seed=seed, progress=False)
    found = tried.diagnostics
    assert found["widths"] == [4, 3, 2]
    assert found["rank"] == 1
    assert found["exact"] == float(bs.exact.deep_linear([4, 3, 2], 1)[0])
    assert tried.value == pytest.approx(found["llc"] / found["reference"] - 1)
    assert tried.stderr < 0.06
    assert_within(tried.value, 0.0, tried.stderr, SAMPLED)
    assert (found["nbeta"], found["n"]) == (100.0, 100)


@pytest.mark.slow
def test_minibatches_are_right_within_their_error(seed):
    settings = {"sampler": "minibatch", "batch_size": 64, "budget": 3.0, "seed": seed, "progress": False}
    tried = bs.selftest(mlp(4, 3, 2), gamma=1.0, **settings)
    assert tried.stderr < 0.2
    assert_within(tried.value, 0.0, tried.stderr, SAMPLED)
    assert tried.diagnostics["sampler"] == "minibatch"


@pytest.mark.parametrize(
    ("error", "stderr", "verdict", "reason"),
    [
        (0.0, 0.01, "ok", ""),
        (0.049, 0.015, "ok", ""),
        (-0.051, 0.042, "ok", ""),  # 1.2 standard errors are no reason to doubt
        (0.10, 0.045, "ok", ""),
        (0.02, 0.06, "doubtful", "too imprecise to tell"),
        (0.2, 0.08, "doubtful", "too imprecise to tell"),
        (0.045, 0.007, "doubtful", "the standard error is too small"),
        (0.08, 0.01, "doubtful", "raise budget, or lower rtol"),
        (-0.16, 0.04, "doubtful", "raise budget, or lower rtol"),
        (0.02, math.nan, "doubtful", "too imprecise to tell"),
        (0.2, 0.01, "failed", "raise budget, or lower rtol"),
        (-0.5, 0.1, "failed", "raise budget, or lower rtol"),
        (math.nan, math.inf, "failed", "no number"),
    ],
)
def test_verdicts_take_the_standard_error_into_account(error, stderr, verdict, reason):
    planted, at = plant((4, 3, 2), 1, 60), Resolution(100.0, 1.0)
    reference = planted.at(at.nbeta, at.gamma)
    coupling = 0.006  # relative error of the reference
    sampled = math.sqrt(max(0.0, stderr**2 - coupling**2)) if math.isfinite(stderr) else stderr
    value = bs.Estimate("llc", (1 + error) * reference, sampled * reference, diagnostics={"sampler": "hmc"})
    tried = relative_error(mlp(4, 3, 2), planted, at, value)
    assert tried.verdict == verdict
    assert reason in " ".join(tried.warnings)


def test_bad_settings_fail(seed):
    """Chains much too short for their step, whose loss has hardly risen from that of w*."""
    tried = bs.selftest(mlp(4, 3, 2), gamma=1.0, sampler="sgld", step_size=1e-6, draws=64, progress=False, seed=seed)
    assert tried.verdict == "failed"
    assert tried.value < -0.5
    assert "is right" in tried.warnings[0]


def test_diverging_settings_fail():
    tried = bs.selftest(mlp(4, 3, 2), gamma=1.0, sampler="sgld", step_size=100.0, draws=64, progress=False)
    assert tried.verdict == "failed"
    assert math.isnan(tried.value)


def test_widths():
    assert widths_of(mlp(4, 3, 2)) == [4, 3, 2]
    assert widths_of(mlp(4, 3, 2, n=6)) == [3, 3, 2]  # cut to half of the samples
    vector = nn.ParameterList([nn.Parameter(torch.ones(5))])

    class Scores(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = vector

        def forward(self, x):
            return (x * self.inner[0]).sum(1)

    land = bs.Landscape(Scores(), "mse", (torch.randn(20, 5), torch.zeros(20)))
    assert widths_of(land) == [5, 1]


def test_what_is_refused():
    with pytest.raises(bs.InputError, match="must be a Landscape"):
        bs.selftest(nn.Linear(1, 1))
    with pytest.raises(bs.InputError, match="at least 4 samples"):
        bs.selftest(mlp(4, 3, 2, n=3))
