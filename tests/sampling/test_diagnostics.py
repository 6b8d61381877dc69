import math

import numpy as np
import pytest
from scipy.signal import lfilter

from basinscope.sampling.diagnostics import autocovariance, effective_size, split_rhat, summarize
from basinscope.sampling.trace import STATISTICS, Trace
from chance import assert_within, deviations


def autoregressive(rho, chains, length, seed):
    """Stationary x' = ρx + √(1 − ρ²) ξ of unit variance, shape (chains, length)."""
    noise = np.random.default_rng(seed).normal(size=(chains, length))
    noise[:, 1:] *= math.sqrt(1 - rho**2)
    return lfilter([1.0], [1.0, -rho], noise, axis=1)


def blocks_of(rows, blocks=512):
    trace = Trace(len(rows), blocks)
    data = np.zeros((rows.shape[1], len(rows), len(STATISTICS)))
    data[:, :, STATISTICS.index("excess")], data[:, :, STATISTICS.index("excess_squared")] = rows.T, rows.T**2
    trace.append(data)
    return trace.values("excess"), trace.values("excess_squared"), trace.width


def test_autocovariance_by_hand():
    row = np.array([[1.0, 2.0, 4.0, 5.0]])
    # centred: −2, −1, 1, 2
    expected = [[(4 + 1 + 1 + 4) / 4, (2 - 1 + 2) / 4, (-2 - 2) / 4, -4 / 4]]
    np.testing.assert_allclose(autocovariance(row), expected, atol=1e-12)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9, 0.97, -0.5])
def test_effective_size_of_autoregressions(rho, seed):
    # N (1 − ρ)/(1 + ρ). Truncating the sum of autocorrelations costs a few per cent, which longer chains do not show.
    sizes = [effective_size(autoregressive(rho, 4, 10_000, [seed, run])) for run in range(40)]
    exact = 40_000 * (1 - rho) / (1 + rho)
    assert_within(np.mean(sizes), exact, np.std(sizes, ddof=1) / math.sqrt(40), freedom=39, bias=0.03 * exact)


def test_effective_size_knows_chains_that_disagree():
    rows = autoregressive(0.0, 4, 1000, 0) + np.array([[0.0], [0.0], [0.0], [5.0]])
    assert effective_size(rows) < 20


def test_effective_size_of_degenerate_rows():
    assert effective_size(np.ones((2, 10))) == 20
    assert math.isnan(effective_size(np.ones((2, 3))))


def test_split_rhat_by_hand():
    # Half-chain means 0, 0, 2, 2: variance 4/3; W = 1, N = 100.
    assert split_rhat(np.array([0.0, 0.0, 2.0, 2.0]), 1.0, 100) == pytest.approx(math.sqrt(0.99 + 4 / 3))
    assert split_rhat(np.zeros(4), 0.0, 100) == 1.0
    assert split_rhat(np.array([0.0, 1.0]), 0.0, 100) == math.inf


def test_rhat_of_shifted_chains(seed):
    # Half-chain means have the variance 1.86/2000. For 16 of them ½ off their mean on either side, B then has the
    # standard deviation (2/15) · ½ · √16 · 0.031 = 0.0081, and R̂ half of that.
    rows = autoregressive(0.3, 8, 4000, seed)
    chance = deviations() * 0.0081 / 2
    assert summarize(*blocks_of(rows)).rhat == pytest.approx(1.0, abs=0.005)
    shift = np.repeat([[0.0], [1.0]], 4, axis=0)
    # Between half-chains of two equal groups one apart: B = 16·¼/15.
    assert summarize(*blocks_of(rows + shift)).rhat == pytest.approx(math.sqrt(1 + 4 / 15), abs=chance)
    # Every chain drifts alike: whole chains agree, halves do not. Within a half the drift itself has variance 1/12.
    drift = np.linspace(0, 2, 4000)[None]
    expected = math.sqrt(1 + 16 * 0.25 / 15 / (1 + 1 / 12))
    assert summarize(*blocks_of(rows + drift)).rhat == pytest.approx(expected, abs=chance)


@pytest.mark.parametrize("blocks", [64, 512])
@pytest.mark.parametrize("rho", [0.0, 0.9])
def test_standard_errors_are_as_large_as_the_errors(rho, blocks, seed):
    # z = mean/stderr over the runs has unit variance, but for chance, of standard error 1/√(2 runs), and the few per
    # cent that the truncation of the autocorrelation costs.
    runs = 600
    found = [summarize(*blocks_of(autoregressive(rho, 4, 2000, [seed, run]), blocks)) for run in range(runs)]
    z = np.array([summary.mean / summary.stderr for summary in found])
    assert_within(z.std(), 1.0, 1 / math.sqrt(2 * runs), bias=0.03)
    assert_within(z.mean(), 0.0, z.std() / math.sqrt(runs))
    # ESS in draws, whatever the width of the blocks
    ess = np.array([summary.ess for summary in found])
    exact = 8000 * (1 - rho) / (1 + rho)
    assert abs(ess.mean() / exact - 1) < 0.1


def test_summary_of_draws_does_not_depend_on_blocks():
    rows = 3 + 2 * autoregressive(0.0, 2, 4096, 0)
    for blocks in (16, 4096):
        summary = summarize(*blocks_of(rows, blocks))
        assert summary.mean == pytest.approx(rows.mean(), rel=1e-12)
        assert summary.variance == pytest.approx(rows.var(), rel=1e-9)
