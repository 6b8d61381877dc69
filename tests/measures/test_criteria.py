import json
import math

import numpy as np
import pytest
import torch
from torch import nn

import basinscope as bs
from basins import classifier, quadratic
from basinscope.measures.fluctuation import Visits
from chance import SAMPLED, assert_within
from conjugate import KNOWN, six

QUICK = {"rtol": 0.05, "budget": 1.0, "progress": False}


def line():
    """The six-point regression as a landscape whose localiser at w* = 0, γ = 1/4, is the prior."""
    model = six()
    net = nn.Linear(1, 1).double()
    for parameter in net.parameters():
        nn.init.zeros_(parameter)
    return bs.Landscape(net, "gaussian", (torch.tensor(model.x[:, 1:]), torch.tensor(model.y[:, None])), sigma=1.0)


@pytest.mark.slow
def test_all_of_the_line_against_the_closed_form(seed):
    gibbs, bayes, v, waic, loo, *_ = KNOWN[1.0]
    wbic = KNOWN[1 / np.log(6)][6]
    free = KNOWN[1.0][5]
    third = -six().third.mean()
    found = bs.criteria(line(), gamma=0.25, draws=300, rtol=0.05, budget=4.0, seed=seed, progress=False)
    exact = {
        "waic": waic,
        "loo": loo,
        "wbic": wbic,
        "free_energy": free,
        "bayes_training_loss": bayes,
        "gibbs_training_loss": gibbs,
        "functional_variance": v,
        "fluctuation": v / 2,
        "y1": gibbs,
        "y2": v / 6,
        "y3": third,
    }
    for name, value in exact.items():
        assert_within(found[name].value, value, found[name].stderr, SAMPLED)
    assert found.free_energy.stderr < 0.1
    assert found.waic.stderr < 0.02
    assert found.aic.value == pytest.approx(found.aic.diagnostics["loss"] + 2 / 6)
    assert found.bic.value == pytest.approx(6 * found.aic.diagnostics["loss"] + math.log(6))
    assert set(found) == {*exact, "aic", "bic", "tic"}
    json.dumps(found.to_dict(), allow_nan=False)


def test_functional_variance_is_takeuchis_trace_on_a_quadratic(seed):
    # βV = Tr(C H_Λ⁻¹), Λ = γ/(nβ), in the quadratic regime; here up to terms of order V²/n.
    n, gamma, beta = 2000, 2.0, 0.5
    land = quadratic([1.0, 0.3, 0.02], n=n, noise=0.7, dtype=torch.float64)
    found = bs.criteria(land, only=["fluctuation"], nbeta=land.n * beta, gamma=gamma, draws=200, seed=seed, **QUICK)
    x = land.samples.inputs
    residual = land.samples.target - x @ land.parameters["weight"].T
    gradients = x * residual
    hessian = x.T @ x / n + gamma / (n * beta) * torch.eye(3, dtype=torch.float64)
    criterion = float((gradients.T @ gradients / n @ torch.linalg.inv(hessian)).trace())
    value, stderr = 2 * found.fluctuation.value, 2 * found.fluctuation.stderr
    assert stderr < 0.05 * value
    assert_within(value, criterion, stderr, SAMPLED, bias=9 / (beta * n))


def test_predictions_agree_on_a_regular_model(seed):
    land = quadratic([1.0, 0.5, 0.25], n=1000, noise=1.0, dtype=torch.float64)
    found = bs.criteria(land, only=["waic", "loo", "aic", "tic"], gamma=0.01, draws=150, seed=seed, **QUICK)
    penalty = 3 / 1000
    assert list(found) == ["waic", "loo", "aic", "tic"]
    for name in ("waic", "loo", "tic"):
        assert found[name].stderr < 0.15 * penalty
        assert_within(found[name].value, found.aic.value, found[name].stderr, SAMPLED, bias=0.2 * penalty)


def test_free_energy_of_a_quadratic_is_a_log_determinant(seed):
    sigma, n, gamma = [1.0, 0.3, 0.001], 500, 0.5
    land = quadratic(sigma, n=n, noise=0.3, dtype=torch.float64)
    found = bs.free_energy(land, gamma=gamma, rtol=0.03, budget=5.0, seed=seed, progress=False)
    exact = float(land.per_sample().sum()) + sum(0.5 * math.log1p(n * s / gamma) for s in sigma)
    assert found.stderr < 0.1
    assert_within(found.value, exact, found.stderr, SAMPLED)
    assert found.diagnostics["rule_error"] < 0.1
    ladder = np.array(found.diagnostics["ladder"])
    assert len(ladder) == 15
    for b, energy, stderr in ladder:
        mean = float(land.per_sample().sum()) + sum(0.5 * n * s / (n * b * s + gamma) for s in sigma)
        assert_within(energy, mean, stderr, SAMPLED, bias=1e-6)


