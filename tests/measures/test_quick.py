"""A quick look: whatever a gradient costs, what is planned fits the time, and what was given up is said."""

import json

import pytest
import torch

import basinscope as bs
from basinscope.measures import quick as module
from basinscope.measures.quick import SECONDS, choice, quick_measurement
from basinscope.sampling.cost import Cost
from chance import assert_within


@pytest.fixture
def land():
    x = torch.randn(400, 3, generator=torch.Generator().manual_seed(0))
    net = torch.nn.Linear(3, 1, bias=False)
    torch.nn.init.ones_(net.weight)
    return bs.Landscape(net, "mse", (x, x.sum(1, keepdim=True)))


@pytest.mark.parametrize("each", [10.0**power for power in range(-7, 2)])
def test_what_is_planned_fits_the_time(land, each):
    chosen = choice(land, Cost(each, each), SECONDS)
    assert (chosen is None) == (each >= 1e-2)
    if chosen is not None:
        assert chosen.seconds < SECONDS
        assert 16 <= chosen.samples <= land.n


def test_dearer_gradients_get_fewer_samples_then_plain_chains(land):
    chosen = [choice(land, Cost(1e-4, each), SECONDS) for each in (1e-6, 3e-4, 2e-3)]
    assert chosen[0].samples == land.n
    assert chosen[0].sampler == "auto"
    assert chosen[2].samples < land.n
    assert chosen[2].sampler == "sgld"


def test_a_small_network_is_measured_in_full_and_found_right(land, seed, monkeypatch):
    monkeypatch.setattr(module, "choice", lambda *arguments: module.Choice(400, "auto", None, 1.0))
    report = bs.quick(land, seed=seed, progress=False)
    llc, half = report["llc"], report["half_soft_rank"]
    assert_within(llc.value, half.value, llc.stderr, llc.freedom)  # the loss is quadratic
    assert half.value == pytest.approx(1.5, rel=0.05)
    assert llc.checks[-1].passed
    assert report.command == f"bs.quick(land, seed={seed})"


def test_part_of_the_data_and_plain_chains_are_doubts(land, monkeypatch):
    monkeypatch.setattr(module, "choice", lambda *arguments: module.Choice(100, "sgld", 64, 1.0))
    llc = quick_measurement(land, progress=False).llc
    assert llc.verdict == "doubtful"
    assert llc.diagnostics["n"] == 100
    assert llc.diagnostics["nbeta"] == pytest.approx(400 / torch.log(torch.tensor(400.0)).item())
    reasons = [check.trouble for check in llc.checks if not check.passed]
    assert any("100 of 400 samples" in reason for reason in reasons)
    assert any("step-size bias" in reason for reason in reasons)


def test_a_network_too_slow_for_it_fails_and_the_report_says_what_it_would_take(land, monkeypatch):
    monkeypatch.setattr(module, "choice", lambda *arguments: None)
    report = bs.quick(land, progress=False)
    assert report["llc"].verdict == "failed"
    assert "of use from about" in report["llc"].warnings[0]
    assert "no λ̂" in report.to_html()
    assert bs.Report.from_dict(json.loads(report.to_json()))["llc"].verdict == "failed"
