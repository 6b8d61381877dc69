import pytest
import torch

import basinscope as bs
from basinscope.curvature.density import lanczos_quadrature
from basinscope.curvature.eigen import top_eigenpairs
from basinscope.curvature.operators import Dense

f64 = torch.float64


def random_matrix(values, seed=0):
    generator = torch.Generator().manual_seed(seed)
    frame = torch.linalg.qr(torch.randn(len(values), len(values), dtype=f64, generator=generator)).Q
    return (frame * values.double()) @ frame.T


def test_moments_are_traces():
    values = torch.linspace(-1, 2, 200, dtype=f64)
    rule = lanczos_quadrature(Dense(random_matrix(values)), probes=30, steps=12)
    for power in range(4):
        mean, stderr = rule.average(rule.nodes**power)
        assert abs(float(mean - (values**power).sum())) <= 4 * float(stderr) + 1e-9


def test_counts_lie_within_the_stated_errors():
    values = torch.logspace(-4, 0, 400, dtype=f64)
    rule = lanczos_quadrature(Dense(random_matrix(values)), probes=12, steps=30)
    levels = torch.logspace(-3.5, -0.1, 12, dtype=f64)
    mean, stderr, slack = rule.above(levels)
    truth = (values[:, None] > levels).sum(0)
    assert bool(((mean - truth).abs() <= slack + 4 * stderr).all())
    assert float((slack / truth)[-6:].max()) < 0.4


def test_whole_spectrum_when_the_steps_reach_it():
    values = torch.tensor([1.0, 2.0, 2.0, 5.0], dtype=f64)
    rule = lanczos_quadrature(Dense(random_matrix(values)), probes=200, steps=4)
    assert bool(rule.exact.all())
    mean, stderr, slack = rule.above(torch.tensor([0.0, 1.5, 3.0, 6.0], dtype=f64))
    assert mean[0] == pytest.approx(4)
    assert bool(((mean - torch.tensor([4.0, 3.0, 1.0, 0.0])).abs() <= 4 * stderr + 1e-9).all())
    assert float(slack.abs().max()) == 0


def test_deflation_takes_out_what_is_known():
    values = torch.cat([torch.linspace(0, 1, 95), torch.tensor([10.0, 20.0, 30.0, 40.0, 50.0])])
    operator = Dense(random_matrix(values))
    top = top_eigenpairs(operator, 5, tol=1e-8)
    rule = lanczos_quadrature(operator, deflated=top.vectors, steps=20)
    assert rule.mass == 95
    assert float(rule.nodes.max()) < 1.001
    nothing = lanczos_quadrature(Dense(torch.eye(2, dtype=f64)), deflated=torch.eye(2, dtype=f64))
    assert nothing.mass == 0
    assert float(nothing.average(nothing.nodes)[0]) == 0


def test_bad_arguments():
    for wrong in ({"probes": 1}, {"steps": 0}):
        with pytest.raises(bs.InputError):
            lanczos_quadrature(Dense(torch.eye(3)), **wrong)
