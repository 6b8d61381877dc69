"""Products against finite differences and closed forms: automatic differentiation checked by itself sees nothing."""

import math
from functools import partial

import pytest
import torch
from torch import nn

import basinscope as bs
from basins import classifier
from basinscope.curvature import operators
from basinscope.curvature.operators import covariance, fisher, hessian, operator, residual
from basinscope.curvature.tiles import activation_bytes
from basinscope.landscape import math_attention
from gradient_cases import CASES

f64 = torch.float64


def written_out(land, matrix):
    return operator(land, matrix) @ torch.eye(land.dimension, dtype=land.dtype)


def moved(land, direction, step):
    return land.unflatten(land.flatten(land.parameters) + step * direction)


def output_slope(land, direction, step=1e-5):
    """Directional derivative of the outputs and of the per-sample losses."""
    batch = next(land.batches())
    with torch.no_grad(), math_attention():
        ends = [
            (land.outputs(point, batch.inputs), land.losses(point, batch))
            for point in (moved(land, direction, step), moved(land, direction, -step))
        ]
    return tuple((up - down) / (2 * step) for up, down in zip(*ends, strict=True))


def fisher_form(land, slope):
    """(1/n) Σ_i E_y[(∇_z l · slope)²], the mean over labels taken one label at a time."""
    batch = next(land.batches())
    with torch.no_grad(), math_attention():
        z = land.outputs(land.parameters, batch.inputs)
    if land.loss.family == "gaussian":
        return float(slope.square().sum()) / land.loss.variance / land.n
    if land.loss.family == "bernoulli":
        p = z.sigmoid()
        return float((p * ((1 - p) * slope) ** 2 + (1 - p) * (p * slope) ** 2).sum()) / land.n
    p = z.softmax(-1)
    scores = torch.eye(z.shape[-1], dtype=f64) - p[..., None, :]  # the gradient for each label, up to its sign
    return float((p * (scores * slope[..., None, :]).sum(-1) ** 2).sum()) / land.n


