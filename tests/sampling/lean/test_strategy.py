"""λ̂ by the lean walk against exact values, over seeds."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import basinscope as bs
from basinscope.sampling.lean.strategy import is_lean


def regression(n: int = 1000, d: int = 20) -> tuple[bs.Landscape, torch.Tensor]:
    """Linear regression at its least-squares solution, and the eigenvalues of its Hessian."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, d, generator=generator) * torch.logspace(0, -0.7, d)
    y = x.sum(1, keepdim=True) + torch.randn(n, 1, generator=generator)
    net = nn.Linear(d, 1, bias=False)
    net.weight.data = torch.linalg.lstsq(x, y).solution.T.contiguous()
    return bs.Landscape(net, "mse", (x, y)), torch.linalg.eigvalsh((x.T @ x / n).double())


def exact(eigenvalues: torch.Tensor, nbeta: float, gamma: float) -> float:
    stiff = nbeta * eigenvalues
    return 0.5 * float((stiff / (stiff + gamma)).sum())


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [100, 1000])
def test_linear_regression_within_its_errors_over_seeds(batch_size: int) -> None:
    land, eigenvalues = regression()
    scores = []
    for seed in range(4):
        est = bs.llc(land, sampler="lean", batch_size=batch_size, gamma=2.0, draws=300, seed=seed, progress=False)
        truth = exact(eigenvalues, est.diagnostics["nbeta"], est.diagnostics["gamma"])
        scores.append((est.value - truth) / est.stderr)
        assert abs(est.value / truth - 1) < 0.25
        assert abs(est.diagnostics["virial"] - 1) < 0.15
    assert abs(sum(scores)) / math.sqrt(len(scores)) < 3.5, scores
    assert sum(score**2 for score in scores) < 24, scores


def test_an_ordinary_estimate_with_checks_basin_and_drop() -> None:
    land, _ = regression(n=200, d=10)
    est = bs.llc(land, sampler="lean", draws=64, gamma=2.0, budget=bs.Nominal(2), progress=False)
    assert isinstance(est, bs.LearningCoefficient)
    assert {"split-R̂ between chains", "virial ratio E[δ·∇U]/d", "step-size bias"} <= {each.name for each in est.checks}
    assert math.isfinite(est.basin.value)
    assert est.diagnostics["bytes_per_parameter"] <= 12
    assert est.freedom < math.inf
    assert bs.Estimate.from_dict(est.to_dict()).value == est.value
    again = bs.llc(land, sampler="lean", draws=64, gamma=2.0, budget=bs.Nominal(2), progress=False)
    assert again.value == est.value


def test_a_point_above_the_bottom_of_its_basin() -> None:
    land, eigenvalues = regression(n=500, d=10)
    aside = {name: value + 0.2 for name, value in land.parameters.items()}
    est = bs.llc(land.at(aside), sampler="lean", batch_size=500, draws=200, gamma=1.0, progress=False)
    nbeta = est.diagnostics["nbeta"]
    drop = nbeta * float((land.at(aside).per_sample() - land.per_sample()).mean())
    assert est.at_minimum == "no"
    assert abs(est.drop.value / drop - 1) < 0.05  # γ keeps ŵ a little from the minimum of the loss
    assert abs(est.basin.value - exact(eigenvalues, nbeta, 1.0)) < 5 * est.basin.stderr + 0.3


def test_a_gamma_that_no_chain_reaches_is_raised_and_said() -> None:
    land, _ = regression(n=200, d=10)
    asked = bs.llc(land, sampler="lean", draws=32, gamma=1e-6, batch_size=20, progress=False)
    assert asked.diagnostics["gamma"] > 1e-6
    assert any(warning.startswith("coarser than asked") for warning in asked.warnings)
    left = bs.llc(land, sampler="lean", draws=32, batch_size=20, progress=False)
    assert not any(warning.startswith("coarser than asked") for warning in left.warnings)


def test_the_rule_of_auto() -> None:
    land, _ = regression(n=50, d=3)
    assert is_lean(land, "lean")
    assert not is_lean(land, "auto")
    with pytest.raises(bs.InputError, match="keeps no draws"):
        bs.posterior(land, sampler="lean")
