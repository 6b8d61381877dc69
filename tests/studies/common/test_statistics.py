import math

import numpy as np
import pytest
from scipy import stats

from basinscope.errors import InputError
from studies.common.statistics import holm, lag, rank_correlation, turning_point, welch


@pytest.mark.parametrize(("sizes", "spreads"), [((5, 5), (1.0, 1.0)), ((3, 12), (0.1, 4.0)), ((2, 2), (1.0, 9.0))])
def test_welch_agrees_with_scipy(sizes, spreads):
    rng = np.random.default_rng(0)
    x, y = (rng.normal(k, spread, size) for k, (size, spread) in enumerate(zip(sizes, spreads, strict=True)))
    ours, theirs = welch(x, y), stats.ttest_ind(x, y, equal_var=False)
    interval = theirs.confidence_interval(0.95)
    assert np.allclose(
        [ours.t, ours.p, ours.freedom, ours.low, ours.high],
        [theirs.statistic, theirs.pvalue, theirs.df, interval.low, interval.high],
    )
    assert ours.counts == sizes


def test_hedges_g_is_the_difference_in_pooled_deviations_made_unbiased_for_small_samples():
    x, y = [1.0, 2.0, 3.0, 4.0], [2.0, 4.0]
    pooled = math.sqrt((3 * np.var(x, ddof=1) + np.var(y, ddof=1)) / 4)
    assert welch(x, y).effect == pytest.approx((2.5 - 3.0) / pooled * (1 - 3 / (4 * 6 - 9)))


@pytest.mark.parametrize("bad", [[1.0], [1.0, math.nan], []])
def test_welch_refuses_samples_that_cannot_be_compared(bad):
    with pytest.raises(InputError, match="at least two finite numbers"):
        welch(bad, [1.0, 2.0])


def test_welch_refuses_two_constants():
    with pytest.raises(InputError, match="neither sample varies"):
        welch([1.0, 1.0], [2.0, 2.0])


def test_holm_agrees_with_rejecting_step_by_step():
    rng = np.random.default_rng(1)
    p = (rng.random(12) ** 4).tolist()
    corrected = holm(p)
    for level in (0.01, 0.05, 0.2, 0.7):
        rejected = set()
        for rank, place in enumerate(np.argsort(p)):
            if p[place] > level / (len(p) - rank):
                break
            rejected.add(int(place))
        assert rejected == {place for place, value in enumerate(corrected) if value <= level}
    assert holm([]) == []


def test_holm_refuses_what_is_no_probability():
    with pytest.raises(InputError, match=r"got 1\.5"):
        holm([0.1, 1.5])


def test_rank_correlation_agrees_with_scipy_with_and_without_ties():
    rng = np.random.default_rng(2)
    for values in (rng.normal(size=(2, 20)), rng.integers(0, 4, size=(2, 20)).astype(float)):
        assert rank_correlation(*values) == pytest.approx(stats.spearmanr(*values).statistic)
    assert math.isnan(rank_correlation([1.0, 1.0], [1.0, 2.0]))
    assert rank_correlation([1.0, math.nan, 2.0], [1.0, 5.0, 2.0]) == 1.0


def test_parabolas_turn_where_their_vertex_is_and_lag_by_the_distance_of_the_vertices():
    times = np.arange(10.0)
    assert turning_point(times, (times - 3) ** 2) == 3
    assert lag(times, (times - 3) ** 2, (times - 7) ** 2) == 4
    assert math.isnan(lag(times, (times - 3) ** 2, -times))