@pytest.mark.parametrize("name", CASES)
def test_products_match_finite_differences(name):
    land = CASES[name](f64)
    generator = torch.Generator().manual_seed(3)
    for _ in range(2):
        v = torch.randn(land.dimension, dtype=f64, generator=generator)
        if name == "transformer":
            land.unflatten(v)["embed.weight"][0] = 0  # torch holds the padding token's row fixed
        v /= v.norm()
        outputs, losses = output_slope(land, v)
        assert float(v @ (covariance(land) @ v)) == pytest.approx(float(losses.square().mean()), rel=1e-6, abs=1e-12)
        assert float(v @ (fisher(land) @ v)) == pytest.approx(fisher_form(land, outputs), rel=1e-6, abs=1e-12)
        step = 1e-4
        with math_attention():
            up, here, down = (land.per_sample(moved(land, v, s)).mean() for s in (step, 0.0, -step))
        second = float(up - 2 * here + down) / step**2
        assert float(v @ (hessian(land) @ v)) == pytest.approx(second, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("matrix", ["hessian", "fisher", "covariance"])
@pytest.mark.parametrize("name", CASES)
def test_symmetric_and_the_same_in_any_tiles(name, matrix):
    land = CASES[name](f64)
    whole = written_out(land, matrix)
    scale = float(whole.abs().max())
    assert float((whole - whole.T).abs().max()) <= 1e-12 * max(scale, 1)
    small = operator(land, matrix, memory=8 * 4 * 3 * activation_bytes(land))
    assert small.tiles.samples == 1 or land.n % small.tiles.samples or land.n == 1
    v = torch.randn(land.dimension, 2, dtype=f64)
    assert torch.allclose(small @ v, whole @ v, atol=1e-12 * max(scale, 1))
    assert torch.allclose(small @ v[:, 0], whole @ v[:, 0], atol=1e-12 * max(scale, 1))


@pytest.mark.parametrize("matrix", ["hessian", "fisher", "covariance", "residual"])
@pytest.mark.parametrize("name", CASES)
def test_forward_mode_gives_the_same(name, matrix, monkeypatch):
    land = CASES[name](f64)
    padded = name == "transformer"  # whose embedding holds the row of the padding token fixed
    assert operators._differentiable_forwards(land) != padded
    if padded:
        return
    build = operators.residual if matrix == "residual" else partial(operator, matrix=matrix)
    v = torch.randn(land.dimension, 3, dtype=f64, generator=torch.Generator().manual_seed(0))
    backward = build(land) @ v
    monkeypatch.setattr(operators, "_forward_mode", lambda _: True)
    forward = build(land)
    assert torch.allclose(forward @ v, backward, rtol=1e-9, atol=1e-11), "several vectors"
    assert torch.allclose(forward @ v[:, 0], backward[:, 0], rtol=1e-9, atol=1e-11), "one vector"


class OnlyBackwards(torch.autograd.Function):
    """x², without a derivative forwards."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.square()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, slope):
        return 2 * ctx.saved_tensors[0] * slope


class Square(nn.Module):
    def forward(self, x):
        return OnlyBackwards.apply(x)


@pytest.mark.parametrize(("layer", "expected"), [(nn.Tanh(), True), (Square(), False)])
def test_layers_without_forward_mode_are_found_out(layer, expected):
    net = nn.Sequential(nn.Conv1d(1, 1, 2), layer, nn.Flatten())
    land = bs.Landscape(net, "mse", (torch.ones(4, 1, 3), torch.ones(4, 2)))
    assert operators._differentiable_forwards(land) == expected
    assert not operators._forward_mode(land), "backwards is quicker on a processor"
    assert torch.isfinite(operators.hessian(land) @ torch.ones(land.dimension)).all()


def test_uneven_last_batch_counts_by_its_size():
    land = CASES["gaussian"](f64)
    product = hessian(land, memory=4 * 4 * 4 * activation_bytes(land))
    assert 1 < product.tiles.samples < land.n
    assert land.n % product.tiles.samples
    assert torch.allclose(product @ torch.eye(land.dimension, dtype=f64), written_out(land, "hessian"), atol=1e-13)


def test_linear_regression():
    x = torch.randn(20, 3, dtype=f64)
    land = bs.Landscape(nn.Linear(3, 2, bias=False).double(), "gaussian", (x, x[:, :2]), sigma=0.5)
    truth = torch.kron(torch.eye(2, dtype=f64), x.T @ x / 20 / 0.25)
    assert torch.allclose(written_out(land, "hessian"), truth)
    assert torch.allclose(written_out(land, "fisher"), truth)


def test_logistic_regression():
    x = torch.randn(20, 3, dtype=f64)
    net = nn.Linear(3, 1, bias=False).double()
    land = bs.Landscape(net, "bernoulli", (x, (x[:, :1] > 0).double()))
    p = net(x).sigmoid().detach()
    truth = x.T @ (p * (1 - p) * x) / 20
    assert torch.allclose(written_out(land, "hessian"), truth)
    assert torch.allclose(written_out(land, "fisher"), truth)


def test_softmax_regression():
    x, y = torch.randn(20, 3, dtype=f64), torch.randint(4, (20,))
    net = nn.Linear(3, 4, bias=False).double()
    land = bs.Landscape(net, "cross_entropy", (x, y))
    p = net(x).softmax(1).detach()
    spread = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    truth = sum(torch.kron(spread[i], torch.outer(x[i], x[i])) for i in range(20)) / 20
    assert torch.allclose(written_out(land, "hessian"), truth)
    assert torch.allclose(written_out(land, "fisher"), truth)


def test_ignored_positions_carry_no_information():
    tokens, labels = torch.randint(5, (6, 4)), torch.randint(5, (6, 4))
    net = nn.Sequential(nn.Embedding(5, 3), nn.Tanh(), nn.Linear(3, 5)).double()
    kept = bs.Landscape(net, "cross_entropy", (tokens[:, :2], labels[:, :2]))
    masked = bs.Landscape(net, "cross_entropy", (tokens, torch.cat([labels[:, :2], torch.full((6, 2), -100)], 1)))
    for matrix in ("hessian", "fisher", "covariance"):
        assert torch.allclose(written_out(masked, matrix), written_out(kept, matrix))


@pytest.mark.parametrize("matrix", ["hessian", "fisher", "covariance"])
def test_restriction_is_a_diagonal_block(matrix):
    land = CASES["gaussian"](f64)
    part = land.restrict("2.*")
    block = written_out(land, matrix)[-part.dimension :, -part.dimension :]
    assert torch.allclose(written_out(part, matrix), block)


def test_residual_is_hessian_minus_fisher():
    for name in ("gaussian", "bernoulli", "transformer", "tied"):
        land = CASES[name](f64)
        v = torch.randn(land.dimension, 3, dtype=f64)
        assert torch.allclose(residual(land) @ v, hessian(land) @ v - fisher(land) @ v, atol=1e-12)


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(2, 3), nn.Linear(3, 3)

    def forward(self, a, b):
        return self.left(a).tanh() + self.right(b).tanh()


def test_several_inputs_by_position_or_name():
    a, b, y = torch.randn(7, 2), torch.randn(7, 3), torch.randint(3, (7,))
    net = TwoInputs()
    first = bs.Landscape(net, "cross_entropy", ((a, b), y))
    second = bs.Landscape(net, "cross_entropy", ({"a": a, "b": b}, y))
    for matrix in ("hessian", "fisher", "covariance"):
        assert torch.equal(written_out(first, matrix), written_out(second, matrix))


def test_single_precision_and_no_grad():
    double, single = CASES["transformer"](f64), CASES["transformer"](torch.float32)
    with torch.no_grad():
        for matrix in ("hessian", "fisher", "covariance"):
            whole = written_out(double, matrix)
            assert float((written_out(single, matrix) - whole).abs().max()) < 1e-5 * float(whole.abs().max())


def test_the_model_is_left_alone():
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    land = bs.Landscape(net, "cross_entropy", (torch.randn(5, 3), torch.randint(2, (5,))))
    for matrix in ("hessian", "fisher", "covariance"):
        written_out(land, matrix)
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert all(parameter.grad is None for parameter in net.parameters())
    for module in (*net.modules(), *land.module.modules()):
        assert not [*module._forward_hooks, *module._backward_hooks, *module._forward_pre_hooks]


class Laplace:
    """A loss of one's own, |z − y| + log 2, that knows how to draw labels; its Fisher matrix is that of N(z, 1)."""

    def __call__(self, output, target):
        return (output - target).abs().sum(1) + math.log(2)

    def sample(self, output, generator):
        tail = torch.rand(output.shape, generator=generator, dtype=output.dtype) - 0.5
        return output - tail.sign() * torch.log1p(-2 * tail.abs())


def test_fisher_of_an_own_likelihood_from_drawn_labels():
    x = torch.randn(10, 2, dtype=f64)
    land = bs.Landscape(nn.Linear(2, 1).double(), Laplace(), (x, x[:, :1]))
    design = torch.cat([x, torch.ones(10, 1, dtype=f64)], 1)
    product = fisher(land, draws=3, seed=1)
    eye = torch.eye(3, dtype=f64)
    assert torch.allclose(product @ eye, design.T @ design / 10)  # the score is ±1, so that every draw is exact
    assert product.name == "fisher"
    assert product.psd


def test_what_cannot_be_computed_is_refused():
    land = CASES["gaussian"](f64)
    own = bs.Landscape(nn.Linear(2, 1), lambda z, y: (z - y).abs().sum(1), (torch.ones(3, 2), torch.ones(3, 1)))
    with pytest.raises(bs.InputError, match="sample"):
        fisher(own)
    with pytest.raises(bs.InputError, match="likelihood"):
        residual(own)
    with pytest.raises(bs.InputError, match="fishr"):
        operator(land, "fishr")
    with pytest.raises(bs.InputError, match="memory"):
        hessian(land, memory=0)
    with pytest.raises(bs.InputError, match=r"\(47,\)"):
        hessian(land) @ torch.ones(3)
    with pytest.raises(bs.InputError, match="draws"):
        fisher(bs.Landscape(nn.Linear(2, 1), Laplace(), (torch.ones(3, 2), torch.ones(3, 1))), draws=0)


def test_tiles_respect_the_memory_bound():
    net = nn.Sequential(nn.Linear(30, 50), nn.Tanh(), nn.Linear(50, 5))
    land = bs.Landscape(net, "cross_entropy", (torch.randn(400, 30), torch.randint(5, (400,))))
    assert activation_bytes(land) >= 4 * (50 + 5)
    for memory in (10_000, 300_000, 10_000_000):
        tiles = hessian(land, memory=memory).tiles
        least = tiles.samples == 1 and tiles.probes == 1
        assert least or 4 * tiles.samples * tiles.probes * activation_bytes(land) <= memory / 4
    generous = hessian(land).tiles
    assert (generous.samples, generous.probes, generous.keep) == (400, 32, True)


def test_single_vectors_go_through_in_larger_batches():
    net = nn.Sequential(nn.Linear(30, 50), nn.Tanh(), nn.Linear(50, 5)).double()
    land = bs.Landscape(net, "cross_entropy", (torch.randn(400, 30, dtype=f64), torch.randint(5, (400,))))
    memory = 32 * 4 * 4 * 64 * activation_bytes(land)
    several, single = hessian(land, memory=memory), hessian(land, memory=memory, probes=1)
    assert single.tiles.probes == 1 < several.tiles.probes
    assert single.tiles.samples > several.tiles.samples
    v = torch.randn(land.dimension, 3, dtype=f64)
    assert torch.allclose(single @ v, several @ v, atol=1e-13)


@pytest.mark.parametrize("name", ["hessian", "fisher", "covariance"])
def test_scipy_sees_the_same_matrix(name):
    land = classifier()
    matrix, there = written_out(land, name).numpy(), bs.operator(land, name).to_scipy()
    assert there.shape == matrix.shape
    vectors = torch.randn(land.dimension, 3, generator=torch.Generator().manual_seed(0), dtype=land.dtype).numpy()
    for given in (vectors, vectors[:, 0]):
        assert there @ given == pytest.approx(matrix @ given, rel=1e-5, abs=1e-6)
        assert there.H @ given == pytest.approx(matrix @ given, rel=1e-5, abs=1e-6)
