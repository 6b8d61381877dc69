"""The samplers of many networks at once against landscapes, closed forms and plain sums."""

import math

import numpy as np
import pytest
import torch

import basinscope as bs
from basinscope.errors import InputError
from basinscope.measures.pointwise import pointwise
from basinscope.zoo.models import convnet, ffnn
from chance import assert_within
from studies.flatness import stacks
from studies.flatness.matrices import matrices, outputs
from studies.flatness.posterior import Chains, Posterior, _Moments
from studies.flatness.spectra import Basis, bases, regularized


def networks(kind, count=2, n=11, dtype=torch.float64):
    """Landscapes of a few networks on the same data, and their bases."""
    shape = (n, 1, 7, 7) if kind == "cnn" else (n, 49)
    torch.manual_seed(3)
    data = (torch.randn(shape, dtype=dtype), torch.randint(10, (n,)))
    nets = [(convnet([1, 2, 2, 10]) if kind == "cnn" else ffnn([49, 3, 10])).to(dtype) for _ in range(count)]
    lands = [bs.Landscape(net, "cross_entropy", data) for net in nets]
    curvatures = [matrices(land, outputs(land)) for land in lands]
    turned = [bases(each.fisher, each.layers) for each in curvatures]
    return lands, turned, curvatures


def target(kind, decays=(0.1, 0.2), gamma=5.0, **more):
    lands, turned, curvatures = networks(kind, len(decays), **more)
    weights = torch.stack([land.flatten(land.parameters) for land in lands])
    return Posterior(lands[0], weights, turned, list(decays), gamma), lands, curvatures


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
@pytest.mark.parametrize("memory", [None, 1])
def test_losses_and_gradients_are_those_of_each_landscape(kind, memory, monkeypatch):
    if memory:
        monkeypatch.setattr(stacks, "_MEMORY", {"cpu": 20_000})  # a few samples at a time
    many, lands, _ = target(kind)
    delta = 0.1 * torch.randn(2, lands[0].dimension, generator=torch.Generator().manual_seed(1)).double()
    for number, land in enumerate(lands):
        moved = land.at(land.unflatten(land.flatten(land.parameters) + delta[number]))
        free = {name: tensor.clone().requires_grad_() for name, tensor in moved.parameters.items()}
        slope = torch.autograd.grad(land.losses(free, land.samples).mean(), list(free.values()))
        assert torch.allclose(many.losses(delta)[number], moved.per_sample())
        exact = torch.cat([part.flatten() for part in slope])
        assert torch.allclose(many.gradient(delta)[number], exact, atol=1e-9)


def test_coordinates_make_the_quadratic_picture_round_and_forces_belong_to_them():
    many, lands, curvatures = target("mlp", gamma=2.0)
    nbeta = 40.0
    scales = many._scales(nbeta)
    z, g = (torch.randn(2, lands[0].dimension, generator=torch.Generator().manual_seed(s)).double() for s in (0, 1))
    # ⟨g, U D z⟩ = ⟨D Uᵀ g, z⟩
    assert torch.allclose((g * many._move(z, scales)).sum(1), (many._pull(g, scales) * z).sum(1))
    # (U D)ᵀ (nβ F + γ) (U D) has a diagonal of ones
    size = lands[0].dimension
    columns = torch.eye(size, dtype=torch.float64)
    for number, gamma in enumerate(many.gammas(nbeta).tolist()):
        turned = torch.stack([many._move(column.expand(2, -1), scales)[number] for column in columns])
        whitened = turned @ (nbeta * curvatures[number].fisher + gamma * columns) @ turned.T
        assert torch.allclose(whitened.diagonal(), torch.ones(size, dtype=torch.float64), atol=1e-8)


def test_gamma_is_that_of_the_weight_decay_and_the_hold():
    many, *_ = target("mlp", decays=(0.1, 2.0), gamma=5.0)
    assert many.gammas(10.0).tolist() == [6.0, 25.0]


def test_ridge_regression_has_the_closed_form(seed):
    """A Gaussian posterior: λ̂ = ½ Tr H (H + w)⁻¹, and the variances of the losses are known too."""
    generator = torch.Generator().manual_seed(0)
    n, d, decay, copies = 20, 3, 0.3, 40
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    y = torch.randn(n, 1, generator=generator, dtype=torch.float64)
    hessian = x.T @ x / n
    ridge = torch.linalg.solve(hessian + decay * torch.eye(d, dtype=torch.float64), x.T @ y / n).T
    net = torch.nn.Sequential(torch.nn.Linear(d, 1, bias=False).double())
    land = bs.Landscape(net, "mse", (x, y)).at({"0.weight": ridge})
    # a basis that is not that of H: the whitening need not be perfect
    basis = Basis(
        torch.arange(d)[None], *(torch.eye(k, dtype=torch.float64) for k in (1, d)), *[hessian.diagonal()[None]] * 2
    )
    many = Posterior(land, ridge.repeat(copies, 1), [[basis]] * copies, [decay] * copies, 1e-9)
    nbeta = float(n)
    chains = many.sample(nbeta, draws=200, warmup=60, leapfrogs=4, seeds=range(seed, seed + copies))
    half = regularized(hessian, decay).soft_rank / 2
    for values, exact in (
        (nbeta * chains.excess.mean(1), half),
        (chains.virial.mean(1), 1.0),
        (chains.functional_variance, _regression_variance(x, y, ridge, nbeta * (hessian + decay * torch.eye(d)))),
    ):
        error = values.std(ddof=1) / math.sqrt(copies)
        assert error < 0.05 * exact
        assert_within(values.mean(), exact, error, freedom=copies - 1, bias=0.01 * exact)


