"""Chains that leave w* for good: a verdict in words, never a crash."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import basinscope as bs
from basinscope.sampling.diagnostics import effective_size

x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))


class Linear(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3))

    def forward(self, inputs):
        return inputs @ self.weight


def untrained():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))


# Each is so steep that the posterior lies hundreds of standard deviations away from w*, if there is one at all.
HOPELESS = {
    "a slope": lambda: bs.Landscape(Linear(), lambda output, target: 100 * output, (x.abs(), torch.zeros(200))),
    "unbounded below": lambda: bs.Landscape(Linear(), lambda output, target: -50 * output**2, (x, torch.zeros(200))),
    "large targets": lambda: bs.Landscape(untrained(), "mse", (x, 100 * x.sum(1, keepdim=True))),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("case", HOPELESS)
def test_the_learning_coefficient_fails_in_words(case):
    found = bs.llc(HOPELESS[case](), sampler="hmc", chains=8, budget=0.3, progress=False)
    assert found.verdict == "failed"
    assert any("not in a basin" in reason and "train longer, or raise gamma" in reason for reason in found.warnings)


def test_when_all_chains_are_lost_there_is_no_number():
    land = HOPELESS["unbounded below"]()
    found = bs.llc(land, sampler="hmc", chains=8, draws=400, budget=0.3, progress=False)
    assert math.isnan(found.value)
    assert found.diagnostics["diverged"] >= 7
    assert "of 8 chains fell far below the loss of w*" in found.warnings[0]
    assert not np.isfinite(bs.wbic(land, sampler="hmc", chains=8, draws=400, budget=0.3, progress=False).value)
    for measure in (bs.waic, bs.fluctuation):
        with pytest.raises(bs.InputError, match=r"the chains diverged: \d of 8 — train longer, raise gamma"):
            measure(land, sampler="hmc", chains=8, draws=400, budget=0.3, progress=False)


@pytest.mark.slow
def test_a_lost_measurement_still_has_its_curvature():
    report = bs.measure(HOPELESS["large targets"](), sampler="hmc", budget=0.3, progress=False)
    text = str(report)
    assert "learning coefficient λ̂ = – (failed)" in text or "λ̂ means nothing here" in text
    assert "Hessian trace = " in text


def test_no_chains_have_no_effective_size():
    assert math.isnan(effective_size(np.empty((0, 8))))
