import math

import pytest
import torch
from torch.func import grad

from basins import classifier, quadratic
from basinscope.sampling.chains import ChainLosses
from basinscope.sampling.target import Target, Whitening
from chance import assert_within

f64 = torch.float64
NBETA, GAMMA = 7.0, 0.3


def rotation(d, seed=0):
    return torch.linalg.qr(torch.randn(d, d, generator=torch.Generator().manual_seed(seed), dtype=f64))[0]


def dense(whitening, d):
    """The matrix of a whitening, column by column."""
    return whitening(torch.eye(d, dtype=f64)).T


def test_whitening_is_the_inverse_square_root_of_the_posterior_precision():
    vectors, values = rotation(6), torch.tensor([100.0, 10.0, 1.0, 0.1, 0.0, 0.0], dtype=f64)
    precision = NBETA * vectors @ torch.diag(values) @ vectors.T + GAMMA * torch.eye(6, dtype=f64)
    matrix = dense(Whitening.from_eigenpairs(values, vectors, NBETA, GAMMA), 6)
    torch.testing.assert_close(matrix @ precision @ matrix.T, torch.eye(6, dtype=f64), rtol=0, atol=1e-12)
    torch.testing.assert_close(matrix, matrix.T)


def test_negative_curvature_counts_as_flat():
    vectors = rotation(3)
    found = Whitening.from_eigenpairs(torch.tensor([2.0, 0.0, -5.0], dtype=f64), vectors, NBETA, GAMMA)
    flat = Whitening.from_eigenpairs(torch.tensor([2.0, 0.0, 0.0], dtype=f64), vectors, NBETA, GAMMA)
    torch.testing.assert_close(dense(found, 3), dense(flat, 3))


def test_beyond_the_known_directions_the_last_known_stiffness_holds():
    vectors = rotation(6)[:, :2]
    whitening = Whitening.from_eigenpairs(torch.tensor([100.0, 10.0], dtype=f64), vectors, NBETA, GAMMA)
    known = vectors @ vectors.T
    rest = (torch.eye(6, dtype=f64) - known) * (10 * NBETA + GAMMA) ** -0.5
    scales = torch.tensor([(100 * NBETA + GAMMA) ** -0.5, (10 * NBETA + GAMMA) ** -0.5], dtype=f64)
    torch.testing.assert_close(dense(whitening, 6), rest + vectors @ torch.diag(scales) @ vectors.T)


