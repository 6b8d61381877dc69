import numpy as np
import pytest
from scipy import stats

from basinscope.runs.forecast import forecast
from chance import FALSE_ALARM


def finish(seconds, workers):
    """When the last of the units ends that workers take in their order."""
    free = np.zeros(workers)
    for each in seconds:
        free[np.argmin(free)] += each
    return free.max()


@pytest.mark.parametrize(("workers", "known", "total"), [(1, 20, 120), (4, 20, 120), (16, 20, 120), (4, 60, 500)])
def test_the_interval_holds_nine_times_in_ten(workers, known, total, seed):
    rng, repeats = np.random.default_rng(seed), 100
    held = []
    for _ in range(repeats):
        costs = rng.choice([1.0, 2.0, 4.0], total)
        seconds = costs * rng.lognormal(0, 0.4, total)
        told = forecast(list(zip(seconds[:known], costs[:known], strict=True)), list(costs[known:]), workers)
        held.append(told.low <= finish(seconds[known:], workers) <= told.high)
    assert sum(held) >= stats.binom.ppf(FALSE_ALARM, repeats, 0.9)


def test_jobs_of_equal_length_are_foretold_exactly():
    told = forecast([(3.0, 1.5)] * 5, [1.5] * 8, workers=4)
    assert [told.expected, told.low, told.high] == pytest.approx([6.0, 6.0, 6.0])


def test_one_long_unit_cannot_be_split():
    assert forecast([(1.0, 1.0)] * 5, [10.0, 1.0], workers=8).expected == pytest.approx(10.0)


def test_nothing_is_said_too_early_and_nothing_is_left_at_the_end():
    assert forecast([(1.0, 1.0)] * 2, [1.0], workers=1) is None
    assert forecast([], [], workers=1).expected == 0
