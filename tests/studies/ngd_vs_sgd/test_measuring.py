import numpy as np
import pytest
import torch

import basinscope as bs
from basinscope.studies.quadratics import basin
from basinscope.zoo.models import ffnn
from chance import SAMPLED, assert_within
from studies.ngd_vs_sgd import measuring
from studies.ngd_vs_sgd.measuring import PAPER_NBETA, full, paper_llcs, thinned


def networks(count):
    x = torch.randn(60, 5, generator=torch.Generator().manual_seed(0))
    y = torch.arange(60) % 3
    lands = []
    for seed in range(count):
        torch.manual_seed(seed)
        lands.append(bs.Landscape(ffnn([5, 4, 3]), "cross_entropy", (x, y)))
    return lands


def test_one_network_gets_what_llc_gives_it():
    (land,) = networks(1)
    (estimates,) = paper_llcs([land], draws=64, gamma=100.0, seed=3)
    alone = bs.llc(
        land, sampler="sgld", nbeta=PAPER_NBETA, gamma=100.0, chains=2, draws=64, step_size=1e-4, batch_size=60,
        burn_in=0.0, seed=3, progress=False,
    )  # fmt: skip
    assert estimates["llc_paper"].value == pytest.approx(alone.value, rel=1e-6)
    assert estimates["wbic_paper"].value == pytest.approx(
        60 * (alone.diagnostics["loss"] + alone.value / PAPER_NBETA), rel=1e-6
    )


def test_on_a_quadratic_basin_sampling_and_both_soft_ranks_are_the_closed_form(seed):
    land = basin(4, 10.0, 300, seed=0)
    estimates = full(land, gamma=1.0, sampler="hmc", chains=4, budget=5.0, rtol=0.02, seed=seed)
    values = np.geomspace(10, 1, 4)
    for name, nbeta in (("half_soft_rank", 300 / np.log(300)), ("half_soft_rank_paper", PAPER_NBETA)):
        assert estimates[name] == pytest.approx((nbeta * values / (nbeta * values + 1)).sum() / 2, rel=1e-6)
    assert_within(estimates["llc"].value, estimates["half_soft_rank"], estimates["llc"].stderr, SAMPLED)


def test_convolutional_networks_are_thinned(monkeypatch):
    monkeypatch.setattr(measuring, "CONVOLVED", 3)
    x, y = torch.rand(8, 1, 4, 4), torch.arange(8) % 2
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Linear(8, 2))
    part = thinned(bs.Landscape(net, "cross_entropy", (x, y)))
    assert torch.equal(part.per_sample(), bs.Landscape(net, "cross_entropy", (x[[0, 2, 4]], y[[0, 2, 4]])).per_sample())
    few = bs.Landscape(net, "cross_entropy", (x[:5], y[:5]))
    flat = bs.Landscape(ffnn([3, 2]), "cross_entropy", (torch.rand(8, 3), y))
    assert thinned(few) is few
    assert thinned(flat) is flat
