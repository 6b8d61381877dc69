"""Chains of several networks against each network alone."""

import pytest
import torch

import basinscope as bs
from basinscope.errors import InputError
from basinscope.sampling.chains import ChainLosses
from basinscope.sampling.stacked import StackedLosses
from basinscope.zoo.models import ffnn


def networks(count, n=60):
    x = torch.randn(n, 5, generator=torch.Generator().manual_seed(0))
    y = torch.arange(n) % 3
    found = []
    for seed in range(count):
        torch.manual_seed(seed)
        found.append(bs.Landscape(ffnn([5, 4, 3]), "cross_entropy", (x, y)))
    return found


def test_every_network_has_its_own_excess_and_gradient():
    lands = networks(3)
    stacked = StackedLosses(lands, chains=2)
    rng = torch.Generator().manual_seed(1)
    delta = 0.1 * torch.randn(6, lands[0].dimension, generator=rng)
    indices = torch.randint(60, (6, 7), generator=rng)
    found = [*stacked.minibatch(delta, indices, 2.0), *stacked.full(delta, 3.0), stacked.excess(delta),
             stacked.own_excess(delta, indices), stacked.per_sample(delta), stacked.gradient(delta)]  # fmt: skip
    for number, land in enumerate(lands):
        alone, rows = ChainLosses(land), slice(2 * number, 2 * number + 2)
        own, few = delta[rows], indices[rows]
        exact = [*alone.minibatch(own, few, 2.0), *alone.full(own, 3.0), alone.excess(own), alone.own_excess(own, few),
                 alone.per_sample(own), alone.gradient(own)]  # fmt: skip
        for several, one in zip(found, exact, strict=True):
            torch.testing.assert_close(several[rows], one, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(stacked.base[number], land.per_sample())


def test_the_excess_is_the_difference_of_two_losses():
    lands = networks(2)
    delta = 0.1 * torch.randn(2, lands[0].dimension, generator=torch.Generator().manual_seed(1))
    found = StackedLosses(lands, chains=1).excess(delta)
    for land, move, excess in zip(lands, delta, found, strict=True):
        moved = land.at(land.unflatten(land.flatten(land.parameters) + move))
        assert float(excess) == pytest.approx(float((moved.per_sample() - land.per_sample()).mean()), abs=1e-6)


def test_networks_that_differ_in_more_than_their_parameters_are_refused():
    with pytest.raises(InputError, match="pass at least one landscape"):
        StackedLosses([], chains=2)
    for other in (networks(1, n=50)[0], networks(1)[0].restrict("1.*")):
        with pytest.raises(InputError, match="number 1 differs from the first"):
            StackedLosses([*networks(1), other], chains=2)
