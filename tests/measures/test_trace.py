import itertools
import math

import pytest
import torch
from torch import nn

import basinscope as bs
from basinscope.curvature.operators import operator
from chance import assert_share, assert_within

f64 = torch.float64


def written_out(land, matrix="hessian"):
    return operator(land, matrix) @ torch.eye(land.dimension, dtype=land.dtype)


class Skipping(nn.Module):
    """A smooth network with a skip connection, whose trace has no closed form."""

    def __init__(self, inside, width, outside):
        super().__init__()
        self.first, self.second, self.out = nn.Linear(inside, width), nn.Linear(width, width), nn.Linear(width, outside)

    def forward(self, x):
        h = self.first(x).tanh()
        return self.out(h + self.second(h).tanh())


def trained(activation, widths=(5, 8, 7, 3), n=30, loss="cross_entropy", steps=60):
    torch.manual_seed(0)
    layers = [part for a, b in itertools.pairwise(widths) for part in (nn.Linear(a, b), activation())]
    return fitted(nn.Sequential(*layers[:-1]), widths, n, loss, steps)


def skipping(widths=(5, 7, 3), n=30, steps=60):
    torch.manual_seed(0)
    return fitted(Skipping(*widths), widths, n, "cross_entropy", steps)


def fitted(net, widths, n, loss, steps):
    net = net.double()
    x, y = torch.randn(n, widths[0], dtype=f64), torch.randint(widths[-1], (n,))
    adam = torch.optim.Adam(net.parameters(), 0.02)
    for _ in range(steps):
        adam.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        adam.step()
    return bs.Landscape(net, loss, (x, y))


def trace(land, **options):
    return bs.trace(land, progress=False, **options)


@pytest.mark.parametrize(("activation", "slope", "bend"), [
    (nn.Tanh, lambda a: 1 - a.tanh() ** 2, lambda a: -2 * a.tanh() * (1 - a.tanh() ** 2)),
    (nn.Softplus, torch.sigmoid, lambda a: a.sigmoid() * (1 - a.sigmoid())),
    (nn.ReLU, lambda a: (a > 0).double(), torch.zeros_like),
])  # fmt: skip
def test_formula_for_one_hidden_layer(activation, slope, bend, seed):
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(3, 6), activation(), nn.Linear(6, 2)).double()
    x, y, variance = torch.randn(25, 3, dtype=f64), torch.randn(25, 2, dtype=f64), 0.49
    land = bs.Landscape(net, "gaussian", (x, y), sigma=0.7)
    with torch.no_grad():
        inner = net[0](x)
        size = x.square().sum(1, keepdim=True) + 1
        first = (net[2].weight.square().sum(0) * slope(inner).square() * size).sum(1)
        second = 2 * (1 + net[1](inner).square().sum(1))
        fisher = float((first + second).mean()) / variance
        curved = float((((net(x) - y) @ net[2].weight) * bend(inner) * size).sum(1).mean()) / variance
    assert trace(land, matrix="fisher").value == pytest.approx(fisher)
    found = trace(land, rtol=0.002, seed=seed)
    assert found.stderr <= 0.002 * found.value
    assert_within(found.value, fisher + curved, found.stderr, found.freedom, bias=1e-10)
    if activation is nn.ReLU:
        assert found.stderr == 0
        assert found.diagnostics["products"] == 0


def test_relu_network_is_exact():
    land = trained(nn.ReLU)
    found = trace(land)
    assert (found.stderr, found.verdict) == (0.0, "ok")
    assert found.value == pytest.approx(float(written_out(land).trace()), rel=1e-10)
    assert found.interval() == (found.value, found.value)
    assert found.diagnostics["method"] == "closed form"


def test_smooth_stack_is_exact():
    land = trained(nn.Tanh)
    found = trace(land, per_layer=True)
    assert (found.stderr, found.verdict) == (0.0, "ok")
    assert found.value == pytest.approx(float(written_out(land).trace()), rel=1e-10)
    assert found.diagnostics["fisher_trace"] == pytest.approx(trace(land, matrix="fisher").value)
    truth = land.unflatten(written_out(land).diagonal().clone())
    for name, (value, stderr) in found.diagnostics["per_layer"].items():
        assert (value, stderr) == (pytest.approx(float(truth[name].sum()), abs=1e-12), 0.0)


