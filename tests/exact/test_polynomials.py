import math
from fractions import Fraction

import numpy as np
import pytest

from basinscope.errors import InputError
from basinscope.exact import (
    brieskorn,
    curve_squared,
    hessian_bounds,
    normal_crossing,
    normal_mixture,
    regular,
    tanh_one_input,
)


def test_free_directions_do_not_count():
    assert normal_crossing([0, 3, 0]) == (Fraction(1, 6), 1)


@pytest.mark.parametrize(
    ("p", "q", "expected"),
    [
        (1, 7, (Fraction(1, 2), 1)),  # a smooth curve
        (2, 2, (Fraction(1, 2), 2)),  # two crossing lines
        (2, 3, (Fraction(5, 12), 1)),
        (2, 4, (Fraction(3, 8), 1)),  # two touching parabolas
        (3, 3, (Fraction(1, 3), 1)),
    ],
)
def test_squared_curves(p, q, expected):
    assert curve_squared(p, q) == curve_squared(q, p) == expected


@pytest.mark.parametrize(("p", "q"), [(1, 2), (2, 4), (3, 3)])
def test_squared_curves_by_volume(p, q):
    """The volume of {K < ε} near the origin grows like ε^λ when θ = 1."""
    y = np.linspace(0, 1, 200_001)[1:]

    def log_volume(log_eps):
        root = math.exp(log_eps / 2)
        width = np.maximum(y**q + root, 0) ** (1 / p) - np.maximum(y**q - root, 0) ** (1 / p)
        return math.log(np.mean(width))

    low, high = -14.0, -12.0
    slope = (log_volume(high) - log_volume(low)) / (high - low)
    assert slope == pytest.approx(float(curve_squared(p, q)[0]), abs=0.03)


def test_tanh_coefficient_is_the_best_of_its_candidates():
    """Every i gives an upper bound (H + i² + i)/(4i + 2); the formula picks the least, and θ = 2 where two agree."""
    for hidden in range(1, 200):
        candidates = [Fraction(hidden + i**2 + i, 4 * i + 2) for i in range(hidden + 2)]
        value, theta = tanh_one_input(hidden)
        assert value == min(candidates)
        assert theta == candidates.count(value)


def test_bounds_meet_at_full_rank():
    assert hessian_bounds(7, 7) == (regular(7)[0], regular(7)[0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: regular(-1), "d must be at least 0, got -1"),
        (lambda: regular(2.5), "d must be an integer, got 2.5"),
        (lambda: normal_crossing([]), "k is empty"),
        (lambda: normal_crossing([0, 0]), r"k must have a positive entry, got \[0, 0\]"),
        (lambda: normal_crossing([1, -1]), r"k\[1\] must be at least 0, got -1"),
        (lambda: normal_crossing([1], h=[1, 2]), "expected 1, got 2"),
        (lambda: brieskorn([2, 0]), r"p\[1\] must be at least 1, got 0"),
        (lambda: brieskorn([]), "p is empty"),
        (lambda: curve_squared(0, 2), "p must be at least 1, got 0"),
        (lambda: tanh_one_input(0), "hidden must be at least 1, got 0"),
        (lambda: tanh_one_input("3"), "hidden must be an integer, got '3'"),
        (lambda: normal_mixture(3), "free_means must be 1 or 2"),
        (lambda: hessian_bounds(3, 4), "hessian_rank must be at most d = 3, got 4"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
