"""ŵ, the minimum of nβL + (γ/2)‖w − w*‖² near w*, against dense linear algebra in float64."""

import math

import pytest
import torch
from torch.func import grad, jacrev

import basinscope as bs
from basins import classifier, quadratic, saddle
from basinscope.sampling.chains import ChainLosses
from basinscope.sampling.descent import bottom
from basinscope.sampling.target import Target, Whitening

f64 = torch.float64
SIGMA = torch.tensor([1.0, 1.0, 0.1, 0.01, 1e-4], dtype=f64)
OFFSET = torch.tensor([1.0, -1.0, 3.0, 10.0, 30.0], dtype=f64)


def plain(land, nbeta, gamma, scale=None):
    """A target that is whitened by a number alone."""
    losses = ChainLosses(land)
    return Target(losses, nbeta, gamma, Whitening.identity(losses.origin, scale or gamma**-0.5))


def origin(target):
    return torch.zeros_like(target.losses.origin)[None]


def exact_quadratic(nbeta, gamma):
    """ŵ − w* and the drop of the quadratic with these curvatures and slopes."""
    slope = SIGMA * OFFSET
    delta = -nbeta * slope / (nbeta * SIGMA + gamma)
    return delta, -nbeta * float(slope @ delta + 0.5 * (SIGMA * delta**2).sum())


@pytest.mark.parametrize("dtype", [torch.float32, f64])
@pytest.mark.parametrize(("nbeta", "gamma"), [(40.0, 1.0), (2000.0, 0.1), (3.0, 5.0)])
def test_the_bottom_of_a_quadratic_is_that_of_a_dense_solve(dtype, nbeta, gamma):
    target = plain(quadratic(SIGMA.tolist(), offset=OFFSET.tolist(), dtype=dtype), nbeta, gamma)
    found = bottom(target, origin(target), tolerance=1e-3, evaluations=400)
    delta, drop = exact_quadratic(nbeta, gamma)
    rounding = 1e-6 if dtype == torch.float32 else 1e-9
    assert found.error <= 1e-3
    assert found.drop == pytest.approx(drop, abs=found.error, rel=rounding)
    assert found.localiser == pytest.approx(0.5 * gamma * float(delta @ delta), rel=1e-3)
    assert found.energy == pytest.approx(found.localiser - found.drop)
    assert not found.downward


def test_a_descent_that_may_not_go_on_charges_what_is_left():
    # The drop differs from that of ŵ by at most what ½gᵀA⁻¹g says, however early the descent ends.
    target = plain(quadratic(SIGMA.tolist(), offset=OFFSET.tolist(), dtype=f64), 2000.0, 0.1)
    _, drop = exact_quadratic(2000.0, 0.1)
    for evaluations in (1, 2, 4, 8, 16):
        found = bottom(target, origin(target), tolerance=1e-6, evaluations=evaluations)
        assert abs(found.drop - drop) <= 1.05 * found.error + 1e-9, "the certificate is good to 5 %"


def test_a_descent_takes_little_more_than_it_may():
    # Products with the Hessian cost three gradients each; a certificate that is cut short charges more.
    target = plain(classifier(), 200.0, 0.5)
    whole = bottom(target, origin(target), tolerance=1e-9, evaluations=2000)
    for evaluations in (4, 8, 20, 60):
        found = bottom(target, origin(target), tolerance=1e-9, evaluations=evaluations)
        assert found.evaluations <= evaluations + 5
        assert abs(found.energy - whole.energy) <= 1.05 * found.remaining + 1e-6
    assert whole.evaluations > 100


def test_a_minimum_costs_one_gradient():
    target = plain(quadratic(SIGMA.tolist(), dtype=f64), 40.0, 1.0)
    found = bottom(target, origin(target), tolerance=1e-3, evaluations=400)
    assert (found.drop, found.evaluations) == (pytest.approx(0.0, abs=1e-9), 1)


def test_what_is_known_is_not_looked_for_again():
    target = plain(quadratic(SIGMA.tolist(), offset=OFFSET.tolist(), dtype=f64), 40.0, 1.0)
    known = bottom(target, origin(target), tolerance=1e-3, evaluations=400)
    assert bottom(target, origin(target), tolerance=1e-3, evaluations=400, known=known) is known
    finer = bottom(target, origin(target), tolerance=1e-8, evaluations=400, known=known)
    assert finer.error <= 1e-8


def test_the_bottom_of_a_network_is_stationary_and_curved_upwards():
    land = classifier()
    target = plain(land, 200.0, 0.5)
    found = bottom(target, origin(target), tolerance=1e-6, evaluations=2000)

    def energy(delta):
        loss = land.losses(land.unflatten(target.losses.origin + delta), land.samples).mean()
        return 200.0 * loss + 0.25 * delta.square().sum()

    slope, curvature = grad(energy)(found.displacement), jacrev(grad(energy))(found.displacement)
    assert float(torch.linalg.eigvalsh(curvature)[0]) > 0
    assert 0.5 * float(slope @ torch.linalg.solve(curvature, slope)) <= 1e-6
    assert found.remaining == pytest.approx(
        0.5 * float(slope @ torch.linalg.solve(curvature, slope)), rel=0.1, abs=1e-9
    )
    assert found.drop > 10


def test_a_saddle_is_left_from_a_chain_that_has_left_it():
    # A linear network with a component to learn: 200 · (0.5²/2) nats lie below, less what the localiser takes.
    land = saddle()
    target = plain(land, 200.0, 1e-3)
    stays = bottom(target, origin(target), tolerance=1e-3, evaluations=400)
    assert stays.drop == pytest.approx(0.0, abs=1e-9), "the gradient vanishes there"
    delta = torch.zeros(2, land.dimension, dtype=f64)
    delta[1, 5] = delta[1, 16] = 0.3  # the second component, from both layers
    chains = target.whitening.inverse()(delta)
    found = bottom(target, chains, tolerance=1e-3, evaluations=400, known=stays)
    assert found.drop == pytest.approx(200.0 * 0.5**2 / 2, rel=0.01)


def test_a_loss_without_a_lower_end_has_no_bottom():
    class Falling(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor([0.3], dtype=f64))

        def forward(self, x):
            return -(self.weight**4) * x

    land = bs.Landscape(Falling(), lambda output, target: output[:, 0], (torch.ones(4, 1, dtype=f64), torch.ones(4)))
    target = plain(land, 10.0, 0.1)
    found = bottom(target, origin(target), tolerance=1e-3, evaluations=60)
    assert not found.certain(1e-3) or not math.isfinite(found.drop)
