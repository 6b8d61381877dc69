"""Basin and drop of the quadratic at w*, against dense linear algebra."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.func import grad, jacrev

from basins import classifier, quadratic, saddle
from basinscope.sampling import calibration
from basinscope.sampling.calibration import Resolution, affordable_effort, geometry
from basinscope.sampling.chains import ChainLosses
from basinscope.sampling.clock import NominalClock
from basinscope.sampling.cost import Cost
from basinscope.sampling.quadratic import Quadratic

f64 = torch.float64


def measured(land):
    displacements = torch.zeros(1, land.dimension, dtype=land.dtype)
    price, seconds = Cost(fixed=1e-9, each=1e-12), 1.0
    effort = affordable_effort(land, 1, price, seconds)
    return geometry(land, ChainLosses(land), displacements, effort, NominalClock(seconds), price)


def dense_hessian(land):
    return jacrev(grad(lambda w: land.losses(land.unflatten(w), land.samples).mean()))(land.flatten(land.parameters))


def dense_drop(matrix, slope, at):
    """nβ(L(w*) − L(ŵ)) of L = g·δ + ½δᵀHδ, at the solution of the normal equations."""
    delta = -at.nbeta * torch.linalg.solve(at.nbeta * matrix + at.gamma * torch.eye(len(slope), dtype=f64), slope)
    return -at.nbeta * float(slope @ delta + 0.5 * delta @ matrix @ delta)


def few_pairs(monkeypatch):
    monkeypatch.setattr(calibration, "_DENSE", 10)
    monkeypatch.setattr(calibration, "_PAIRS", 8)


def test_basin_and_drop_by_definition():
    offset, at = [0.1, -0.2, 0.5], Resolution(20.0, 0.7)
    sigma = torch.tensor([4.0, 1.0, 0.01], dtype=f64)
    found = Quadratic.of(measured(quadratic(sigma.tolist(), offset=offset, dtype=f64)))
    slope = sigma * torch.tensor(offset, dtype=f64)
    assert found.drop(at) == pytest.approx(dense_drop(torch.diag(sigma), slope, at), rel=1e-6)
    assert found.basin(at) == pytest.approx(0.5 * at.nbeta * float((sigma / (at.nbeta * sigma + at.gamma)).sum()))
    assert found.least == pytest.approx(0.01, rel=1e-6)
    assert found.downward(at) == 0.0


def test_a_gradient_in_soft_directions_counts_whatever_the_size(monkeypatch):
    # Eight of sixty eigenpairs are known, and the gradient lies beyond them, where the last known one is far too stiff.
    few_pairs(monkeypatch)
    sigma, at = torch.logspace(0, -3, 60, dtype=f64), Resolution(263.0, 0.3)
    offset = torch.zeros(60, dtype=f64)
    offset[30::5] = 5.0
    found = Quadratic.of(measured(quadratic(sigma.tolist(), n=200, offset=offset.tolist(), dtype=f64)))
    assert not found.complete
    exact = dense_drop(torch.diag(sigma), sigma * offset, at)
    assert found.drop(at) == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize("dense", [1024, 10])
def test_curvature_at_a_saddle(monkeypatch, dense):
    # A 4-3-4 linear network that has learned one of two components: no gradient, and a way down along the other.
    monkeypatch.setattr(calibration, "_DENSE", dense)
    monkeypatch.setattr(calibration, "_PAIRS", 8)
    land = saddle()
    curvature, exact = measured(land), torch.linalg.eigvalsh(dense_hessian(land))
    assert curvature.complete == (dense == 1024)
    assert float(curvature.gradient.norm()) < 1e-12
    assert float(exact[0]) < -0.1
    # Krylov spaces show the ends of a spectrum from inside.
    found = Quadratic.of(curvature)
    assert float(exact[0]) - 1e-9 <= found.least < 0.5 * float(exact[0])
    assert found.downward(Resolution(50.0, 1.0)) == pytest.approx(-50.0 * found.least)
    assert found.drop(Resolution(50.0, 1.0)) == np.inf
    assert np.isfinite(found.drop(Resolution(50.0, 100.0)))


def test_a_direction_of_descent_that_lanczos_missed(monkeypatch):
    # The gradient leads along the only downward direction; eigenvalues are sought from the other end.
    few_pairs(monkeypatch)
    land, at = saddle(), Resolution(50.0, 1e-3)
    exact, vectors = torch.linalg.eigh(dense_hessian(land))
    blind = replace(measured(land), least=0.0, gradient=vectors[:, 0] + 0.1 * vectors[:, -1])
    found = Quadratic.of(blind)
    assert float(exact[0]) - 1e-9 <= found.least < -at.gamma / at.nbeta
    assert found.drop(at) == np.inf


def test_the_finest_resolution_is_where_the_drop_is_a_tenth():
    sigma = torch.tensor([1.0, 0.1, 0.01], dtype=f64)
    slope = sigma * torch.tensor([0.3, 0.3, 0.3], dtype=f64)
    found = Quadratic.of(measured(quadratic(sigma.tolist(), offset=[0.3] * 3, dtype=f64)))

    def share(nbeta):
        at = Resolution(nbeta, 1.0)
        basin = 0.5 * float((nbeta * sigma / (nbeta * sigma + 1.0)).sum())
        drop = dense_drop(torch.diag(sigma), slope, at)
        return drop / (basin - drop)

    finest = found.finest(Resolution(1e4, 1.0), 0.1)
    assert share(finest) <= 0.1 < share(1.06 * finest), "to a step of the grid"
    assert found.finest(Resolution(finest, 1.0), 0.1) == finest, "no finer than asked"
    far = Quadratic.of(measured(quadratic([1.0], offset=[1e6], dtype=f64)))
    assert far.finest(Resolution(1e4, 1.0), 0.1) is None


def test_negative_curvature_bounds_the_finest_resolution():
    land = classifier()
    found = Quadratic.of(measured(land))
    assert found.least < 0
    finest = found.finest(Resolution(1e5, 1.0), 0.1)
    assert finest is not None
    assert finest * -found.least < 1.0
