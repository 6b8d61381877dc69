import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import kstat

import basinscope as bs
from basinscope.measures.pointwise import Stream, pointwise, streamed
from chance import assert_within
from conjugate import KNOWN, six


def plain(rows, beta):
    """The definitions, written out."""
    draws = len(rows)
    predictive = logsumexp(rows, axis=0) - math.log(draws)
    variance = rows.var(0)
    cv = logsumexp(-beta * rows, axis=0) - logsumexp((1 - beta) * rows, axis=0)
    return predictive, rows.mean(0), variance, ((rows - rows.mean(0)) ** 3).mean(0), -cv


@pytest.mark.parametrize("beta", KNOWN)
def test_the_closed_form_is_the_known_vector(beta):
    model, (gibbs, bayes, v, waic, loo, free, energy) = six(beta), KNOWN[beta]
    found = (model.gibbs, model.bayes, model.variances.sum(), model.waic, model.loo, model.free_energy, 6 * model.gibbs)
    assert found == pytest.approx((gibbs, bayes, v, waic, loo, free, energy), abs=6e-11)


def test_closed_form_leave_one_out_is_a_refit_without_the_observation():
    model = six(1.0)
    shortcut = model.log_moment(0.0) - model.log_moment(-1.0)
    for i in range(6):
        rest = model.without(i)
        v = model.x[i] @ rest.covariance @ model.x[i]
        e = model.y[i] - model.x[i] @ rest.mean
        refit = -0.5 * np.log(2 * np.pi * (1 + v)) - e**2 / (2 * (1 + v))
        assert shortcut[i] == pytest.approx(refit, abs=1e-14)


@pytest.mark.parametrize("beta", KNOWN)
def test_draws_give_the_known_vector(beta, seed):
    model, (gibbs, bayes, v, waic, loo, *_) = six(beta), KNOWN[beta]
    stream = streamed(model.log_likelihood(model.draws(100_000, seed=seed)).reshape(50, 2000, 6), beta)
    third = -model.third.mean()
    for statistic, exact in (
        (lambda p: p.gibbs_training_loss, gibbs),
        (lambda p: p.bayes_training_loss, bayes),
        (lambda p: p.functional_variance, v),
        (lambda p: p.waic, waic),
        (lambda p: p.leave_one_out, loo),
        (lambda p: p.fluctuation, beta * v / 2),
        (lambda p: p.cumulants[2], third),
    ):
        value, stderr = stream.estimate(statistic)
        assert stderr < 0.02
        assert_within(value, exact, stderr, freedom=49)  # of 50 groups


