"""The same numbers on a GPU."""

import pytest
import torch
from torch import nn

import basinscope as bs
import lacking
from basinscope.curvature.operators import operator
from gradient_cases import CASES

pytestmark = lacking.GPU.mark

f64 = torch.float64
# cuDNN's recurrent layers have no second derivative.
NAMES = [name for name in CASES if name != "recurrent"]


def on_gpu(name, monkeypatch):
    """The case with its model moved: data on the CPU follow the model."""
    build = nn.Module.to
    with monkeypatch.context() as patch:
        patch.setattr(nn.Module, "to", lambda self, *args: build(self, "cuda", *args))
        return CASES[name](f64)


@pytest.mark.parametrize("matrix", ["hessian", "fisher", "covariance"])
@pytest.mark.parametrize("name", NAMES)
def test_products(name, matrix, monkeypatch):
    here, there = CASES[name](f64), on_gpu(name, monkeypatch)
    v = torch.randn(here.dimension, 3, dtype=f64)
    image = operator(there, matrix) @ v
    assert image.device.type == "cuda"
    assert torch.allclose(image.cpu(), operator(here, matrix) @ v, atol=1e-10)


@pytest.mark.parametrize("name", ["relu", "gaussian", "convolutions", "transformer", "tied"])
def test_measures(name, monkeypatch):
    here, there = CASES[name](f64), on_gpu(name, monkeypatch)
    for matrix in ("fisher", "covariance"):
        assert bs.trace(there, matrix=matrix).value == pytest.approx(bs.trace(here, matrix=matrix).value)
    truth = float((operator(here, "hessian") @ torch.eye(here.dimension, dtype=f64)).trace())
    estimate = bs.trace(there)
    assert abs(estimate.value - truth) <= 5 * estimate.stderr + 1e-9
    first, second = (bs.spectrum(land, k=4, rtol=1e-6) for land in (here, there))
    assert torch.allclose(first.largest, second.largest, atol=1e-6)
    assert bs.operator_norm(there).value == pytest.approx(bs.operator_norm(here).value, rel=2e-3)
