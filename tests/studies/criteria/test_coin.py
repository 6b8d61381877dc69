import math

import numpy as np
import pytest
from scipy.special import log_expit, logit

from basinscope.measures.pointwise import streamed
from chance import assert_within
from studies.criteria import coin


@pytest.mark.parametrize("beta", [0.5, 1.0])
def test_a_data_set_against_draws(beta, seed):
    # 12 heads of 80 tosses, c = a²: the integrals beside draws of the same posterior, by rejection.
    rng = np.random.default_rng(seed)
    c = rng.uniform(-1, 1, size=400_000) ** 2
    heads, tails = log_expit(logit(coin.TRUTH) + c), log_expit(-logit(coin.TRUTH) - c)
    score = beta * (12 * heads + 68 * tails)
    kept = rng.uniform(size=len(c)) < np.exp(score - score.max())
    rows = np.concatenate([np.tile(heads[kept, None], 12), np.tile(tails[kept, None], 68)], axis=1)[:20_000]
    draws = streamed(rows.reshape(50, -1, 80), beta)
    nodes, weight = coin.prior("square", 1.0)
    faces = log_expit(logit(coin.TRUTH) + nodes), log_expit(-logit(coin.TRUTH) - nodes)
    exact = coin._of_counts(np.array([12]), 80, beta, *faces, weight)[:, 0]
    truth = -(12 * math.log(coin.TRUTH) + 68 * math.log(1 - coin.TRUTH)) / 80
    statistics = (
        lambda each: each.bayes_training_loss - truth,
        lambda each: each.gibbs_training_loss - truth,
        lambda each: each.waic - truth,
        lambda each: each.leave_one_out - truth,
        lambda each: each.functional_variance,
    )
    for statistic, reference in zip(statistics, exact[[1, 3, 4, 5, 6]], strict=True):
        value, stderr = draws.estimate(statistic)
        assert stderr < 0.02 * abs(reference)
        assert_within(value, reference, stderr, freedom=49)  # of 50 groups


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_the_laws_of_a_singular_coin(beta):
    lam, nu = 0.25, coin.fluctuation("square", beta)
    found = coin.means("square", 100_000, beta)
    assert found.bayes == pytest.approx((lam - nu) / beta + nu, abs=0.005)
    assert found.bayes_training == pytest.approx((lam - nu) / beta - nu, abs=0.005)
    assert found.gibbs == pytest.approx(lam / beta + nu, abs=0.01)
    assert found.variance == pytest.approx(2 * nu / beta, abs=0.01)
    assert found.symmetry == pytest.approx(2 * lam / beta, abs=0.01)
    # WAIC and cross-validation: n^(−3/2) apart in general, n^(−2) at β = 1.
    before = coin.means("square", 10_000, beta).gap
    assert math.log10(found.gap / before) == pytest.approx(-2.0 if beta == 1 else -1.5, abs=0.05)