def test_the_rule_alone_is_exact_for_many_scales():
    from basinscope.measures.free_energy import rule

    nodes, fine, _ = rule()
    for stiffest, ratio in ((1e2, 1.0), (1e6, 1e-3), (1e8, 1e-8)):
        reach = math.log1p(stiffest)
        u = 0.5 * reach * (nodes + 1)
        b = np.expm1(u) / stiffest
        a = stiffest * ratio
        integral = float(fine @ (0.5 * a / (1 + a * b) * 0.5 * reach * np.exp(u) / stiffest))
        assert integral == pytest.approx(0.5 * math.log1p(a), rel=1e-3)


def test_fluctuation_on_minibatches_is_that_of_all_data(seed):
    land = quadratic([1.0, 0.3, 0.01], n=300, noise=1.0, dtype=torch.float64)
    full = bs.fluctuation(land, gamma=1.0, draws=100, seed=seed, **QUICK)
    for samples in (300, 100, 7):
        part = bs.fluctuation(land, gamma=1.0, draws=100, seed=seed, samples=samples, **QUICK)
        # The same draws, seen in parts: less than the two Monte Carlo errors apart, which share the draws.
        assert part.stderr < 0.15 * full.value
        assert_within(part.value, full.value, part.stderr, SAMPLED)
        assert part.diagnostics["visits"] == pytest.approx(100 * part.diagnostics["chains"] * samples / 300)
    many = part.diagnostics["chains"] * 100
    same = bs.fluctuation(land, gamma=1.0, draws=100, seed=seed, samples=300, **QUICK)
    assert same.value == pytest.approx(full.value * many / (many - 1), rel=1e-9)  # one divides by S, one by S − 1


def test_visits_are_unbiased_and_even(seed):
    generator = torch.Generator().manual_seed(seed)
    chains, n, size, values = 4, 30, 7, []
    sigma = torch.linspace(0.1, 2, n, dtype=torch.float64)
    for repetition in range(200):
        visits = Visits(chains, n, size, seed + repetition)
        seen = torch.zeros(chains, n)
        for _ in range(12):
            indices = visits.next()
            assert all(len(set(row)) == size for row in indices.tolist())
            seen.scatter_add_(1, indices, torch.ones(chains, size))
            drawn = sigma * torch.randn(chains, n, dtype=torch.float64, generator=generator) + torch.arange(n)
            visits.add(indices, drawn.gather(1, indices))
        assert float(seen.max()) <= 3
        values.append(visits.variance())
    exact = float(sigma.square().sum())
    stderr = np.std(values) / math.sqrt(200)
    assert stderr < 0.02 * exact
    assert_within(np.mean(values), exact, stderr, freedom=100)


def test_a_classifier_and_a_custom_loss():
    land = classifier()
    found = bs.criteria(land, only=["waic", "tic", "wbic"], draws=20, rtol=0.1, budget=0.2, progress=False)
    assert all(math.isfinite(each.value) for each in found.values())
    custom = bs.Landscape(
        nn.Linear(2, 1).double(), lambda out, y: (out - y).abs()[:, 0], (torch.randn(30, 2), torch.randn(30, 1))
    )
    table = bs.criteria(custom, only=["aic", "tic"], gamma=1.0, progress=False)
    assert table.tic.diagnostics["matrix"] == "hessian"


def test_bad_input():
    rows = np.random.default_rng(0).normal(-1, 0.1, size=(50, 4))
    assert set(bs.criteria(rows)) == {"waic", "loo", *bs.criteria(rows, only=["y1"])} | {
        "bayes_training_loss",
        "gibbs_training_loss",
        "functional_variance",
        "fluctuation",
        "y2",
        "y3",
    }
    with pytest.raises(bs.InputError, match="aic need a landscape"):
        bs.criteria(rows, only=["aic"])
    with pytest.raises(bs.InputError, match=r"only must list names among .*, got 'waic'"):
        bs.criteria(rows, only="waic")
    with pytest.raises(bs.InputError, match="nbeta must be a positive"):
        bs.criteria(rows, nbeta=-2)
    with pytest.raises(bs.InputError, match="at least 2 draws"):
        bs.criteria(rows[:1])
    with pytest.raises(bs.InputError, match="nbeta must be a positive"):
        bs.free_energy(line(), nbeta=0)
    with pytest.raises(bs.InputError, match="must be a Landscape, got ndarray"):
        bs.free_energy(rows)
    with pytest.raises(bs.InputError, match="unknown sampler 'sgld'"):
        bs.free_energy(line(), sampler="sgld")
    with pytest.raises(bs.InputError, match="samples=3 is about drawing from a landscape"):
        bs.fluctuation(rows, samples=3)
    with pytest.raises(bs.InputError, match="see a sample fewer than two times"):
        bs.fluctuation(quadratic([1.0], n=5000), gamma=1.0, samples=1, draws=4, **QUICK)
    with pytest.raises(AttributeError, match="no criterion 'nothing' here"):
        _ = bs.criteria(rows).nothing
    assert "waic" in bs.criteria(rows)._repr_html_()
    assert "waic = " in str(bs.criteria(rows))
