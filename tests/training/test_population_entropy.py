"""Entropy-SGD for a population beside the optimizer that takes each network alone."""

import pytest
import torch
from torch import nn

import basinscope as bs
from basinscope.training import Member, Population
from basinscope.training.population import EntropySGD
from basinscope.zoo.models import ffnn


def blob(n=64):
    x = torch.randn(n, 3, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 0] > 0).long()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_population_follows_entropy_sgd(momentum):
    """With one sample many times over no batch is random: every member must end where the optimizer takes it alone."""
    data = torch.tensor([[0.5, -1.0, 2.0]]).repeat(64, 1), torch.ones(64, dtype=torch.long)
    options = {"inner_steps": 5, "inner_lr": 0.3, "gamma": 0.05, "scoping": 0.01, "noise": 0.0,
               "momentum": momentum}  # fmt: skip
    members = [Member(seed=seed, lr=1.0, batch_size=64) for seed in (3, 4)]
    together = Population(lambda: ffnn([3, 4, 2]), members, data, optimizer=EntropySGD(**options))
    together.train(15, progress=False)
    for number, member in enumerate(members):
        torch.manual_seed(member.seed)
        net = ffnn([3, 4, 2])
        alone = bs.optim.EntropySGD(net.parameters(), lr=1.0, **options)

        def closure(net=net, alone=alone):
            alone.zero_grad()
            loss = nn.functional.cross_entropy(net(data[0]), data[1])
            loss.backward()
            return loss

        for _ in range(3):
            alone.step(closure)
        for name, parameter in net.named_parameters():
            assert torch.allclose(together.parameters[name][number], parameter, atol=2e-6), name


def test_noise_moves_the_members_and_repeats():
    def ended():
        torch.manual_seed(0)
        member = [Member(seed=0, lr=1.0, batch_size=16)]
        population = Population(lambda: ffnn([3, 4, 2]), member, blob(), optimizer=EntropySGD(noise=0.1))
        population.train(20, progress=False)
        return population.parameters["1.weight"]

    assert torch.equal(ended(), ended())
