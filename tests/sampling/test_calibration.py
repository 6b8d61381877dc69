import math

import pytest
import torch
from torch import nn
from torch.func import grad, jacrev

import basinscope as bs
from basins import classifier, quadratic
from basinscope.sampling import calibration
from basinscope.sampling.calibration import Resolution, affordable_effort, geometry, resolution
from basinscope.sampling.chains import ChainLosses
from basinscope.sampling.clock import NominalClock
from basinscope.sampling.cost import Cost

f64 = torch.float64


def mean_loss(land):
    return lambda w: land.losses(land.unflatten(w), land.samples).mean()


def dense_hessian(land, move=0.0):
    return jacrev(grad(mean_loss(land)))(land.flatten(land.parameters) + move)


def measured(land, displacements=None):
    losses = ChainLosses(land)
    if displacements is None:
        displacements = torch.zeros(1, land.dimension, dtype=land.dtype)
    price, seconds = Cost(fixed=1e-9, each=1e-12), 1.0
    effort = affordable_effort(land, len(displacements), price, seconds)
    return geometry(land, losses, displacements, effort, NominalClock(seconds), price)


def test_default_resolution():
    land = classifier(n=500)
    at = resolution(land)
    weights = land.flatten(land.parameters)
    assert at.nbeta == pytest.approx(500 / math.log(500))
    assert at.gamma == pytest.approx(31 / float(weights @ weights))
    # The typical displacement √(d/γ) is the size of the weights.
    assert math.sqrt(31 / at.gamma) == pytest.approx(float(weights.norm()))
    assert resolution(land, nbeta=3, gamma=2) == Resolution(3.0, 2.0)


def test_default_gamma_without_a_scale():
    net = nn.Linear(2, 1)
    for parameter in net.parameters():
        nn.init.zeros_(parameter)
    assert resolution(bs.Landscape(net, "mse", (torch.ones(9, 2), torch.ones(9, 1)))).gamma == 1.0


@pytest.mark.parametrize("name", ["nbeta", "gamma"])
@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf])
def test_resolution_must_be_positive(name, value):
    with pytest.raises(bs.InputError, match=f"{name} must be a positive finite number, got {value}"):
        resolution(classifier(), **{name: value})


def test_few_samples_need_a_temperature():
    land = classifier(n=2)
    with pytest.raises(bs.InputError, match="n/log n needs at least 3 samples, got n=2 — pass nbeta"):
        resolution(land)
    assert resolution(land, nbeta=1.0).nbeta == 1.0


def test_geometry_of_a_quadratic():
    found = measured(quadratic([4.0, 1.0, 1e-3], dtype=f64))
    assert found.complete
    assert found.values.tolist() == pytest.approx([4.0, 1.0, 1e-3], rel=1e-9)
    torch.testing.assert_close(found.vectors.abs(), torch.eye(3, dtype=f64), rtol=0, atol=1e-6)
    assert found.gradient.abs().max() < 1e-12


def test_geometry_against_the_dense_hessian():
    land = classifier()
    found, exact = measured(land), dense_hessian(land)
    assert found.complete
    rebuilt = found.vectors @ torch.diag(found.values) @ found.vectors.T
    torch.testing.assert_close(rebuilt, exact, rtol=1e-8, atol=1e-10)
    assert (found.values.diff() <= 0).all()
    slope = grad(mean_loss(land))(land.flatten(land.parameters))
    torch.testing.assert_close(found.gradient, slope, rtol=1e-8, atol=1e-12)


def test_geometry_averages_over_points():
    land = classifier()
    moves = torch.randn(3, land.dimension, generator=torch.Generator().manual_seed(0), dtype=f64)
    found = measured(land, moves)
    exact = torch.stack([dense_hessian(land, move) for move in moves]).mean(0)
    rebuilt = found.vectors @ torch.diag(found.values) @ found.vectors.T
    torch.testing.assert_close(rebuilt, exact, rtol=1e-8, atol=1e-10)
    # The gradient is that of w*, wherever the curvature was taken.
    slope = grad(mean_loss(land))(land.flatten(land.parameters))
    torch.testing.assert_close(found.gradient, slope, rtol=1e-8, atol=1e-12)


