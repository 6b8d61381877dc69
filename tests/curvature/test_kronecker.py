import pytest
import torch
from torch import nn

import basinscope as bs
from basinscope.curvature.dense import dense
from basinscope.curvature.kronecker import diagonal, ekfac, kfac
from gradient_cases import CASES

f64 = torch.float64


def eigenvalues(matrix):
    return torch.linalg.eigvalsh(matrix)


def assert_same(values, truth):
    assert torch.allclose(values.sort().values, truth.sort().values, atol=1e-12 * float(truth.abs().max()))


@pytest.mark.parametrize("matrix", ["fisher", "covariance"])
@pytest.mark.parametrize("name", CASES)
def test_diagonal_is_that_of_the_matrix(name, matrix):
    land = CASES[name](f64)
    assert torch.allclose(diagonal(land, matrix), dense(land, matrix).diagonal(), atol=1e-13)


@pytest.mark.parametrize("sharing", ["expand", "reduce"])
@pytest.mark.parametrize("name", ["relu", "gaussian", "convolutions", "twice", "transformer"])
def test_ekfac_keeps_the_trace(name, sharing):
    land = CASES[name](f64)
    assert float(ekfac(land, "fisher", sharing=sharing).sum()) == pytest.approx(
        float(dense(land, "fisher").trace()), rel=1e-10
    )


def test_kfac_is_exact_for_linear_regression():
    x = torch.randn(20, 4, dtype=f64)
    land = bs.Landscape(nn.Linear(4, 3).double(), "gaussian", (x, x[:, :3]), sigma=0.7)
    for stand_in in (kfac, ekfac):
        assert_same(stand_in(land, "fisher"), eigenvalues(dense(land, "fisher")))


def test_kfac_is_exact_for_one_sample():
    land = bs.Landscape(nn.Linear(4, 3).double(), "cross_entropy", (torch.randn(1, 4), torch.tensor([1])))
    for matrix in ("fisher", "covariance"):
        for stand_in in (kfac, ekfac):
            assert_same(stand_in(land, matrix), eigenvalues(dense(land, matrix)))


def test_expand_is_exact_where_positions_do_not_meet():
    x = torch.randn(20, 5, 4, dtype=f64)
    land = bs.Landscape(nn.Linear(4, 3).double(), "mse", (x, x[..., :3]))
    truth = eigenvalues(dense(land, "fisher"))
    assert_same(kfac(land, "fisher", sharing="expand"), truth)
    assert abs(float(kfac(land, "fisher", sharing="reduce").sum() / truth.sum()) - 1) > 0.1


def test_reduce_is_exact_where_positions_are_averaged():
    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.map = nn.Linear(4, 3)

        def forward(self, x):
            return self.map(x).mean(1)

    x = torch.randn(20, 5, 4, dtype=f64)
    land = bs.Landscape(Mean().double(), "mse", (x, x[:, 0, :3]))
    truth = eigenvalues(dense(land, "fisher"))
    assert_same(kfac(land, "fisher", sharing="reduce"), truth)
    assert abs(float(kfac(land, "fisher", sharing="expand").sum() / truth.sum()) - 1) > 0.1


def test_convolution_is_a_linear_layer_on_patches():
    image = torch.randn(9, 2, 5, 5, dtype=f64)
    net = nn.Sequential(nn.Conv2d(2, 3, 3, stride=2, padding=1), nn.Flatten()).double()
    land = bs.Landscape(net, "mse", (image, torch.zeros(9, 27)))
    patches = nn.functional.unfold(image, 3, padding=1, stride=2).mT.reshape(-1, 18)
    inputs = torch.cat([patches, torch.ones(len(patches), 1, dtype=f64)], 1)
    # Every output is its own Gaussian: B = T·I with T = 9 positions, A the mean over positions.
    truth = torch.kron(torch.eye(3, dtype=f64) * 9, inputs.T @ inputs / len(inputs))
    assert_same(kfac(land, "fisher"), eigenvalues(truth))
    assert_same(kfac(land, "fisher"), eigenvalues(dense(land, "fisher")))


def test_embedding_factors_count_tokens():
    tokens = torch.tensor([[0, 1], [1, 1], [2, 0]])
    net = nn.Sequential(nn.Embedding(4, 2), nn.Flatten()).double()
    land = bs.Landscape(net, "mse", (tokens, torch.zeros(3, 4)))
    # B = T·I and A = diag of token frequencies.
    frequency = torch.tensor([2, 3, 1, 0], dtype=f64) / 6
    assert_same(kfac(land, "fisher"), torch.outer(torch.full((2,), 2.0, dtype=f64), frequency).flatten())
    assert_same(kfac(land, "fisher"), eigenvalues(dense(land, "fisher")))


def test_attention_projections_have_a_factor_each():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

        def forward(self, x):
            return self.attention(x, x, x, need_weights=False)[0]

    x = torch.randn(6, 3, 4, dtype=f64)
    land = bs.Landscape(Attention().double(), "mse", (x, x))
    values = kfac(land, "fisher")
    assert len(values) == land.dimension == 4 * (16 + 4)
    # The output projection meets each position once and its loss is Gaussian: its factors are exact.
    part = land.restrict("*out_proj*")
    assert_same(kfac(part, "fisher"), eigenvalues(dense(part, "fisher")))
    assert_same(kfac(part, "fisher"), values[-20:])


def test_a_layer_used_twice_has_twice_the_positions():
    land = CASES["twice"](f64)
    mix = land.restrict("mix.*")
    weight, bias = land.parameters["mix.weight"], land.parameters["mix.bias"]
    x = land.samples.inputs
    hidden = (x @ weight.T + bias).tanh()
    one = torch.ones(11, 1, dtype=f64)
    inputs = torch.cat([torch.cat([x, one], 1), torch.cat([hidden, one], 1)])
    chance = land.outputs(land.parameters, x).softmax(1)
    spread = torch.diag_embed(chance) - chance[:, :, None] * chance[:, None, :]
    last = (hidden @ weight.T + bias).tanh()
    second = land.parameters["out.weight"] * (1 - last**2)[:, None, :]  # Jacobian at the second use, (11, 3, 4)
    first = second @ (weight * (1 - hidden**2)[:, None, :])
    outputs = sum((jacobian.mT @ spread @ jacobian).mean(0) for jacobian in (first, second))
    truth = torch.kron(outputs, inputs.T @ inputs / 22)
    assert_same(kfac(mix, "fisher"), eigenvalues(truth))


@pytest.mark.parametrize("stand_in", [kfac, ekfac])
def test_unknown_layers_are_named(stand_in):
    with pytest.raises(bs.InputError, match=r"'rnn.weight_ih_l0' of layer 'rnn' \(LSTM\)"):
        stand_in(CASES["recurrent"](f64), "fisher")
    with pytest.raises(bs.InputError, match=r"'embed.weight' of layer 'embed' \(Embedding\)"):
        stand_in(CASES["tied"](f64), "fisher")
    with pytest.raises(bs.InputError, match=r"'first.weight'"):
        stand_in(CASES["positions first"](f64), "fisher")


def test_bad_arguments():
    land = CASES["relu"](f64)
    with pytest.raises(bs.InputError, match="sharing"):
        kfac(land, "fisher", sharing="both")
    with pytest.raises(bs.InputError, match="same for all outputs"):
        kfac(land, "fisher", torch.linspace(1, 2, land.dimension, dtype=f64))
