"""Modules that no factored route knows, parts without a gradient, and derivatives that torch gets wrong.

The references are made of nothing here: gradients sample by sample by torch.autograd, and their central differences.
"""

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional
from torch.nn.utils import parametrizations

import basinscope as bs
from basinscope.curvature.gradients import Gradients
from basinscope.curvature.operators import fisher, hessian, residual
from basinscope.curvature.samplewise import side_by_side
from basinscope.curvature.stack import stack_of

N = 7


class Detached(nn.Module):
    """The first layer has no gradient, by `no_grad` or by `detach`."""

    def __init__(self, how):
        super().__init__()
        self.first, self.out, self.how = nn.Linear(4, 5), nn.Linear(5, 3), how

    def forward(self, x):
        if self.how == "detach":
            return self.out(self.first(x).tanh().detach())
        with torch.no_grad():
            hidden = self.first(x).tanh()
        return self.out(hidden)


class Functional(nn.Module):
    """A function of torch's, applied without its module."""

    def __init__(self, outputs=3):
        super().__init__()
        self.first, self.slopes, self.out = nn.Linear(4, 5), nn.Parameter(torch.rand(5)), nn.Linear(5, outputs)

    def forward(self, x):
        return self.out(functional.prelu(self.first(x), self.slopes))


def linear(activation, outputs=3):
    return nn.Sequential(nn.Linear(4, 5), activation, nn.Linear(5, outputs))


def convolution(activation, outputs=3):
    return nn.Sequential(nn.Conv2d(2, 3, 2), activation, nn.Flatten(), nn.Linear(27, outputs))


def normed(outputs=3):
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, outputs))
    parametrizations.weight_norm(net[0])
    parametrizations.weight_norm(net[2], dim=1)
    return net


def normed_convolution():
    net = convolution(nn.Softplus())
    parametrizations.weight_norm(net[0])
    parametrizations.weight_norm(net[3], dim=None)
    return net


vectors, images = (4,), (2, 4, 4)
NETWORKS = {
    "PReLU with a slope per unit": (lambda: linear(nn.PReLU(5)), vectors),
    "PReLU with one slope": (lambda: linear(nn.PReLU()), vectors),
    "PReLU with one slope, one output": (lambda: linear(nn.PReLU(), 1), vectors),
    "PReLU per unit, one output": (lambda: linear(nn.PReLU(5), 1), vectors),
    "PReLU, as many outputs as samples": (lambda: linear(nn.PReLU(5), N), vectors),
    "PReLU per channel": (lambda: convolution(nn.PReLU(3)), images),
    "PReLU per channel, one output": (lambda: convolution(nn.PReLU(3), 1), images),
    "PReLU as a function": (Functional, vectors),
    "PReLU as a function, one output": (lambda: Functional(1), vectors),
    "weight norm": (normed, vectors),
    "weight norm, one output": (lambda: normed(1), vectors),
    "weight norm of convolutions": (normed_convolution, images),
}


def built(case, dtype=torch.float64):
    build, shape = NETWORKS[case]
    torch.manual_seed(0)
    net = build().to(dtype)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(N, *shape, generator=generator, dtype=torch.float64).to(dtype)
    with torch.no_grad():
        y = net(x)
    y = y + torch.randn(y.shape, generator=generator, dtype=torch.float64).to(dtype)
    return net, x, y


def references(net, x, y):
    """H by central differences of gradients, F and C from gradients sample by sample, for the loss ‖z − y‖²/2."""
    named = dict(net.named_parameters())
    sizes = [p.numel() for p in named.values()]
    point = torch.cat([p.detach().flatten() for p in named.values()])

    def outputs(vector, samples):
        pieces = [piece.view_as(p) for piece, p in zip(vector.split(sizes), named.values(), strict=True)]
        return functional_call(net, dict(zip(named, pieces, strict=True)), (samples,))

    def gradient(vector):
        vector = vector.detach().requires_grad_()
        return torch.autograd.grad((outputs(vector, x) - y).square().sum() / 2 / len(x), vector)[0]

    step = 1e-5
    directions = torch.eye(len(point), dtype=point.dtype)
    second = torch.stack([(gradient(point + step * e) - gradient(point - step * e)) / (2 * step) for e in directions])
    first = torch.zeros_like(second)
    noise = torch.zeros_like(second)
    for i in range(len(x)):
        vector = point.clone().requires_grad_()
        value = outputs(vector, x[i : i + 1])[0]
        rows = torch.stack([torch.autograd.grad(z, vector, retain_graph=True)[0] for z in value])
        row = (value.detach() - y[i]) @ rows
        first += rows.T @ rows / len(x)
        noise += torch.outer(row, row) / len(x)
    return {"hessian": (second + second.T) / 2, "fisher": first, "covariance": noise}


