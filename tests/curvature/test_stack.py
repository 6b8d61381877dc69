"""Plain stacks of linear layers: their traces in closed form against the dense matrices, and what is no stack."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional

import basinscope as bs
from basinscope.curvature import stack_traces as module
from basinscope.curvature.operators import operator
from basinscope.curvature.stack import stack_of
from basinscope.curvature.stack_traces import stack_traces
from chance import assert_within

f64 = torch.float64


def stacked(activation, *hidden, bias=True, dtype=f64):
    torch.manual_seed(0)
    layers = [
        part for a, b in itertools.pairwise((4, *hidden, 3)) for part in (nn.Linear(a, b, bias=bias), activation())
    ]
    return nn.Sequential(*layers[:-1]).to(dtype)


def landscape(net, loss="cross_entropy", n=13):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(n, 4, dtype=f64, generator=generator)
    y = {
        "cross_entropy": torch.arange(n) % 3,
        "gaussian": torch.randn(n, 3, dtype=f64, generator=generator),
        "bernoulli": torch.rand(n, 3, dtype=f64, generator=generator),
    }[loss]
    return bs.Landscape(net, loss, (x, y), **({"sigma": 0.5} if loss == "gaussian" else {}))


def diagonals(land, matrix):
    """Traces of the diagonal blocks, from the matrix written out."""
    whole = operator(land, matrix) @ torch.eye(land.dimension, dtype=land.dtype)
    return {name: float(part.sum()) for name, part in land.unflatten(whole.diagonal().clone()).items()}


def assert_traces(land, traces, rel=1e-10):
    assert traces is not None
    fisher, hessian = diagonals(land, "fisher"), diagonals(land, "hessian")
    scale = max(abs(value) for value in hessian.values()) + max(fisher.values())
    for name in land.parameters:
        assert traces.fisher[name] == pytest.approx(fisher[name], abs=rel * scale)
        assert traces.fisher[name] + traces.residual[name] == pytest.approx(hessian[name], abs=rel * scale)


@pytest.mark.parametrize("loss", ["cross_entropy", "gaussian", "bernoulli"])
@pytest.mark.parametrize("hidden", [(), (5,), (5, 6), (5, 6, 4), (3, 5, 4, 6)], ids=str)
@pytest.mark.parametrize("activation", [nn.Tanh, nn.Sigmoid, nn.SiLU, nn.ReLU])
def test_every_depth_activation_and_loss(activation, hidden, loss):
    land = landscape(stacked(activation, *hidden), loss)
    assert_traces(land, stack_traces(land, curved=True))


def shifted(h):
    h += 1
    return h.tanh()


ELEMENTWISE = [
    nn.GELU(), nn.ELU(), nn.CELU(0.7), nn.SELU(), nn.Softplus(2.0), nn.Softsign(), nn.Mish(), nn.Hardswish(),
    nn.LogSigmoid(), nn.LeakyReLU(), nn.Hardtanh(), nn.ReLU6(), nn.Tanhshrink(), nn.Threshold(0.1, 0.1),
    nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Identity(),
    torch.sin, torch.cos, torch.exp, torch.erf, torch.atan, torch.square, lambda h: h**3, lambda h: (2 * h - 1).tanh(),
    lambda h: 1 - h.tanh() / 3, lambda h: h.mul_(2).tanh_(), lambda h: h.neg().abs().clamp(max=1.0),
    lambda h: h.tanh().view(h.shape), lambda h: h.tanh().unsqueeze(1).squeeze(1),
    lambda h: h.tanh().reshape(len(h), -1), lambda h: functional.elu(h, 1.0, True), torch.sigmoid_,
    shifted,
]  # fmt: skip


class Around(nn.Module):
    """A function between two layers."""

    def __init__(self, function):
        super().__init__()
        self.first, self.out, self.function = nn.Linear(4, 5), nn.Linear(5, 3), function

    def forward(self, x):
        return self.out(self.function(self.first(x)))


@pytest.mark.parametrize("function", ELEMENTWISE)
def test_elementwise_functions(function):
    torch.manual_seed(0)
    land = landscape(Around(function).double().eval())
    assert_traces(land, stack_traces(land, curved=True))


@pytest.mark.parametrize("tail", [nn.Sigmoid(), nn.Sequential(nn.Tanh(), nn.Tanh())])
@pytest.mark.parametrize("loss", ["cross_entropy", "gaussian"])
@pytest.mark.parametrize("hidden", [(), (5,), (5, 4)], ids=str)
def test_functions_behind_the_last_layer(hidden, loss, tail):
    land = landscape(nn.Sequential(stacked(nn.Tanh, *hidden), tail), loss)
    assert_traces(land, stack_traces(land, curved=True))


def test_layers_without_bias_without_function_between_and_with_fixed_ones_before():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 2, 3), nn.ReLU(), nn.Flatten(), stacked(nn.Tanh, 4, bias=False),
        nn.Linear(3, 5), nn.Linear(5, 3),
    ).double()  # fmt: skip
    net[1].requires_grad_(False)
    assert_traces(landscape(net), stack_traces(landscape(net), curved=True))


@pytest.mark.parametrize("free", ["0.*", "2.*", "4.*", "*.weight", "*.bias", "[02].weight", "6.bias"])
def test_parts_of_a_stack(free):
    land = landscape(stacked(nn.Tanh, 5, 6, 4)).restrict(free)
    assert_traces(land, stack_traces(land, curved=True))


@pytest.mark.parametrize("matrix", ["fisher", "hessian"])
def test_flat_outputs_uneven_batches_and_single_samples(matrix):
    net = nn.Sequential(stacked(nn.Tanh, 6), nn.Linear(3, 1), nn.Flatten(0)).double()
    x = torch.randn(13, 4, dtype=f64)
    for target, loss in ((torch.randn(13, dtype=f64), "mse"), ((x[:, 0] > 0).double(), "bernoulli")):
        land = bs.Landscape(net, loss, (x, target))
        truth = sum(diagonals(land, matrix).values())
        for part in (land, land.subset([3])):
            whole = stack_traces(part, curved=True)
            assert_traces(part, whole)
            tiled = stack_traces(part, curved=True, memory=5 * 8 * 400)
            assert tiled.fisher == pytest.approx(whole.fisher)
            assert tiled.residual == pytest.approx(whole.residual)
        assert bs.trace(land, matrix=matrix, progress=False).value == pytest.approx(truth)


def test_labels_that_do_not_count_and_a_single_class():
    x = torch.randn(13, 4, dtype=f64)
    y = torch.arange(13) % 3
    y[::4] = -100
    for depth in ((5,), (5, 4)):
        land = bs.Landscape(stacked(nn.Tanh, *depth), "cross_entropy", (x, y))
        assert_traces(land, stack_traces(land, curved=True))
    one = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1)).double()
    land = bs.Landscape(one, "cross_entropy", (x, torch.zeros(13, dtype=torch.long)))
    assert set(stack_traces(land, curved=True).fisher.values()) == {0.0}


@pytest.mark.parametrize("hidden", [(), (5,), (5, 6)], ids=str)
def test_confident_predictions_in_single_precision(hidden):
    """Where p is nearly a unit vector, diag(p) − p pᵀ is a difference of almost equal numbers."""
    net = stacked(nn.Tanh, *hidden)
    net[-1].bias.data += torch.tensor([0.0, 18.0, 0.0])
    land = landscape(net)
    truth = diagonals(land, "fisher")
    assert 0 < max(truth.values()) < 1e-6
    single = bs.Landscape(net.float(), "cross_entropy", (land.samples.inputs.float(), land.samples.target))
    assert stack_traces(single, curved=False).fisher == pytest.approx(truth, rel=1e-3)


# ---------------------------------------------------------------------- what is no stack


class Own(nn.Module):
    def __init__(self, way):
        super().__init__()
        self.first, self.second, self.out, self.way = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3), way

    def forward(self, x):
        return self.out(self.way(self, x))


class Unseen(torch.autograd.Function):
    """A cube where no torch function is seen."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        with torch._C.DisableTorchFunction():
            return x * x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 3 * x * x * gradient