@pytest.mark.parametrize("beta", [1.0, 0.3, 2.5])
def test_streaming_is_the_definition(beta):
    rows = np.random.default_rng(0).normal(-2, 1.5, size=(4, 60, 7)) * np.arange(1, 8)
    expected = plain(rows.reshape(240, 7), beta)
    found = streamed(rows, beta).pooled()
    uneven = Stream(7, beta=beta, groups=4)
    for start, stop in ((0, 1), (1, 2), (2, 40), (40, 60)):
        uneven.add(rows[:, start:stop].swapaxes(0, 1))
    for each in (found, uneven.pooled(), pointwise(rows, beta), pointwise(rows.reshape(240, 7), beta)):
        got = each.log_predictive, each.mean, each.variance, each.third, each.log_leave_one_out
        for one, other in zip(got, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    assert found.draws == 240
    assert found.waic == pytest.approx(-(expected[0] - beta * expected[2]).mean(), rel=1e-13)


def test_one_chain_of_any_length():
    rows = np.random.default_rng(7).normal(-1, 0.3, size=(997, 3))
    stream = streamed(rows)
    assert stream.counts.sum() == 997
    found = stream.pooled()
    for one, other in zip(
        (found.log_predictive, found.mean, found.variance, found.third, found.log_leave_one_out),
        plain(rows, 1.0),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    _, stderr = stream.estimate(lambda p: p.gibbs_training_loss)
    assert stderr == pytest.approx(rows.mean(1).std() / math.sqrt(997), rel=0.6)


def test_huge_log_likelihoods_do_not_overflow():
    rows = np.random.default_rng(1).normal(size=(50, 3)) + np.array([-1e4, 0, 1e4])
    for beta in (1.0, 0.1):
        found = pointwise(rows, beta)
        np.testing.assert_allclose(found.variance, rows.var(0), rtol=1e-9)
        np.testing.assert_allclose(found.log_leave_one_out, plain(rows, beta)[4], rtol=1e-12, atol=1e-9)


def series(p):
    """WAIC and CvL up to the fourth cumulant: Y₁ + ((2β − 1)/2) Y₂ + (1 or 3β² − 3β + 1)/6 Y₃."""
    first, second, third = p.cumulants
    start = first + (p.beta - 0.5) * second
    return start + third / 6, start + (3 * p.beta**2 - 3 * p.beta + 1) / 6 * third


def test_series_of_cumulants_reach_the_criteria():
    draws = np.log(np.random.default_rng(2).gamma(3.0, size=(20_000, 4)))
    for beta in (1.0, 0.7, 1.7):
        gaps = []
        for scale in (0.04, 0.02, 0.01):
            found = pointwise(scale * draws, beta)
            waic, leave_one_out = series(found)
            gaps.append((abs(found.waic - waic), abs(found.leave_one_out - leave_one_out)))
        # What is left is the fourth cumulant: halving the fluctuations divides it by 16.
        for column in np.array(gaps).T:
            assert column[0] / column[1] == pytest.approx(16, rel=0.2)
            assert column[1] / column[2] == pytest.approx(16, rel=0.2)


def test_the_printed_signs_of_the_series_are_wrong():
    # Cumulants of f = −log p, not of log p: CvL − WAIC = +(β(β − 1)/2) Y₃.
    rows = 0.1 * np.log(np.random.default_rng(4).gamma(3.0, size=(50_000, 5)))
    for beta in (0.5, 2.0):
        found = pointwise(rows, beta)
        third = found.cumulants[2]
        assert third == pytest.approx(-np.mean([kstat(column, 3) for column in rows.T]), rel=1e-3)
        assert found.leave_one_out - found.waic == pytest.approx(beta * (beta - 1) / 2 * third, rel=0.15)


def test_float32_rows_are_summed_in_float64():
    rows = np.random.default_rng(5).normal(-1, 0.1, size=(500, 3))
    assert pointwise(rows.astype(np.float32)).waic == pytest.approx(pointwise(rows).waic, rel=1e-6)
    assert pointwise(torch.tensor(rows)).waic == pointwise(rows).waic


def test_groups_can_be_left_out():
    rows = np.random.default_rng(6).normal(size=(3, 20, 2))
    stream = streamed(rows)
    assert stream.pooled([0, 2]).waic == pytest.approx(pointwise(rows[[0, 2]]).waic)
    assert stream.pooled(np.array([True, False, True])).waic == pytest.approx(pointwise(rows[[0, 2]]).waic)
    value, stderr = stream.estimate(lambda p: p.gibbs_training_loss)
    assert value == pytest.approx(-rows.mean())
    assert stderr == pytest.approx(rows.mean((1, 2)).std(ddof=1) / math.sqrt(3))


def test_one_observation_and_one_chain():
    found = pointwise(np.array([[-1.0], [-2.0]]))
    assert found.n == 1
    assert found.leave_one_out == pytest.approx(math.log((math.e + math.e**2) / 2))
    assert math.isnan(streamed(np.array([[-1.0], [-2.0]])).estimate(lambda p: p.waic)[1])


@given(st.integers(2, 30), st.integers(1, 4), st.floats(0.1, 3.0), st.integers(0, 99))
def test_order_of_inequalities(draws, n, beta, seed):
    found = pointwise(np.random.default_rng(seed).normal(-1, 1, size=(draws, n)), beta)
    assert found.bayes_training_loss <= found.gibbs_training_loss + 1e-12  # Jensen
    assert found.functional_variance >= 0
    assert found.waic >= found.bayes_training_loss
    assert found.leave_one_out >= found.bayes_training_loss - 1e-12


@pytest.mark.parametrize(
    ("rows", "beta", "message"),
    [
        (np.zeros((1, 3)), 1.0, "at least 2 draws, got 1"),
        (np.zeros((1, 1, 3)), 1.0, "at least 2 draws, got 1"),
        (np.zeros(5), 1.0, r"got shape \(5,\)"),
        (np.zeros((2, 3, 4, 5)), 1.0, r"got shape \(2, 3, 4, 5\)"),
        (np.zeros((0, 3)), 1.0, "got shape"),
        (
            np.array([[0.0, -np.inf], [0.0, 0.0]]),
            1.0,
            r"−∞: a draw gives an observation probability zero.*\[1\]",
        ),
        (np.array([[0.0, np.nan], [0.0, 0.0]]), 1.0, "NaN"),
        (np.zeros((3, 3)), 0.0, "beta must be a positive finite number, got 0"),
        (np.zeros((3, 3)), -1.0, "beta must be a positive finite number, got -1"),
        ([["a"]], 1.0, "must be an array"),
    ],
)
def test_bad_input(rows, beta, message):
    with pytest.raises(bs.InputError, match=message):
        pointwise(rows, beta)


def test_mismatched_rows():
    stream = Stream(3, groups=2)
    with pytest.raises(bs.InputError, match=r"shape \(draws, 2, 3\) or \(2, 3\), got \(1, 2, 4\)"):
        stream.add(np.zeros((2, 4)))
    with pytest.raises(bs.InputError, match="at least 2 draws, got 0"):
        stream.pooled()