def _regression_variance(x, y, mean, precision):
    """Σ_i Var[l_i] with l = (y − w·x)²/2 and w Gaussian: e²v + v²/2."""
    spread = ((x @ torch.linalg.inv(precision)) * x).sum(1)
    residual = (y - x @ mean.T)[:, 0]
    return float((residual.square() * spread + spread.square() / 2).sum())


def test_a_basin_that_is_not_quadratic_is_integrated_right(seed):
    """Logistic regression with two weights: the posterior mean of the excess loss by quadrature."""
    generator = torch.Generator().manual_seed(1)
    x = 2 * torch.randn(9, 1, generator=generator, dtype=torch.float64)
    labels = (torch.rand(9, generator=generator) < 0.6).long()
    net = torch.nn.Sequential(torch.nn.Linear(1, 2, bias=False).double())
    point = torch.tensor([[0.3], [-0.2]], dtype=torch.float64)  # no minimum
    land = bs.Landscape(net, "cross_entropy", (x, labels)).at({"0.weight": point})
    copies, nbeta, gamma, decay = 40, 9.0, 0.7, 0.05
    basis = Basis(
        torch.arange(2)[:, None], *(torch.eye(k, dtype=torch.float64) for k in (2, 1)), *[torch.ones(2, 1).double()] * 2
    )
    many = Posterior(land, point.T.repeat(copies, 1), [[basis]] * copies, [decay] * copies, gamma)
    chains = many.sample(nbeta, draws=300, warmup=60, leapfrogs=6, seeds=range(seed, seed + copies))
    line = torch.linspace(-14, 14, 281, dtype=torch.float64)
    grid = torch.cartesian_prod(line, line)
    scores = (point.T + grid)[:, None, :] * x
    losses = torch.nn.functional.cross_entropy(scores.flatten(0, 1), labels.repeat(len(grid)), reduction="none")
    excess = losses.view(-1, 9).mean(1) - land.per_sample().mean()
    free = point.clone().requires_grad_()
    (slope,) = torch.autograd.grad(torch.nn.functional.cross_entropy(x @ free.T, labels), free)
    tilted = excess - grid @ slope[:, 0]
    chance = (-nbeta * tilted - (nbeta * decay + gamma) / 2 * grid.square().sum(1)).softmax(0)
    values, wanted = chains.excess.mean(1), float((chance * excess).sum())
    error = values.std(ddof=1) / math.sqrt(copies)
    assert_within(values.mean(), wanted, error, freedom=copies - 1)
    assert error < 0.1 * float((chance * (excess - wanted).square()).sum().sqrt())


def test_a_network_draws_the_same_whoever_is_beside_it():
    many, lands, _ = target("mlp")
    _, turned, _ = networks("mlp")
    alone = Posterior(lands[1], many.weights[1:], turned[1:], [0.2], 5.0)
    both = many.sample(20.0, draws=5, warmup=5, leapfrogs=3, seeds=[4, 5])
    one = alone.sample(20.0, draws=5, warmup=5, leapfrogs=3, seeds=[5])
    assert np.allclose(both.excess[1], one.excess[0])


def test_running_sums_equal_those_of_all_draws_at_once():
    losses = torch.rand(9, 2, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sums = _Moments.of(losses[0])
    for draw in losses:
        sums.add(draw)
    for number in range(2):
        exact = pointwise(-losses[:, number], beta=1.0)
        assert float(sums.variance()[number]) == pytest.approx(exact.functional_variance)
        predictive = -(sums.log_sum[number] - math.log(9)).mean()
        assert float(predictive) == pytest.approx(exact.bayes_training_loss)
        gibbs = (sums.base[number] + sums.first[number] / 9).mean()
        assert float(gibbs) == pytest.approx(exact.gibbs_training_loss)


def test_verdicts():
    def chains(values, virial=1.0, acceptance=0.8):
        row = np.array([values])
        return Chains(
            row, np.full_like(row, virial), np.array([acceptance]), *(np.zeros(1) for _ in range(3))
        )  # fmt: skip

    noise = np.random.default_rng(0).normal(size=100)
    assert chains(5 + 0.1 * noise).verdict(0) == "ok"
    assert chains(5 + 0.1 * noise, virial=1.3).verdict(0) == "doubtful"
    assert chains(5 + 0.1 * noise, acceptance=0.1).verdict(0) == "doubtful"
    assert chains(np.linspace(1, 9, 100)).verdict(0) == "doubtful"
    assert chains(-5 + 0.1 * noise).verdict(0) == "failed"
    assert chains(np.full(100, np.nan)).verdict(0) == "failed"


def test_every_network_needs_its_bases():
    many, lands, _ = target("mlp")
    with pytest.raises(InputError, match="1 sets of bases"):
        Posterior(lands[0], many.weights, [many.bases[0]], [0.1, 0.1], 1.0)