def unseen_slope(net, x):
    with torch._C.DisableTorchFunction():
        slope = float(net.first.weight.detach().square().mean())
    return net.second(functional.leaky_relu(net.first(x), slope)).tanh()


def written(net, x):
    h = torch.zeros_like(x)
    h[:] = net.first(x)
    return net.second(h).tanh()


WAYS = {
    "skip connection": lambda net, x: (h := net.first(x).tanh()) + net.second(h).tanh(),
    "skip over the function": lambda net, x: (h := net.first(x)) + h.tanh(),
    "two branches": lambda net, x: net.first(x).tanh() + net.second(x).tanh(),
    "product of units": lambda net, x: (h := net.first(x)) * h,
    "gate": lambda net, x: net.first(x) * net.second(x).sigmoid(),
    "layer used twice": lambda net, x: net.first(net.first(x).tanh()).tanh(),
    "mixing units": lambda net, x: net.first(x).softmax(1),
    "flipped units": lambda net, x: net.first(x).tanh().flip(1),
    "penalized by itself": lambda net, x: net.first(x).tanh() * net.first.weight.mean(),
    "entry read out": lambda net, x: net.second(net.first(x).tanh() * net.first(x.new_ones(4)).max().item()),
    "unseen function": lambda net, x: net.second(Unseen.apply(net.first(x))).tanh(),
    "unseen argument": unseen_slope,
    "written into": written,
    "parameter transformed": lambda net, x: functional.linear(x, net.first.weight.tanh()).tanh(),
    "matrix product": lambda net, x: (x @ net.first.weight).tanh(),
}  # fmt: skip


