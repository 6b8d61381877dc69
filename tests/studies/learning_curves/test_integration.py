"""Posterior expectations of the study beside brute force, finer rules, and values integrated independently."""

import math

import numpy as np
import pytest
from scipy.special import logsumexp

from chance import assert_within
from studies.common.collapsed import gaussians
from studies.common.integration import rules
from studies.common.integration.cases import CASES, _rank_features
from studies.common.integration.mixture import interpolation, log_density
from studies.learning_curves.measuring import errors


def brute_force_mixture(x, beta):
    """The posterior on a plain grid of (log-odds, mean, mean), and log p of every sample there."""
    odds, means = np.linspace(-6, 6, 41), np.linspace(-4.5, 4.5, 91)
    nodes = np.stack([each.ravel() for each in np.meshgrid(odds, means, means, indexing="ij")], 1)
    table = log_density(nodes, x[:, 0])
    log_joint = beta * table.sum(1) - 0.5 * (nodes**2).sum(1)
    return log_joint - logsumexp(log_joint), table


@pytest.mark.slow
@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_the_mixture_is_that_of_a_plain_grid(seed, beta):
    x = np.random.default_rng(seed).normal(size=(12, 1))
    log_weights, table = brute_force_mixture(x, beta)
    own = CASES["mixture"].integrate(x, x, beta, 1.0)
    for power in (1.0, -beta, 1 - beta):
        expected = logsumexp(log_weights[:, None] + power * table, axis=0)
        assert own.log_mean_power(power, x, x) == pytest.approx(expected, abs=1e-4)
    mean, variance = own.log_moments(x, x)
    weights = np.exp(log_weights)
    assert mean == pytest.approx(weights @ table, abs=1e-4)
    assert variance == pytest.approx(weights @ (table - weights @ table) ** 2, rel=1e-3)


@pytest.mark.slow
def test_the_sum_of_errors_is_that_of_an_independent_integration():
    # Means over the same 20, 20 and 8 data sets, integrated by another program.
    case = CASES["mixture"]
    for n, sets, expected in ((50, 20, 1.350), (200, 20, 1.420), (800, 8, 1.461)):
        every = [errors(case, *case.draw(n, 10_000 + number), 1.0) for number in range(sets)]
        assert np.mean([each["Bg"] + each["Cv"] for each in every]) == pytest.approx(expected, abs=6e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "beta"), [("mixture", 1.0), ("mixture", 2.0), ("tanh", 1.0), ("tanh", 0.5)])
def test_a_rule_twice_as_fine_changes_nothing(name, beta):
    x, y = CASES[name].draw(100, 3)
    once, twice = (errors(CASES[name], x, y, beta, fineness) for fineness in (1.0, 2.0))
    assert once == pytest.approx(twice, abs=1e-5)


@pytest.mark.slow
def test_a_finer_rule_changes_nothing_for_reduced_rank():
    x, y = CASES["reduced-rank"].draw(400, 3)
    once, finer = (errors(CASES["reduced-rank"], x, y, 1.0, fineness) for fineness in (1.0, 1.4))
    assert once == pytest.approx(finer, abs=5e-4)


def evidence(phi, y, beta):
    """log ∫ p(y|A, b)^β φ(A) dA at every node."""
    turned = phi.transpose(0, 2, 1)
    return gaussians(turned @ phi, turned @ y, float((y**2).sum()), len(y), beta, 1.0, 1.0).log_evidence


@pytest.mark.parametrize("beta", [1.0, 2.0])
def test_the_rule_of_reduced_rank_is_the_prior_of_the_matrix(seed, beta):
    # The evidence is an average over the prior: over B itself here, over R of B = QR in the rule.
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(8, 2))
    y = x[:, :1] * np.eye(1, 4) + rng.normal(size=(8, 4))
    inner = rng.normal(size=(40_000, 2, 2))
    plain = np.exp(evidence(x[None] @ inner.transpose(0, 2, 1), y, beta) - evidence(x[None], y, beta))
    rule = rules.rank(8 * beta, beta)
    ours = evidence(_rank_features(rule.nodes, x), y, beta) - evidence(x[None], y, beta)
    assert_within(np.exp(logsumexp(rule.log_prior + ours)), plain.mean(), plain.std() / math.sqrt(len(plain)))


def test_the_rule_of_tanh_is_the_prior_of_the_inner_weights(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(8, 1)), rng.normal(size=(8, 1))
    inner = rng.normal(size=(40_000, 1, 2))
    plain = np.exp(evidence(np.tanh(inner * x[None]), y, 1.0))
    rule = rules.tanh(8.0, 1.0)
    ours = evidence(np.tanh(rule.nodes[:, None, :] * x[None]), y, 1.0)
    assert_within(np.exp(logsumexp(rule.log_prior + ours)), plain.mean(), plain.std() / math.sqrt(len(plain)))


def test_the_rule_of_the_mixture_is_its_prior(seed):
    rng = np.random.default_rng(seed)
    x, nodes = rng.normal(size=8), rng.normal(size=(40_000, 3))
    plain = np.exp(log_density(nodes, x).sum(1) - log_density(np.zeros((1, 3)), x).sum())
    rule = rules.mixture(8.0, 1.0)
    ours = log_density(rule.nodes, x).sum(1) - log_density(np.zeros((1, 3)), x).sum()
    assert_within(np.exp(logsumexp(rule.log_prior + ours)), plain.mean(), plain.std() / math.sqrt(len(plain)))


def test_interpolation_is_exact_for_log_densities(seed):
    rng = np.random.default_rng(seed)
    nodes, x = rng.normal(size=(20, 3)), rng.uniform(-6, 6, size=50)
    places = 6.5 * np.cos(np.pi * (np.arange(80) + 0.5) / 80)
    assert log_density(nodes, places) @ interpolation(x).T == pytest.approx(log_density(nodes, x), abs=1e-4)
    assert interpolation(places[:3]) @ np.arange(80.0) == pytest.approx([0, 1, 2])
    with pytest.raises(ValueError, match="within"):
        interpolation(np.array([7.0]))


@pytest.mark.parametrize("name", CASES)
def test_truth_is_a_distribution_whose_errors_vanish_at_the_truth(name):
    x, y, weights = CASES[name].truth(1.0)
    assert weights.sum() == pytest.approx(1)
    assert float(weights @ (x**2).sum(1)) == pytest.approx(x.shape[1], abs=1e-6)
    entropy = y.shape[1] * 0.5 * (1 + math.log(2 * math.pi))
    assert -float(weights @ CASES[name].log_truth(x, y)) == pytest.approx(entropy, abs=1e-6)
    drawn = CASES[name].planted.draw(30, 1)
    assert CASES[name].log_truth(*CASES[name].draw(30, 1)) == pytest.approx(-drawn.per_sample().detach().numpy())
