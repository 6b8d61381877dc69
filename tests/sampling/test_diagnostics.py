import math

import numpy as np
import pytest
from scipy.signal import lfilter

from basinscope.sampling.diagnostics import autocovariance, effective_size, split_rhat, summarize
from basinscope.sampling.trace import STATISTICS, Trace


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
def test_effective_size_of_autoregressions(rho):
    # N (1 − ρ)/(1 + ρ). Truncating the sum of autocorrelations costs a few per cent, which longer chains do not show.
    sizes = [effective_size(autoregressive(rho, 4, 10_000, seed)) for seed in range(20)]
    exact = 40_000 * (1 - rho) / (1 + rho)
    error = np.std(sizes, ddof=1) / math.sqrt(len(sizes))
    assert abs(np.mean(sizes) - exact) < 4 * error + 0.02 * exact


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


def test_rhat_of_shifted_chains():
    rows = autoregressive(0.3, 8, 4000, 1)
    assert summarize(*blocks_of(rows)).rhat == pytest.approx(1.0, abs=0.005)
    shift = np.repeat([[0.0], [1.0]], 4, axis=0)
    # Between half-chains of two equal groups one apart: B = 16·¼/15.
    assert summarize(*blocks_of(rows + shift)).rhat == pytest.approx(math.sqrt(1 + 4 / 15), abs=0.01)
    # Every chain drifts alike: whole chains agree, halves do not. Within a half the drift itself has variance 1/12.
    drift = np.linspace(0, 2, 4000)[None]
    expected = math.sqrt(1 + 16 * 0.25 / 15 / (1 + 1 / 12))
    assert summarize(*blocks_of(rows + drift)).rhat == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("blocks", [64, 512])
@pytest.mark.parametrize("rho", [0.0, 0.9])
def test_standard_errors_are_as_large_as_the_errors(rho, blocks):
    # z = mean/stderr over 300 runs has unit variance, here within 4 of its own standard errors 1/√600 and the few
    # per cent that the truncation of the autocorrelation costs.
    found = [summarize(*blocks_of(autoregressive(rho, 4, 2000, seed), blocks)) for seed in range(300)]
    z = np.array([summary.mean / summary.stderr for summary in found])
    assert abs(z.std() - 1) < 4 / math.sqrt(600) + 0.03
    assert abs(z.mean()) < 4 / math.sqrt(300)
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
