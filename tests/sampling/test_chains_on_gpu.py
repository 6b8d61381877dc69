"""Chains on a GPU against the same chains on the processor."""

import pytest
import torch

import basinscope as bs
from basinscope.sampling import linear
from basinscope.sampling.chains import ChainLosses

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def land_on(device, dtype):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(7, 33), torch.nn.Tanh(), torch.nn.Linear(33, 3)).to(device, dtype)
    x, y = torch.randn(50, 7, dtype=dtype), torch.randint(3, (50,))
    return bs.Landscape(net, "cross_entropy", (x.to(device), y.to(device)))


@pytest.mark.parametrize("large", [1, 2**14], ids=["in place", "as vmap does"])
def test_losses_and_gradients_are_those_of_the_processor(large, monkeypatch):
    monkeypatch.setattr(linear, "LARGE", large)
    here, there = land_on("cpu", torch.float64), land_on("cuda", torch.float64)
    delta = 0.1 * torch.randn(5, here.dimension, dtype=torch.float64)
    indices = torch.randint(50, (5, 8))
    moved = ChainLosses(there).full(delta.cuda())
    torch.testing.assert_close([tensor.cpu() for tensor in moved], list(ChainLosses(here).full(delta)))
    moved = ChainLosses(there).minibatch(delta.cuda(), indices.cuda())
    torch.testing.assert_close([tensor.cpu() for tensor in moved], list(ChainLosses(here).minibatch(delta, indices)))


def test_a_recorded_step_is_the_step():
    """A CUDA graph replays what plain calls would have done: λ̂ of a quadratic, known to a few per cent on either."""
    found = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        net, x = torch.nn.Linear(20, 1, bias=False), torch.randn(200, 20)
        land = bs.Landscape(net.to(device), "mse", (x.to(device), net(x.to(device)).detach()))
        settings = {"nbeta": 200.0, "gamma": 1.0, "step_size": 2e-3, "chains": 8, "draws": 1500, "batch_size": 200}
        found.append(bs.llc(land, sampler="sgld", seed=1, **settings))
    spread = (found[0].stderr ** 2 + found[1].stderr ** 2) ** 0.5
    assert spread < 0.05 * found[0].value
    assert abs(found[0].value - found[1].value) < 4 * spread
