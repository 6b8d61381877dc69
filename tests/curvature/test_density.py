import pytest
import torch

import basinscope as bs
from basinscope.curvature.density import lanczos_quadrature
from basinscope.curvature.eigen import top_eigenpairs
from basinscope.curvature.operators import Dense
from chance import assert_within

f64 = torch.float64


def random_matrix(values, seed=0):
    generator = torch.Generator().manual_seed(seed)
    frame = torch.linalg.qr(torch.randn(len(values), len(values), dtype=f64, generator=generator)).Q
    return (frame * values.double()) @ frame.T


def test_moments_are_traces(seed):
    values, probes = torch.linspace(-1, 2, 200, dtype=f64), 60
    rule = lanczos_quadrature(Dense(random_matrix(values)), probes=probes, steps=12, seed=seed)
    powers = torch.arange(4)
    mean, stderr = rule.average(rule.nodes[:, :, None] ** powers)
    assert_within(mean, (values[:, None] ** powers).sum(0), stderr, probes - 1, bias=1e-9)


def test_counts_lie_within_the_stated_errors(seed):
    values, probes = torch.logspace(-4, 0, 400, dtype=f64), 40
    rule = lanczos_quadrature(Dense(random_matrix(values)), probes=probes, steps=30, seed=seed)
    levels = torch.logspace(-3.5, -0.1, 12, dtype=f64)
    mean, stderr, slack = rule.above(levels)
    truth = (values[:, None] > levels).sum(0)
    assert_within(mean, truth, stderr, probes - 1, bias=slack)
    assert float((slack / truth)[-6:].max()) < 0.4


def test_whole_spectrum_when_the_steps_reach_it(seed):
    values, probes = torch.tensor([1.0, 2.0, 2.0, 5.0], dtype=f64), 200
    rule = lanczos_quadrature(Dense(random_matrix(values)), probes=probes, steps=4, seed=seed)
    assert bool(rule.exact.all())
    mean, stderr, slack = rule.above(torch.tensor([0.0, 1.5, 3.0, 6.0], dtype=f64))
    assert mean[0] == pytest.approx(4)
    assert_within(mean, [4.0, 3.0, 1.0, 0.0], stderr, probes - 1, bias=1e-9)
    assert float(slack.abs().max()) == 0


def test_deflation_takes_out_what_is_known(seed):
    values = torch.cat([torch.linspace(0, 1, 95), torch.tensor([10.0, 20.0, 30.0, 40.0, 50.0])])
    operator = Dense(random_matrix(values))
    top = top_eigenpairs(operator, 5, tol=1e-8, seed=seed)
    rule = lanczos_quadrature(operator, deflated=top.vectors, steps=20, seed=seed)
    assert rule.mass == 95
    assert float(rule.nodes.max()) < 1.001
    nothing = lanczos_quadrature(Dense(torch.eye(2, dtype=f64)), deflated=torch.eye(2, dtype=f64))
    assert nothing.mass == 0
    assert float(nothing.average(nothing.nodes)[0]) == 0


def test_bad_arguments():
    for wrong in ({"probes": 1}, {"steps": 0}):
        with pytest.raises(bs.InputError):
            lanczos_quadrature(Dense(torch.eye(3)), **wrong)
