"""Gradients that are not those of the loss are seen; kinks, flat losses and rounding errors are not taken for them."""

import math

import pytest
import torch

import basinscope as bs
from basinscope.sampling.chains import ChainLosses
from basinscope.sampling.gradients import MAX_MISMATCH, mismatch
from basinscope.sampling.target import Target, Whitening

f64 = torch.float64


class Scaled(torch.autograd.Function):
    """x, with a backward pass that is so many times too large."""

    @staticmethod
    def forward(ctx, x, times):
        ctx.times = times
        return x.clone()

    @staticmethod
    def backward(ctx, slope):
        return ctx.times * slope, None


class Energy(torch.nn.Module):
    """A network whose output is a function of its weights."""

    def __init__(self, energy, at, dtype):
        super().__init__()
        self.energy, self.w = energy, torch.nn.Parameter(torch.tensor(at, dtype=dtype))

    def forward(self, x):
        return self.energy(self.w).expand(len(x))


def seen(energy, seed, at=(0.3, -0.2, 0.1), nbeta=60.0, gamma=1.0, dtype=f64):
    zeros = torch.zeros(200, dtype=dtype)
    land = bs.Landscape(Energy(energy, list(at), dtype), lambda output, target: output + 0 * target, (zeros, zeros))
    return seen_of(land, seed, nbeta, gamma)


def seen_of(land, seed, nbeta=60.0, gamma=1.0):
    losses = ChainLosses(land)
    target = Target(losses, nbeta, gamma, Whitening.identity(losses.origin, (nbeta + gamma) ** -0.5))
    generator = torch.Generator().manual_seed(seed)
    chains = torch.randn(4, land.dimension, generator=generator, dtype=land.dtype)
    return mismatch(target, chains, seed)


def rounded(step):
    return lambda w: 0.5 * (w + (step * torch.round(w / step) - w).detach()).square().sum()


@pytest.mark.parametrize("dtype", [torch.float32, f64])
def test_gradients_of_the_loss_explain_its_changes(dtype, seed):
    exact = 1e-3 if dtype == torch.float32 else 1e-9
    assert seen(lambda w: 0.5 * w.square().sum(), seed, dtype=dtype) < exact
    assert seen(lambda w: (w[0] * w[1] * w[2]).square(), seed, dtype=dtype) < exact
    assert seen(lambda w: 0 * w.sum(), seed, dtype=dtype) == 0.0
    assert seen(lambda w: w.abs().sum(), seed, dtype=dtype) < MAX_MISMATCH / 2, "kinks are no other function"
    assert seen(lambda w: 0.05 * (40 * w).cos().sum(), seed, dtype=dtype) < MAX_MISMATCH / 2, "nor is what is crooked"


def test_gradients_of_a_network_with_kinks_explain_its_changes(seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(300, 5, generator=generator)
    net = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    assert seen_of(bs.Landscape(net, "mse", (x, x[:, :1])), seed) < MAX_MISMATCH / 4


def test_a_large_loss_does_not_hide_nor_make_what_is_off(seed):
    assert seen(lambda w: 1e4 + 0.5 * w.square().sum(), seed, dtype=torch.float32) < MAX_MISMATCH / 2


def test_a_backward_pass_that_is_too_large_is_seen_by_how_much(seed):
    slope = torch.tensor([1.0, 2.0, -1.0], dtype=f64)
    assert seen(lambda w: Scaled.apply(w @ slope, 3.0), seed) == pytest.approx(2 / 3)
    assert seen(lambda w: Scaled.apply(w @ slope, 0.5), seed) == pytest.approx(1.0)


def test_straight_through_rounding_is_seen_where_it_is_coarser_than_the_posterior(seed):
    width = (60 + 1) ** -0.5
    assert seen(rounded(0.01 * width), seed) < MAX_MISMATCH
    for times in (2.0, 4.0):
        assert seen(rounded(times * width), seed) > MAX_MISMATCH
    assert seen(lambda w: 0.01 * (100 * w).floor().sum() + 0 * w.sum(), seed) == math.inf


def test_where_the_loss_has_no_value_nothing_is_known():
    found = seen(lambda w: (w - 0.3).log().sum(), 0, at=(0.301,) * 3)
    assert math.isnan(found)
