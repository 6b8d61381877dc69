import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import basinscope as bs
from basinscope.curvature.dense import dense, gram
from basinscope.curvature.gradients import Gradients
from basinscope.curvature.operators import operator
from gradient_cases import CASES

f64 = torch.float64


def relative(result, truth):
    return float((result - truth).abs().max()) / max(float(truth.abs().max()), 1e-30)


@pytest.mark.parametrize("matrix", ["fisher", "covariance", "hessian"])
@pytest.mark.parametrize("name", CASES)
def test_written_out_matrix_equals_the_operator(name, matrix):
    land = CASES[name](f64)
    product = operator(land, matrix) @ torch.eye(land.dimension, dtype=f64)
    # A tiny memory bound makes tiles of few samples, the last one smaller than the others.
    result = dense(land, matrix, memory=20_000)
    assert relative(result, product) < 1e-12 or float(product.abs().max()) == float(result.abs().max()) == 0


@pytest.mark.parametrize("matrix", ["fisher", "covariance"])
@pytest.mark.parametrize("name", CASES)
def test_gram_matrix_has_the_same_eigenvalues(name, matrix):
    land = CASES[name](f64)
    scale = torch.rand(land.dimension, dtype=f64, generator=torch.Generator().manual_seed(0)) + 0.5
    for factor in (None, scale):
        primal = torch.linalg.eigvalsh(dense(land, matrix, factor)).flip(0)
        dual = torch.linalg.eigvalsh(gram(land, matrix, factor)).flip(0)
        shared = min(len(primal), len(dual))
        assert torch.allclose(primal[:shared], dual[:shared], atol=1e-12)
        assert all(float(rest.abs().sum()) < 1e-10 for rest in (primal[shared:], dual[shared:]))


class Peak(TorchDispatchMode):
    """The most bytes that tensors made inside held at one time."""

    def __init__(self):
        super().__init__()
        self.bytes, self._alive = 0, {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self._alive = {key: item for key, item in self._alive.items() if not item[0].expired()}
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "cpu":
                storage = tensor.untyped_storage()
                self._alive[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self.bytes = max(self.bytes, sum(size for _, size in self._alive.values()))
        return result


def _wide(kind):
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(4, (30,), generator=generator)
    if kind == "convolutions":
        x = torch.randn(30, 3, 6, 6, generator=generator)
        net = nn.Sequential(nn.Conv2d(3, 20, 3), nn.ReLU(), nn.Conv2d(20, 40, 3), nn.Flatten(), nn.Linear(160, 4))
    else:
        x = torch.randn(30, 60, generator=generator)
        net = nn.Sequential(nn.Linear(60, 90), nn.Tanh(), nn.Linear(90, 90), nn.Tanh(), nn.Linear(90, 4))
    return bs.Landscape(net, data=(x, y))


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("kind", ["convolutions", "linear"])
def test_gram_matrix_stays_within_its_memory_bound(kind, uneven):
    land, bound = _wide(kind), 2_000_000
    scale = torch.linspace(0.5, 2, land.dimension) if uneven else None  # outer products must then be written out
    truth = gram(land, "fisher", scale)
    layer = max(tensor.numel() for tensor in land.parameters.values())
    assert len(truth) * layer * 4 > 1.2 * bound  # the rows of one layer alone are too much
    with Peak() as peak:
        result = gram(land, "fisher", scale, memory=bound)
    assert relative(result, truth) < 1e-6
    assert peak.bytes <= bound + truth.numel() * 8


def test_uneven_tiles_weigh_samples_alike():
    land = CASES["relu"](f64)
    tiled = Gradients(land, "fisher", memory=12_000)
    assert 1 < tiled.tile < land.n
    assert land.n % tiled.tile
    assert relative(dense(land, "fisher", memory=12_000), dense(land, "fisher")) < 1e-14


def test_scale_acts_on_both_sides():
    land = CASES["twice"](f64)
    scale = torch.linspace(0.5, 2, land.dimension, dtype=f64)
    assert relative(dense(land, "fisher", scale), scale[:, None] * dense(land, "fisher") * scale) < 1e-14


def test_what_layers_cannot_explain_is_written_out_sample_by_sample():
    assert Gradients(CASES["relu"](f64), "fisher").unstructured == []
    assert Gradients(CASES["transformer"](f64), "fisher").unstructured == []
    assert Gradients(CASES["tied"](f64), "fisher").unstructured == ["embed.weight"]
    assert Gradients(CASES["positions first"](f64), "fisher").unstructured == ["first.weight", "first.bias"]
    assert len(Gradients(CASES["recurrent"](f64), "fisher").unstructured) == 4


def test_single_precision_loses_only_single_precision():
    for name in ("relu", "convolutions", "transformer"):
        assert relative(dense(CASES[name](torch.float32), "fisher"), dense(CASES[name](f64), "fisher")) < 1e-5


def test_linear_regression_fisher_is_the_design():
    x = torch.randn(30, 4, dtype=f64)
    land = bs.Landscape(nn.Linear(4, 2, bias=False).double(), "gaussian", (x, x[:, :2]), sigma=0.3)
    assert relative(dense(land, "fisher"), torch.kron(torch.eye(2, dtype=f64), x.T @ x / 30 / 0.09)) < 1e-13


def test_logistic_regression_fisher():
    x = torch.randn(30, 4, dtype=f64)
    net = nn.Linear(4, 1, bias=False).double()
    land = bs.Landscape(net, "bernoulli", (x, (x[:, :1] > 0).double()))
    chance = (x @ net.weight.detach().T).sigmoid()
    assert relative(dense(land, "fisher"), x.T @ (chance * (1 - chance) * x) / 30) < 1e-13


def test_softmax_regression_fisher_and_covariance():
    x, y = torch.randn(30, 4, dtype=f64), torch.randint(3, (30,))
    net = nn.Linear(4, 3, bias=False).double()
    land = bs.Landscape(net, "cross_entropy", (x, y))
    chance = net(x).softmax(1).detach()
    spread = torch.diag_embed(chance) - chance[:, :, None] * chance[:, None, :]
    error = chance - nn.functional.one_hot(y, 3)
    fisher = sum(torch.kron(spread[i], torch.outer(x[i], x[i])) for i in range(30)) / 30
    noise = sum(torch.kron(torch.outer(error[i], error[i]), torch.outer(x[i], x[i])) for i in range(30)) / 30
    assert relative(dense(land, "fisher"), fisher) < 1e-13
    assert relative(dense(land, "covariance"), noise) < 1e-13
    assert relative(dense(land, "hessian"), fisher) < 1e-13  # a linear model's Hessian is its Fisher matrix


def test_confident_outputs_keep_their_small_curvature():
    land = bs.Landscape(nn.Linear(1, 3).double(), "cross_entropy", (torch.ones(1, 1), torch.tensor([0])))
    land = land.at({"weight": torch.zeros(3, 1), "bias": torch.tensor([40.0, 0.0, 0.0])})
    assert dense(land, "fisher")[-1, -1] == pytest.approx(4.248e-18, rel=1e-3)


def test_fisher_needs_a_likelihood_and_covariance_does_not():
    def distance(output, target):
        return (output - target).abs().sum(1)

    land = bs.Landscape(nn.Linear(2, 1), distance, (torch.randn(5, 2), torch.zeros(5, 1)))
    assert dense(land, "covariance").shape == (3, 3)
    with pytest.raises(bs.InputError, match="distance"):
        dense(land, "fisher")