@pytest.mark.parametrize("case", NETWORKS)
def test_matrices_and_traces_against_references(case):
    net, x, y = built(case)
    truth = references(net, x, y)
    land = bs.Landscape(net, "mse", (x, y))
    identity = torch.eye(land.dimension, dtype=land.dtype)
    for operator, expected in (
        (hessian(land), truth["hessian"]),
        (fisher(land), truth["fisher"]),
        (residual(land), truth["hessian"] - truth["fisher"]),
    ):
        assert torch.allclose(operator @ identity, expected, atol=1e-7)
    for matrix, dense in truth.items():
        estimate = bs.trace(land, matrix=matrix, per_layer=True, rtol=0.001, progress=False)
        assert abs(estimate.value - float(dense.trace())) <= max(1e-6, 6 * estimate.stderr)
        blocks = dense.diagonal().split([tensor.numel() for tensor in land.parameters.values()])
        for (value, error), block in zip(estimate.diagnostics["per_layer"].values(), blocks, strict=True):
            assert abs(value - float(block.sum())) <= max(1e-6, 6 * error)
    values = torch.linalg.eigvalsh(truth["fisher"])
    for method in ("exact", "dual"):
        rank = bs.soft_rank(land, weight_decay=0.1, matrix="fisher", method=method, progress=False)
        assert abs(rank.value - float((values / (values + 0.1)).sum())) < 1e-6
    top = torch.linalg.eigvalsh(truth["hessian"])
    norm = bs.operator_norm(land, matrix="hessian", rtol=1e-3, progress=False)
    assert norm.value == pytest.approx(float(top.abs().max()), rel=2e-3)


@pytest.mark.parametrize("case", ["PReLU with a slope per unit", "PReLU per channel", "weight norm"])
def test_float32_agrees(case):
    truth = references(*built(case))
    land = bs.Landscape(*(lambda net, x, y: (net, "mse", (x, y)))(*built(case, torch.float32)))
    for matrix in ("fisher", "covariance"):
        estimate = bs.trace(land, matrix=matrix, progress=False)
        assert estimate.value == pytest.approx(float(truth[matrix].trace()), rel=1e-4)


@pytest.mark.slow
def test_measure_takes_prelu():
    net, x, y = built("PReLU per channel")
    report = bs.measure(bs.Landscape(net, "mse", (x, y)), budget=0.1, progress=False)
    assert "Hessian trace = " in str(report)


# ---------------------------------------------------------------------- parts without a gradient


@pytest.mark.parametrize("how", ["detach", "no_grad"])
def test_a_detached_part_counts_as_fixed(how):
    torch.manual_seed(0)
    net = Detached(how).double()
    x, y = torch.randn(N, 4, dtype=torch.float64), torch.randn(N, 3, dtype=torch.float64)
    land = bs.Landscape(net, "mse", (x, y))
    with torch.no_grad():
        hidden = net.first(x).tanh()
    # z = W h + b: Tr H = Tr F = 3 (E‖h‖² + 1), all of it in the last layer.
    expected = 3 * (float(hidden.square().sum(1).mean()) + 1)
    assert stack_of(land) is None
    for matrix in ("hessian", "fisher"):
        estimate = bs.trace(land, matrix=matrix, per_layer=True, progress=False)
        assert estimate.value == pytest.approx(expected, rel=1e-10)
        assert estimate.diagnostics["per_layer"]["first.weight"] == (0.0, 0.0)
    part = land.restrict("out.*")
    for measure in (bs.soft_rank, bs.log_det):
        for matrix in ("fisher", "hessian"):
            whole, alone = (
                measure(each, weight_decay=0.1, matrix=matrix, progress=False).value for each in (land, part)
            )
            assert whole == pytest.approx(alone, rel=1e-9)


class Gated(nn.Module):
    """A layer times a function of itself, which is detached or given."""

    def __init__(self):
        super().__init__()
        self.first, self.out = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x, gate=None):
        hidden = self.first(x)
        return self.out(hidden.tanh() * (hidden.detach().sigmoid() if gate is None else gate))


