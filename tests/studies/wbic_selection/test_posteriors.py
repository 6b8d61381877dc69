"""Evidence and mean losses of lattices and of the ladder, beside quadrature by other rules."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logsumexp

from chance import assert_within
from studies.common.integration import rules
from studies.common.integration.cases import _upper
from studies.wbic_selection import mixtures
from studies.wbic_selection.lattices import SHIFTS
from studies.wbic_selection.quadrature import integrated, lattice
from studies.wbic_selection.ranks import sampled
from studies.wbic_selection.scoring import posteriors
from studies.wbic_selection.sums import Sums
from studies.wbic_selection.truths import RANKS, TANH

REPEATS = 8
BETAS = (0.3, 1.0)


def by_rule(candidates, data, rule, nodes, beta):
    """log evidence and mean loss over the nodes of a rule for learning curves."""
    given = data.at(candidates, nodes, beta)
    log_joint = rule.log_prior + given.log_evidence
    log_evidence = logsumexp(log_joint)
    return log_evidence, np.exp(log_joint - log_evidence) @ given.mean_loss


def test_lattices_of_tanh_units_are_quadratures(seed):
    rng = np.random.default_rng(seed)
    x = np.linspace(-2, 2, 10)[:, None]
    totals = 5 * np.tanh(1.5 * x) + math.sqrt(5) * rng.normal(size=(10, 1))
    data = Sums(x, np.full(10, 5.0), totals, float((totals**2).sum() / 5 + 40), 1.0)
    both = [integrated(TANH, 2, data, BETAS, shift) for shift in SHIFTS]
    for number, beta in enumerate(BETAS):
        rule = rules.tanh(50 * beta, beta)
        expected = by_rule(TANH, data, rule, rule.nodes[:, :, None], beta)
        for rungs in both:
            own = rungs[number]
            assert (own.log_evidence, own.mean_loss) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("shift", SHIFTS)
def test_lattices_integrate_the_prior(size, shift):
    points, sets, log_weights = lattice(size, shift)
    squares = (points[sets] ** 2).sum(1)
    assert np.exp(log_weights).sum() == pytest.approx(1, abs=1e-5)
    assert np.exp(log_weights) @ squares == pytest.approx(size, abs=1e-3)


@pytest.mark.slow
def test_gibbs_moves_of_ranks(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(60, 2))
    y = x[:, :1] * np.eye(1, 4) + rng.normal(size=(60, 4))
    data, candidates = Sums(x, np.ones(60), y, float((y**2).sum()), 1.0), replace(RANKS, inner=2)
    every = [sampled(candidates, 2, data, BETAS, 400, np.random.default_rng([seed, each])) for each in range(REPEATS)]
    for number, beta in enumerate(BETAS):
        rule = rules.rank(60 * beta, beta)
        expected = by_rule(candidates, data, rule, _upper(rule.nodes), beta)
        ours = np.array([(run[number].log_evidence, run[number].mean_loss) for run in every])
        _near(ours, expected)


def test_lattices_of_mixtures_are_sums_over_a_grid():
    counts = mixtures.MixtureTruth("", (-0.35, 0.5)).draw(30, 1)
    c = np.linspace(-5, 5, 401)
    first, second = (each.ravel() for each in np.meshgrid(c, c, indexing="ij"))
    parts = mixtures.components(c)
    own = np.log(0.5 * (parts[:, None] + parts[None])).reshape(-1, len(mixtures.PLACES)) @ counts
    log_prior = -0.5 * (first**2 + second**2)
    for beta in BETAS:
        log_joint = log_prior + beta * own
        evidence = logsumexp(log_joint) - logsumexp(log_prior)
        loss = -np.exp(log_joint - logsumexp(log_joint)) @ own
        for shift in SHIFTS:
            posterior = mixtures.integrated(2, counts, beta, 1.0, shift)
            assert (posterior.log_evidence, posterior.mean_loss(counts)) == pytest.approx((evidence, loss), abs=2e-3)


@pytest.mark.parametrize("size", [3, 4])
def test_both_lattices_of_mixtures_agree(size):
    counts = mixtures.MixtureTruth("", (-0.35, 0.5)).draw(200, 0)
    one, other = (mixtures.integrated(size, counts, 0.3, 1.0, shift) for shift in SHIFTS)
    assert one.log_evidence == pytest.approx(other.log_evidence, abs=0.02)
    assert one.mean_loss(counts) == pytest.approx(other.mean_loss(counts), abs=0.02)


def _near(ours, expected):
    spread = ours.std(axis=0, ddof=1) / math.sqrt(REPEATS)
    assert (spread < [0.2, 0.5]).all()
    assert_within(ours.mean(axis=0), expected, spread, freedom=REPEATS - 1, bias=0.02)


def test_only_ranks_are_sampled():
    data = Sums(np.ones((1, 1)), np.full(1, 20.0), np.ones((1, 1)), 20.0, 1.0)
    both = list(posteriors(TANH, 1, data, 0, 0, [0]))
    assert [len(rungs) for rungs in both] == [2, 2]
    assert both[0][1].mean_loss == pytest.approx(both[1][1].mean_loss, abs=1e-6)