@pytest.mark.parametrize("known", [0, 2, 6])
def test_whitening_and_its_inverse(known):
    vectors = rotation(6)[:, :known]
    scales = torch.tensor([0.1, 0.5, 1.0, 2.0, 3.0, 4.0], dtype=f64)[:known]
    whitening = Whitening(vectors, scales, 0.7)
    rows = torch.randn(4, 6, generator=torch.Generator().manual_seed(1), dtype=f64)
    torch.testing.assert_close(whitening.inverse()(whitening(rows)), rows, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(whitening(whitening.inverse()(rows)), rows, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(rows @ dense(whitening, 6).T, whitening(rows), rtol=1e-10, atol=1e-12)


def test_identity():
    rows = torch.randn(4, 6, dtype=f64)
    assert torch.equal(Whitening.identity(rows[0])(rows), rows)
    assert torch.equal(Whitening.identity(rows[0], 3.0)(rows), 3 * rows)


@pytest.fixture(scope="module")
def target():
    land = classifier()
    vectors = rotation(land.dimension)[:, :5]
    values = torch.tensor([9.0, 4.0, 1.0, 0.5, 0.2], dtype=f64)
    return Target(ChainLosses(land), NBETA, GAMMA, Whitening.from_eigenpairs(values, vectors, NBETA, GAMMA))


@pytest.fixture(scope="module")
def position(target):
    return torch.randn(3, target.losses.dimension, generator=torch.Generator().manual_seed(2), dtype=f64)


def potential(target, chosen=None):
    """U(z) written out: nβ (L(w* + Sz) − L(w*)) + (γ/2)‖Sz‖²."""
    land = target.losses.land if chosen is None else target.losses.land.subset(chosen)
    matrix = dense(target.whitening, target.losses.dimension)

    def energy(z):
        delta = matrix @ z
        losses = land.losses(land.unflatten(target.losses.origin + delta), land.samples)
        excess = losses.mean() - land.losses(land.parameters, land.samples).mean()
        return target.nbeta * excess + target.gamma / 2 * delta.square().sum()

    return energy


def test_energy_and_gradient_against_autograd(target, position):
    energy = potential(target)
    here = target.full(position)
    expected = torch.stack([energy(z) for z in position])
    torch.testing.assert_close(target.energy(here), expected, rtol=1e-9, atol=1e-11)
    slopes = torch.stack([grad(energy)(z) for z in position])
    torch.testing.assert_close(here.gradient, slopes, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(target.force(position), slopes, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(here.distance, target.whitening(position).square().sum(1))
    torch.testing.assert_close(here.excess, target.losses.excess(target.whitening(position)), rtol=1e-9, atol=1e-11)


def test_soft_virial_is_twice_the_excess_of_a_quadratic(seed):
    # With M = Σ nβσ/(nβσ + γ) v vᵀ, δᵀM∇U = nβ δᵀHδ = 2nβ·excess draw by draw, and its posterior mean is Tr M.
    sigma = torch.tensor([4.0, 1.0, 0.01], dtype=f64)
    land = quadratic(sigma.tolist(), noise=0.5, dtype=f64)
    whitening = Whitening.from_eigenpairs(sigma, torch.eye(3, dtype=f64), NBETA, GAMMA)
    target = Target(ChainLosses(land), NBETA, GAMMA, whitening)
    weights = NBETA * sigma / (NBETA * sigma + GAMMA)
    torch.testing.assert_close(target.weights(), weights)
    draws = torch.randn(10_000, 3, generator=torch.Generator().manual_seed(seed), dtype=f64)  # exact: it is whitened
    here = target.full(draws)
    _, soft, tilt = target.controls(draws, here.gradient)
    assert torch.equal(tilt, torch.zeros_like(tilt))
    torch.testing.assert_close(soft, 2 * NBETA * here.excess, rtol=1e-8, atol=1e-10)
    assert_within(soft.mean(), weights.sum(), soft.std() / math.sqrt(10_000), freedom=50)  # squares are skew


def test_tilt_takes_the_slope_out_of_the_excess_of_a_displaced_quadratic(seed):
    # nβ(L − L(ŵ)) = −γ(ŵ − w*)·η + ½ nβ ηᵀHη with η = w − ŵ: the tilt is the first part with the other sign.
    sigma, offset = torch.tensor([4.0, 1.0, 0.01], dtype=f64), torch.tensor([1.0, -2.0, 9.0], dtype=f64)
    land = quadratic(sigma.tolist(), offset=offset.tolist(), noise=0.5, dtype=f64)
    stiffness = NBETA * sigma + GAMMA
    centre = -NBETA * sigma * offset / stiffness
    whitening = Whitening.from_eigenpairs(sigma, torch.eye(3, dtype=f64), NBETA, GAMMA)
    target = Target(ChainLosses(land), NBETA, GAMMA, whitening, centre=centre)
    noise = torch.randn(10_000, 3, generator=torch.Generator().manual_seed(seed), dtype=f64)
    here = target.full(whitening.inverse()(centre[None]) + noise)
    virial, soft, tilt = target.controls(whitening.inverse()(centre[None]) + noise, here.gradient)
    eta = whitening(noise)
    torch.testing.assert_close(NBETA * tilt, GAMMA * eta @ centre, rtol=1e-8, atol=1e-8)
    bottom = NBETA * float((sigma * offset * centre + 0.5 * sigma * centre**2).sum())
    torch.testing.assert_close(NBETA * (here.excess + tilt) - bottom, 0.5 * soft, rtol=1e-7, atol=1e-8)
    torch.testing.assert_close(virial, noise.square().sum(1), rtol=1e-8, atol=1e-8)
    assert_within(tilt.mean(), 0.0, tilt.std() / math.sqrt(10_000), freedom=50)


def test_minibatch_gradient_against_autograd(target, position):
    chosen = torch.randint(40, (3, 6), generator=torch.Generator().manual_seed(3))
    here = target.minibatch(position, chosen)
    energies = [potential(target, own) for own in chosen]
    slopes = torch.stack([grad(energy)(z) for energy, z in zip(energies, position, strict=True)])
    torch.testing.assert_close(here.gradient, slopes, rtol=1e-9, atol=1e-11)
    expected = torch.stack([energy(z) for energy, z in zip(energies, position, strict=True)])
    torch.testing.assert_close(target.energy(here), expected, rtol=1e-9, atol=1e-11)


def test_control_variates_take_out_the_noise_at_the_origin(target, position):
    chosen = torch.randint(40, (3, 6), generator=torch.Generator().manual_seed(3))
    mean = target.losses.gradient(torch.zeros(1, target.losses.dimension, dtype=f64))[0]
    zero = torch.zeros_like(position)
    torch.testing.assert_close(
        target.controlled(zero, chosen, mean).gradient, target.full(zero).gradient, rtol=1e-9, atol=1e-11
    )
    # Elsewhere: the minibatch's own gradient, less its error at w*.
    found = target.controlled(position, chosen, mean)
    plain = target.minibatch(position, chosen)
    shift = target.minibatch(zero, chosen).gradient - target.full(zero).gradient
    torch.testing.assert_close(found.gradient, plain.gradient - shift, rtol=1e-9, atol=1e-11)
    away = (position * shift).sum(1) / NBETA  # δ·e = z·(Se)
    torch.testing.assert_close(found.excess, plain.excess - away, rtol=1e-9, atol=1e-11)
    # And unbiased: over all single-sample minibatches they average to the full gradient and excess loss.
    every = torch.arange(40)[:, None]
    single, exact = target.controlled(position[:1].expand(40, -1), every, mean), target.full(position[:1])
    torch.testing.assert_close(single.gradient.mean(0), exact.gradient[0], rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(single.excess.mean(), exact.excess[0], rtol=1e-9, atol=1e-11)


def test_noise_of_the_controlled_loss_of_a_regression():
    # Excess losses of a regression are (x·δ)²/2 − e x·δ. The batch's gradient at w*, −Σ e x/m, explains the second part
    # but for its mean, so that only the spread of the first is left, divided by the number of samples in a batch.
    land = quadratic([2.0, 0.5, 0.1], n=300, noise=1.5, dtype=f64)
    losses = ChainLosses(land)
    target = Target(losses, NBETA, GAMMA, Whitening.identity(losses.origin))
    delta = torch.tensor([[0.3, -0.2, 0.5]], dtype=f64)
    x, y = land.samples.inputs, land.samples.target
    along, residual = (x @ delta[0]), (y - x @ land.parameters["weight"].T)[:, 0]
    chosen = torch.randint(300, (20_000, 8), generator=torch.Generator().manual_seed(0))
    rows = delta.expand(20_000, -1)
    mean = losses.gradient(torch.zeros_like(delta))[0]
    for found, exact in (
        (target.minibatch(rows, chosen).excess, (along**2 / 2 - residual * along).var(correction=0) / 8),
        (target.controlled(rows, chosen, mean).excess, (along**2 / 2).var(correction=0) / 8),
    ):
        # 20,000 means of 8: their variance is known to some √(3/20,000) of it
        assert float(found.var()) == pytest.approx(float(exact), rel=0.08)
