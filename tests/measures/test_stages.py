"""Where curves break into stages."""

import numpy as np
import pytest

import basinscope as bs
from basinscope.measures.stages import stages

TIMES = np.geomspace(10, 1e5, 40)


def steps_of(heights, ends):
    return np.array(heights)[np.searchsorted(ends, np.arange(40), side="right")].astype(float)


def test_boundaries_lie_where_the_curve_jumps(seed):
    curve = steps_of([3.0, 1.0, 6.0], [12, 30]) + 0.05 * np.random.default_rng(seed).normal(size=40)
    found = stages(TIMES, curve)  # chance may add another one
    for place in (12, 30):
        (boundary,) = (each for each in found if TIMES[place - 1] < each.at < TIMES[place])
        assert boundary.low <= boundary.at <= boundary.high


def test_noise_is_seldom_broken_into_stages():
    """Of fifty lines with noise at fixed seeds; by Schwarz's criterion four are broken."""
    noise = np.random.default_rng(0).normal(size=(50, 40))
    assert sum(len(stages(TIMES, row)) > 0 for row in noise) <= 2


def test_a_straight_line_is_one_stage():
    curve = 3 - 0.2 * np.log(TIMES) + 0.01 * np.cos(np.arange(40) * 2.0)
    assert stages(TIMES, curve) == []


def test_intervals_widen_with_noise(seed):
    """One pair of curves in a hundred says the contrary by chance, seven of thirteen do not."""
    rng = np.random.default_rng(seed)
    bent = np.maximum(0, np.log(TIMES) - np.log(TIMES[20]))
    wider = 0
    for _ in range(13):
        narrow, wide = (_width(stages(TIMES, bent + noise * rng.normal(size=40), most=2)) for noise in (0.02, 0.3))
        wider += narrow < wide
    assert wider >= 7


def _width(found):
    return np.log(found[0].high / found[0].low) if found else np.inf


def test_the_best_pieces_are_those_of_a_brute_force(seed):
    from basinscope.measures.stages import _best, _costs

    y = np.random.default_rng(seed).normal(size=12)
    x = np.arange(12.0)
    least, ends = _best(_costs(x, y), 12, 3)

    def rss(start, stop):
        return np.polyfit(x[start:stop], y[start:stop], 1, full=True)[1][0]

    by_hand = {
        (i, j): rss(0, i) + rss(i, j) + rss(j, 12) for i in range(3, 7) for j in range(i + 3, 10)
    }  # fmt: skip
    assert least[2] == pytest.approx(min(by_hand.values()), rel=1e-9)
    assert tuple(ends[2]) == min(by_hand, key=by_hand.get)


def test_few_points_and_gaps():
    assert stages([1.0, 2.0, 3.0], [1.0, 5.0, 2.0]) == []
    curve = steps_of([0.0, 1.0], [20])
    curve[5] = np.nan
    assert len(stages(TIMES, curve)) == 1


def test_times_must_rise():
    with pytest.raises(bs.InputError, match="times must be positive and rise"):
        stages([1.0, 1.0], [0.0, 0.0])
