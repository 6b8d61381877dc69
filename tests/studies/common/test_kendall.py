import numpy as np
import pytest
from scipy import stats

from basinscope.errors import InputError
from studies.common.kendall import kendall, resampled, windows, with_interval


@pytest.mark.parametrize("ties", [False, True])
def test_tau_is_that_of_scipy(ties):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 60))
    y += x
    if ties:
        x, y = x.round(0), y.round(0)
    assert kendall(x, y)[0] == pytest.approx(stats.kendalltau(x, y).statistic)


def test_weights_count_like_copies():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(2, 12))
    counts = rng.integers(0, 4, size=(5, 12))
    for row, tau in zip(counts, kendall(x, y, counts), strict=True):
        assert tau == pytest.approx(stats.kendalltau(np.repeat(x, row), np.repeat(y, row)).statistic)


def test_intervals_cover_the_truth_and_clusters_widen_them():
    """τ of a bivariate normal with correlation ρ is (2/π) asin ρ."""
    rng = np.random.default_rng(2)
    truth = 2 / np.pi * np.arcsin(0.6)
    covered = 0
    for _ in range(40):
        x = rng.normal(size=80)
        y = 0.6 * x + 0.8 * rng.normal(size=80)
        interval = with_interval(x, y, range(80), repetitions=200)
        covered += interval.low <= truth <= interval.high
    assert covered >= 34
    copied = with_interval(np.repeat(x, 5), np.repeat(y, 5) + 1e-9 * np.arange(400), np.repeat(range(80), 5))
    naive = with_interval(np.repeat(x, 5), np.repeat(y, 5) + 1e-9 * np.arange(400), range(400))
    assert copied.high - copied.low > 1.5 * (naive.high - naive.low)


def test_within_groups_a_shift_of_groups_does_not_matter():
    x = np.array([1.0, 2, 3, 11, 12, 13])
    y = np.array([11.0, 12, 13, 1, 2, 3])
    groups = ["a"] * 3 + ["b"] * 3
    assert with_interval(x, y, range(6), groups).value == 1
    assert with_interval(x, y, range(6)).value < 0


def test_unknown_numbers_are_left_out():
    interval = with_interval([1, 2, np.nan, 3], [1, 2, 0, 3], range(4))
    assert (interval.value, interval.count) == (1, 3)
    assert np.isnan(with_interval([1, np.nan], [1, 2], range(2)).value)
    assert np.isnan(with_interval([1, 1, 1], [1, 2, 3], range(3)).value)
    with pytest.raises(InputError, match="finite"):
        kendall([1, np.nan], [1, 2])


def test_windows_hold_their_share():
    along = np.arange(20.0)
    taus = windows(along, along, np.where(along < 10, along, -along), range(20), share=0.5, steps=3)
    assert [place for place, _ in taus] == [4.5, 9.5, 14.5]
    assert taus[0][1].value == taus[0][1].low == 1
    assert taus[-1][1].value == -1
    assert windows([1.0], [1.0], [1.0], ["a"]) == []


def test_clusters_are_drawn_whole():
    drawn = resampled(["a", "b", "a", "c"], repetitions=50)
    assert (drawn[:, 0] == drawn[:, 2]).all()
    assert (drawn[:, [0, 1, 3]].sum(1) == 3).all()