def test_leading_eigenpairs_of_a_larger_network(monkeypatch):
    monkeypatch.setattr(calibration, "_DENSE", 100)
    land = classifier(n=60, inputs=20, hidden=15, classes=5)
    assert land.dimension == 395
    found, exact = measured(land), torch.linalg.eigvalsh(dense_hessian(land)).flip(0)
    assert not found.complete
    assert 8 <= len(found.values) <= 64
    # Lanczos is asked for 5 %; the leading ones come out much better.
    assert found.values[:5].tolist() == pytest.approx(exact[:5].tolist(), rel=0.01)
    assert found.values.tolist() == pytest.approx(exact[: len(found.values)].tolist(), abs=0.05 * float(exact[0]))
    gram = found.vectors.T @ found.vectors
    torch.testing.assert_close(gram, torch.eye(len(gram), dtype=f64), rtol=0, atol=1e-6)


def test_a_small_budget_buys_fewer_products(monkeypatch):
    monkeypatch.setattr(calibration, "_DENSE", 100)
    land = classifier(n=600, inputs=20, hidden=15, classes=5)
    price = Cost(fixed=1e-3, each=1e-5)

    def effort(seconds, points=1):
        chosen = affordable_effort(land, points, price, seconds)
        return chosen.samples, chosen.products

    # A product on all 600 samples: three times 7 ms. First samples are given up, then products, to the fewest.
    assert effort(60.0) == (600, 160)
    assert effort(1.5) == (600, 71)
    assert effort(0.5) == (int((0.5 / 144 - 1e-3) / 1e-5), 48)
    assert effort(0.1) == (128, 14)
    assert effort(1e-3) == (128, 8)
    assert effort(60.0, points=6)[1] == 160
    for held, expected in ((100, 100), (30, 30), (3, 8)):  # vectors that memory holds
        monkeypatch.setattr(calibration, "_BASIS", held * land.dimension * land.dtype.itemsize)
        assert effort(60.0)[1] == expected


def test_all_of_a_small_hessian_or_its_leading_pairs():
    land = classifier(n=6000)
    price = Cost(fixed=1e-4, each=1e-5)
    assert affordable_effort(land, 1, price, 10.0).products is None
    assert affordable_effort(land, 1, price, 10.0).samples == 6000
    fewer = affordable_effort(land, 1, price, 1.0)
    assert (fewer.products, 512 < fewer.samples < 6000) == (None, True)
    assert affordable_effort(land, 1, price, 0.2).products is not None


def test_products_that_take_longer_than_thought_are_fewer(monkeypatch):
    class Slow(NominalClock):
        def price(self, work, nominal):
            work()
            return 0.05

    monkeypatch.setattr(calibration, "_DENSE", 100)
    land = classifier(n=60, inputs=20, hidden=15, classes=5)
    price = Cost(fixed=1e-9, each=1e-12)
    effort = affordable_effort(land, 1, price, 2.4)
    assert effort.products == 160
    few = geometry(land, ChainLosses(land), torch.zeros(1, 395, dtype=f64), effort, Slow(2.4), price)
    exact = torch.linalg.eigvalsh(dense_hessian(land)).flip(0)
    assert len(few.values) <= 24, "half of 48 products"
    assert few.values[:5].tolist() == pytest.approx(exact[:5].tolist(), rel=0.05)
    assert few.products in (23, 24), "half as long again for conjugate gradients"
    # What no known direction holds is hardly stiffer than the last of them.
    left = dense_hessian(land) - few.vectors @ torch.diag(few.values) @ few.vectors.T
    assert float(torch.linalg.eigvalsh(left)[-1]) < 1.5 * float(few.values[-1])


def test_whitening_makes_the_posterior_round():
    land = classifier()
    at = Resolution(50.0, 0.4)
    found = measured(land)
    values = found.values.clamp(min=0)
    precision = found.vectors @ torch.diag(at.nbeta * values + at.gamma) @ found.vectors.T
    matrix = found.whitening(at)(torch.eye(land.dimension, dtype=f64))
    torch.testing.assert_close(matrix @ precision @ matrix.T, torch.eye(land.dimension, dtype=f64), rtol=0, atol=1e-8)


@pytest.mark.parametrize("hidden", [3, 1500])  # the whole Hessian, and its leading pairs
def test_a_curvature_that_does_not_exist_names_its_parameter(hidden):
    class Norm(torch.nn.Module):  # whose gradient at zero is one of its subgradients
        def __init__(self):
            super().__init__()
            self.shift, self.line = torch.nn.Parameter(torch.zeros(3)), torch.nn.Linear(1, hidden)

        def forward(self, x):
            return self.line(x).sum(1, keepdim=True) + self.shift.norm()

    land = bs.Landscape(Norm(), "mse", (torch.ones(20, 1), torch.ones(20, 1)))
    with pytest.raises(bs.InputError, match="curvature of the loss with respect to shift is not finite"):
        bs.llc(land, budget=1, progress=False)
