"""The posterior of a regression that is linear in its last weights, beside normal distributions in closed form."""

import numpy as np
import pytest
from scipy import stats

from studies.common.collapsed import collapsed, gaussians

SIGMA, GAMMA = 0.7, 1.5


def features(nodes, x):
    """Two features of one input; the node is the slope of the second."""
    return np.stack([np.ones((len(nodes), len(x))), np.tanh(nodes @ x.T)], -1)


def posterior(x, y, nodes, log_prior, beta):
    phi = features(nodes, x)
    turned = phi.transpose(0, 2, 1)
    given = gaussians(turned @ phi, turned @ y, float((y**2).sum()), len(x), beta, GAMMA, SIGMA)
    return collapsed(features, nodes, log_prior, given, SIGMA)


@pytest.fixture
def data(seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(6, 1)), rng.normal(size=(6, 2))


def test_evidence_is_the_normal_density_of_the_data(data):
    x, y = data
    nodes = np.array([[0.8]])
    _, log_evidence, _ = posterior(x, y, nodes, np.zeros(1), 1.0)
    phi = features(nodes, x)[0]
    covariance = phi @ phi.T / GAMMA + SIGMA**2 * np.eye(6)
    expected = sum(stats.multivariate_normal(np.zeros(6), covariance).logpdf(y[:, k]) for k in range(2))
    assert log_evidence == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_powers_leave_one_observation_out(data, beta):
    # E[p^(1−β)]/E[p^(−β)] over the posterior is E[p] over the posterior without that observation.
    x, y = data
    nodes, log_prior = np.array([[0.3], [1.0], [2.5]]), np.log([0.2, 0.5, 0.3])
    whole, *_ = posterior(x, y, nodes, log_prior, beta)
    left_out = whole.log_mean_power(1 - beta, x, y) - whole.log_mean_power(-beta, x, y)
    for i in range(len(x)):
        rest = np.arange(len(x)) != i
        without, *_ = posterior(x[rest], y[rest], nodes, log_prior, beta)
        assert left_out[i] == pytest.approx(without.log_mean_power(1.0, x[[i]], y[[i]])[0], rel=1e-9)


def test_moments_are_derivatives_of_powers(data):
    # log E[p^a] is the cumulant function of log p: its first two derivatives at 0 are mean and variance.
    x, y = data
    nodes, log_prior = np.array([[0.3], [2.5]]), np.log([0.4, 0.6])
    given, *_ = posterior(x, y, nodes, log_prior, 1.0)
    mean, variance = given.log_moments(x, y)
    step = 1e-4
    above, below = given.log_mean_power(step, x, y), given.log_mean_power(-step, x, y)
    assert mean == pytest.approx((above - below) / (2 * step), rel=1e-6)
    assert variance == pytest.approx((above + below) / step**2, rel=1e-5)


def test_mean_loss_is_the_derivative_of_the_evidence(data):
    x, y = data
    nodes, log_prior = np.array([[0.3], [2.5]]), np.log([0.4, 0.6])
    step = 1e-5
    above, below = (posterior(x, y, nodes, log_prior, 0.7 + each)[1] for each in (step, -step))
    assert posterior(x, y, nodes, log_prior, 0.7)[0].mean_loss() == pytest.approx(
        (below - above) / (2 * step), rel=1e-7
    )