@pytest.mark.parametrize("name", WAYS)
def test_other_networks_are_told_apart(name):
    torch.manual_seed(0)
    land = landscape(Own(WAYS[name]).double())
    assert stack_of(land) is None
    assert stack_traces(land, curved=True) is None


def test_tied_weights_are_no_stack():
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    net[2].weight = net[0].weight
    assert stack_of(landscape(net)) is None
    net[0].weight.requires_grad_(False)  # held fixed, it may be used as often as it likes
    assert_traces(landscape(net), stack_traces(landscape(net), curved=True))


def test_positions_of_a_sequence_are_no_stack():
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    land = bs.Landscape(net, "cross_entropy", (torch.randn(7, 6, 4), torch.randint(3, (7, 6))))
    assert stack_traces(land, curved=True) is None


def test_another_way_for_later_samples():
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.out = nn.Linear(4, 5), nn.Linear(5, 3)

        def forward(self, x):
            h = self.first(x)
            return self.out(h.tanh() if float(x.max()) < 10 else h.tanh() + 0 * h.flip(1))

    x = torch.randn(13, 4, dtype=f64)
    x[-1] = 11
    land = bs.Landscape(Branching().double(), "mse", (x, torch.randn(13, 3)))
    assert stack_of(land) is not None
    assert stack_traces(land, curved=True, memory=1) is None


def test_own_loss_is_left_to_other_ways():
    net = nn.Linear(4, 3)
    land = bs.Landscape(net, lambda z, y: (z - y).abs().sum(1), (torch.randn(5, 4), torch.randn(5, 3)))
    assert stack_traces(land, curved=False) is None


def test_too_much_work_is_left_to_other_ways(monkeypatch, seed):
    deep = landscape(stacked(nn.Tanh, 5, 6, 4))
    monkeypatch.setattr(module, "MAX_PASSES", 4)
    assert stack_traces(deep, curved=True) is None
    assert stack_traces(deep, curved=False) is not None
    assert stack_traces(landscape(stacked(nn.Tanh, 5)), curved=True) is not None
    estimate = bs.trace(deep, rtol=0.02, seed=seed, progress=False)
    assert estimate.diagnostics["method"].startswith("closed form + ")
    truth = sum(diagonals(deep, "hessian").values())
    assert_within(estimate.value, truth, estimate.stderr, estimate.freedom, bias=1e-9)