@pytest.mark.parametrize("matrix", ["fisher", "covariance"])
def test_other_matrices_are_exact(matrix):
    land = trained(nn.Tanh)
    found = trace(land, matrix=matrix)
    assert found.stderr == 0
    assert found.value == pytest.approx(float(written_out(land, matrix).trace()), rel=1e-10)


def test_standard_error_covers_the_truth(seed):
    land = skipping()
    truth = float(written_out(land).trace())
    inside, products = 0, []
    for repetition in range(100):
        found = trace(land, rtol=0.03, seed=seed + repetition)
        low, high = found.interval(0.95)
        inside += low <= truth <= high
        products.append(found.diagnostics["products"])
        assert found.stderr <= 0.03 * found.value
    assert_share(inside, 100, 0.95)
    assert max(products) < land.dimension


def test_layers_add_up(seed):
    land = skipping()
    truth = land.unflatten(written_out(land).diagonal().clone())
    found = trace(land, per_layer=True, rtol=0.02, seed=seed)
    layers = found.diagnostics["per_layer"]
    assert list(layers) == list(land.parameters)
    assert sum(value for value, _ in layers.values()) == pytest.approx(found.value)
    for name, (value, stderr) in layers.items():
        assert_within(value, float(truth[name].sum()), stderr, found.freedom, bias=1e-10)
    assert found.diagnostics["method"] == "gradient norms + hutchinson on H − F"


def test_layers_of_an_exact_trace():
    land = trained(nn.ReLU)
    truth = land.unflatten(written_out(land).diagonal().clone())
    for name, (value, stderr) in trace(land, per_layer=True).diagnostics["per_layer"].items():
        assert (value, stderr) == (pytest.approx(float(truth[name].sum()), abs=1e-12), 0.0)


def test_tied_weights_and_restrictions(seed):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3)).double()
    net[2].weight = net[0].weight
    land = bs.Landscape(net, "cross_entropy", (torch.randn(20, 4), torch.randint(3, (20,))))
    for part in (land, land.restrict("0.weight"), land.restrict("4.*")):
        found = trace(part, rtol=1e-4, seed=seed)
        truth = float(written_out(part).trace())
        assert_within(found.value, truth, found.stderr, found.freedom, bias=1e-10)


def test_own_loss_has_its_hessian_estimated_whole(seed):
    def huber(output, target):
        return nn.functional.smooth_l1_loss(output, target, reduction="none").sum(1)

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 2)).double()
    land = bs.Landscape(net, huber, (torch.randn(40, 4), torch.randn(40, 2)))
    found = trace(land, rtol=0.02, seed=seed)
    assert_within(found.value, float(written_out(land).trace()), found.stderr, found.freedom, bias=1e-10)
    with pytest.raises(bs.InputError, match="likelihood"):
        trace(land, matrix="fisher")


def test_one_sample_one_class_and_single_precision():
    one = bs.Landscape(nn.Linear(3, 1), "cross_entropy", (torch.randn(5, 3), torch.zeros(5, dtype=torch.long)))
    assert trace(one).value == 0
    single = bs.Landscape(nn.Linear(2, 1), "mse", (torch.tensor([[1.0, 2.0]]), torch.zeros(1, 1)))
    assert trace(single).value == pytest.approx(6)


def test_spent_products_are_admitted():
    land = skipping((20, 30, 3))
    found = trace(land, rtol=1e-5, max_products=30)
    assert found.verdict == "doubtful"
    assert "max_products" in found.warnings[0]
    assert found.diagnostics["products"] <= 30
    assert math.isfinite(found.value)


def test_same_seed_same_bits():
    land = skipping()
    assert trace(land, seed=3).to_dict() == trace(land, seed=3).to_dict()
    assert trace(land, seed=3).value != trace(land, seed=4).value


@pytest.mark.parametrize("wrong", [{"matrix": "hess"}, {"rtol": 0.0}, {"rtol": 2.0}, {"max_products": 1}])
def test_bad_arguments(wrong):
    land = bs.Landscape(nn.Linear(2, 1), "mse", (torch.ones(2, 2), torch.ones(2, 1)))
    with pytest.raises(bs.InputError, match=next(iter(wrong))):
        trace(land, **wrong)
