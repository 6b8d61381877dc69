"""Evidence and mean losses down the ladder, beside quadrature."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logsumexp

from chance import assert_within
from studies.learning_curves import rules
from studies.learning_curves.cases import _upper
from studies.wbic_selection.tempering import Sums, tempered
from studies.wbic_selection.truths import RANKS, TANH

REPEATS = 8
BETAS = (0.3, 1.0)


def sampled(candidates, data, seed):
    """log evidence and mean loss of independent samplers at both temperatures."""
    every = [tempered(candidates, 2, data, BETAS, 400, np.random.default_rng([seed, each])) for each in range(REPEATS)]
    return np.array([[(rung.log_evidence, rung.mean_loss) for rung in run] for run in every])


def integrated(candidates, data, rule, nodes, beta):
    given = data.at(candidates, nodes, beta)
    log_joint = rule.log_prior + given.log_evidence
    log_evidence = logsumexp(log_joint)
    return log_evidence, np.exp(log_joint - log_evidence) @ given.mean_loss


def compare(candidates, data, nodes_of, rule_of, seed):
    found, n = sampled(candidates, data, seed), int(data.counts.sum())
    for number, beta in enumerate(BETAS):
        rule = rule_of(n * beta, beta)
        evidence, loss = integrated(candidates, data, rule, nodes_of(rule), beta)
        ours = found[:, number]
        spread = ours.std(axis=0, ddof=1) / math.sqrt(REPEATS)
        assert (spread < [0.2, 0.5]).all()
        assert_within(ours.mean(axis=0), [evidence, loss], spread, freedom=REPEATS - 1, bias=0.02)


@pytest.mark.slow
def test_metropolis_moves_of_tanh_units(seed):
    rng = np.random.default_rng(seed)
    x = np.linspace(-2, 2, 10)[:, None]
    totals = 5 * np.tanh(1.5 * x) + math.sqrt(5) * rng.normal(size=(10, 1))
    data = Sums(x, np.full(10, 5.0), totals, float((totals**2).sum() / 5 + 40), 1.0)
    compare(TANH, data, lambda rule: rule.nodes[:, :, None], rules.tanh, seed)


@pytest.mark.slow
def test_gibbs_moves_of_ranks(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(60, 2))
    y = x[:, :1] * np.eye(1, 4) + rng.normal(size=(60, 4))
    data = Sums(x, np.ones(60), y, float((y**2).sum()), 1.0)
    compare(replace(RANKS, inner=2), data, lambda rule: _upper(rule.nodes), rules.rank, seed)
