"""Exact covariances against quadrature, a random check of Wick's theorem, and limits known in closed form."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from basinscope.errors import InputError
from basinscope.exact import finite
from basinscope.exact.finite import Observable, covariance, monomial_mean

GENERATOR = np.random.default_rng(3)


def symmetric(order, scale=1.0):
    """A random symmetric tensor over two dimensions."""
    tensor = GENERATOR.normal(size=(2,) * order)
    axes = [np.transpose(tensor, each) for each in permutations(order)]
    return scale * sum(axes) / len(axes)


def permutations(order):
    return list(itertools.permutations(range(order)))


HESSIAN = np.array([[2.0, 0.5], [0.5, 1.0]])
CUBIC, QUARTIC = symmetric(3), 6 * np.einsum("ij,kl->ijkl", np.eye(2), np.eye(2))
QUARTIC = sum(np.transpose(QUARTIC, each) for each in permutations(4)) / 24
PHI = Observable([0.7, -0.4], symmetric(2))
PSI = Observable([0.2, 1.1], symmetric(2))


def by_quadrature(phi, psi, t, gamma, cubic, quartic):
    """Cov(φ, ψ) on a grid of ten standard deviations, where the trapezoidal rule is exact to rounding."""
    width = 10 / math.sqrt(t * np.linalg.eigvalsh(HESSIAN)[0] + gamma)
    line = np.linspace(-width, width, 801)
    delta = np.stack(np.meshgrid(line, line, indexing="ij"))
    energy = (
        t
        * (
            np.einsum("ij,iab,jab->ab", HESSIAN, delta, delta) / 2
            + np.einsum("ijk,iab,jab,kab->ab", cubic, delta, delta, delta, optimize=True) / 6
            + np.einsum("ijkl,iab,jab,kab,lab->ab", quartic, delta, delta, delta, delta, optimize=True) / 24
        )
        + gamma * (delta**2).sum(0) / 2
    )
    weight = np.exp(-energy)
    weight /= weight.sum()

    def values(observable):
        bend = np.einsum("ij,iab,jab->ab", np.array(observable.curvature), delta, delta) / 2
        return np.einsum("i,iab->ab", np.array(observable.gradient), delta) + bend

    one, two = values(phi), values(psi)
    return (weight * one * two).sum() - (weight * one).sum() * (weight * two).sum()


@pytest.mark.parametrize("gamma", [0.0, 30.0])
def test_a_quadratic_basin_is_exact(gamma):
    zero = np.zeros((2, 2, 2)), np.zeros((2, 2, 2, 2))
    expected = by_quadrature(PHI, PSI, 50.0, gamma, *zero)
    assert covariance(PHI, PSI, HESSIAN, 50.0, gamma) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(("cubic", "quartic"), [(1, 0), (0, 1), (1, 1)], ids=["cubic", "quartic", "both"])
def test_what_the_second_order_leaves_off_falls_with_the_cube_of_the_temperature(cubic, quartic):
    """Each tenfold nβ makes the error a thousandth; a wrong coefficient of order t⁻² would make it a hundredth."""
    terms = cubic * CUBIC, quartic * QUARTIC

    def error(t):
        return abs(covariance(PHI, PSI, HESSIAN, t, 0.0, *terms) - by_quadrature(PHI, PSI, t, 0.0, *terms))

    assert error(1e4) < 2e-3 * error(1e3)


def test_the_cubic_case_in_one_dimension():
    line, square = Observable([1.0]), Observable([0.0], [[2.0]])
    for stiffness, bend in ((1.0, 1.0), (3.0, -0.5)):
        value = covariance(square, line, [[stiffness]], 200.0, cubic=[[[bend]]])
        assert value == pytest.approx(-2 * bend / (stiffness**3 * 200.0**2), rel=1e-12)


def test_the_variance_of_the_loss_is_the_heat_capacity():
    t, gamma, sigma = 30.0, 2.0, [1.0, 0.2]
    loss = Observable([0.3, 0.0], np.diag(sigma))
    at_rest = Observable([0.0, 0.0], np.diag(sigma))
    expected = finite.quadratic_heat_capacity(sigma, t, gamma)
    assert t**2 * covariance(at_rest, at_rest, np.diag(sigma), t, gamma) == pytest.approx(expected, rel=1e-12)
    linear = 0.3**2 / (t * 1.0 + gamma)
    assert covariance(loss, loss, np.diag(sigma), t, gamma) == pytest.approx(expected / t**2 + linear, rel=1e-12)


@pytest.mark.parametrize("t", [1.0, 50.0, 3000.0])
def test_powers_of_a_monomial_by_quadrature(t):
    """K = w₁⁴w₂² with the prior ∝ w₂, in variables that spread the mass near zero."""
    nodes, weights = np.polynomial.legendre.leggauss(400)
    u, du = (nodes + 1) / 2, weights / 2
    w, jacobian = u**3, 3 * u**2 * du
    one, two = w[:, None], w[None, :]
    mass = jacobian[:, None] * jacobian[None, :] * two * np.exp(-t * one**4 * two**2)
    for powers in ([0, 2], [1, 0], [2, 3]):
        expected = (mass * one ** powers[0] * two ** powers[1]).sum() / mass.sum()
        assert monomial_mean([2, 1], powers, t, [0, 1]) == pytest.approx(expected, rel=1e-9)


def test_the_free_coordinate_tends_to_a_law_of_its_own():
    """For K = w₁⁴w₂² the density of w₂ tends to ½w₂^(−1/2), with mean square 1/5; its error falls like t^(−1/4)."""
    errors = [monomial_mean([2, 1], [0, 2], t) - 0.2 for t in (1e8, 1e12, 1e16)]
    assert abs(errors[-1]) < 1e-3
    assert errors[0] / errors[1] == pytest.approx(10, rel=0.1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((Observable([1.0]), Observable([1.0]), [[-1.0]], 1.0), "no finite mass"),
        ((Observable([1.0, 2.0]), Observable([1.0]), [[1.0]], 1.0), r"phi.gradient must have shape \(1,\)"),
        ((Observable([1.0]), Observable([1.0]), [[1.0, 0.0]], 1.0), "hessian must be a square matrix"),
        ((Observable([1.0]), Observable([math.nan]), [[1.0]], 1.0), "psi.gradient must be finite"),
        ((Observable([1.0] * 2), Observable([1.0] * 2), [[1.0, 0.5], [0.0, 1.0]], 1.0), "symmetric"),
        ((Observable([1.0]), Observable([1.0]), [[1.0]], 0.0), "nbeta must be positive"),
    ],
)
def test_what_is_wrong_is_named(arguments, words):
    with pytest.raises(InputError, match=words):
        covariance(*arguments)


def test_negative_powers_are_refused():
    with pytest.raises(InputError, match="powers must not be negative"):
        monomial_mean([1, 1], [1, Fraction(-1, 2)], 10.0)