def test_a_detached_factor_counts_as_fixed():
    torch.manual_seed(0)
    net = Gated().double()
    x, y = torch.randn(N, 4, dtype=torch.float64), torch.randn(N, 3, dtype=torch.float64)
    with torch.no_grad():
        gate = net.first(x).sigmoid()
    detached, given = bs.Landscape(net, "mse", (x, y)), bs.Landscape(net, "mse", ((x, gate), y))
    identity = torch.eye(given.dimension, dtype=torch.float64)
    assert torch.allclose(hessian(detached) @ identity, hessian(given) @ identity, atol=1e-12)
    for matrix in ("hessian", "fisher", "covariance"):
        one, other = (bs.trace(land, matrix=matrix, progress=False) for land in (detached, given))
        assert one.value == pytest.approx(other.value, rel=1e-9)


# ---------------------------------------------------------------------- derivatives that are wrong


class Product(torch.autograd.Function):
    """ab, one of whose second derivatives is lost on the way."""

    generate_vmap_rule = True

    @staticmethod
    def forward(a, b):
        return a * b

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, gradient):
        a, b = ctx.saved_tensors
        return gradient * b, gradient * a.detach()


class Wrong(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.scale, self.out = nn.Linear(4, 5), nn.Parameter(torch.rand(5)), nn.Linear(5, 3)

    def forward(self, x):
        hidden = self.first(x).tanh()
        return self.out(Product.apply(hidden, self.scale.expand_as(hidden)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_hessian_that_is_not_symmetric_is_refused(dtype):
    torch.manual_seed(0)
    net, data = Wrong().to(dtype), (torch.randn(N, 4, dtype=dtype), torch.randn(N, 3, dtype=dtype))
    land = bs.Landscape(net, "mse", data)
    for measure in (
        bs.trace,
        lambda land, **more: bs.soft_rank(land, weight_decay=1.0, matrix="hessian", **more),
        lambda land, **more: bs.operator_norm(land, matrix="hessian", **more),
        bs.spectrum,
    ):
        with pytest.raises(bs.InputError, match=r"Hessian must be symmetric, but uᵀHv = .* write it in plain torch"):
            measure(land, progress=False)
    assert bs.trace(land, matrix="covariance", progress=False).verdict == "ok"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "loss", ["mse", "cross_entropy", "bernoulli", lambda output, target: (output - target).square().sum(1).sqrt()]
)
@pytest.mark.parametrize("scale", [1e-2, 1.0, 10.0])
def test_symmetric_hessians_pass(loss, scale, dtype):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 30), nn.ReLU(), nn.Linear(30, 30), nn.GELU(), nn.LayerNorm(30), nn.Linear(30, 3))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(scale)
    y = torch.randint(3, (50,)) if loss == "cross_entropy" else torch.rand(50, 3, dtype=dtype)
    land = bs.Landscape(net.to(dtype), loss, (torch.randn(50, 4, dtype=dtype), y))
    assert torch.isfinite(hessian(land) @ torch.ones(land.dimension)).all()


# ---------------------------------------------------------------------- the route that batches samples and roots


def mixing(x, weight):
    """weight · x, with a gradient in the weight that is wrong as soon as two axes are batched."""
    return Mixing.apply(x, weight)


class Mixing(torch.autograd.Function):
    @staticmethod
    def forward(x, weight):
        return weight * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return gradient * weight, (gradient * x).sum(0)

    @staticmethod
    def vmap(info, dims, x, weight):
        x, weight = (
            part.movedim(axis, 0) if axis is not None else part for part, axis in zip((x, weight), dims, strict=True)
        )
        return (weight if dims[1] is None else weight[:, None]) * x * (1.0 if dims[0] is None else 1.5), 0


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.scale, self.out = nn.Linear(4, 5), nn.Parameter(torch.rand(5)), nn.Linear(5, 3)

    def forward(self, x):
        return self.out(mixing(self.first(x).tanh(), self.scale))


def test_rows_that_come_out_wrong_in_batches_are_taken_one_by_one():
    torch.manual_seed(0)
    net = Scaled().double()
    x, y = torch.randn(N, 4, dtype=torch.float64), torch.randn(N, 3, dtype=torch.float64)
    land = bs.Landscape(net, "mse", (x, y))
    truth = references(net, x, y)
    for matrix in ("fisher", "covariance"):
        gradients = Gradients(land, matrix)
        assert gradients.unstructured == ["scale"]
        value = bs.trace(land, matrix=matrix, progress=False).value
        assert value == pytest.approx(float(truth[matrix].trace()), rel=1e-10)


def test_rows_of_a_wrong_shape_are_an_error(monkeypatch):
    net, x, y = built("PReLU with a slope per unit")
    land = bs.Landscape(net, "mse", (x, y))
    land._mended = False
    cotangents = torch.ones(N, 1, 3, dtype=torch.float64)
    with pytest.raises(RuntimeError):
        side_by_side(land, "fisher", {"1.weight": land.parameters["1.weight"]}, land.samples, cotangents)
