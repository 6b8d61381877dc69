import itertools
from fractions import Fraction
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basinscope.errors import InputError
from basinscope.exact import deep_linear, deep_linear_local, hessian_bounds, reduced_rank, regular


@cache
def codimension(excess: tuple[int, ...]) -> int:
    """Least codimension of the rank strata of A₁⋯A_L = 0: min Σ (ρ_{k−1} − ρ_k)(M_{k+1} − ρ_k) over falling ranks."""
    first, *rest = excess
    best = {first: 0}
    for width in rest:
        step = {}
        for before, cost in best.items():
            for rank in range(min(before, width) + 1):
                total = cost + (before - rank) * (width - rank)
                step[rank] = min(total, step.get(rank, total))
        best = step
    return best[0]


def ranks_of(widths):
    return range(min(widths) + 1)


@st.composite
def networks(draw, most_layers=6):
    count = draw(st.integers(1, most_layers)) + 1
    widths = draw(st.lists(st.integers(1, 30), min_size=count, max_size=count))
    return widths, draw(st.integers(0, min(widths)))


def test_reduced_rank_regression_is_the_network_with_one_hidden_layer():
    for widths in itertools.product(range(1, 9), repeat=3):
        for rank in ranks_of(widths):
            assert reduced_rank(*widths, rank) == deep_linear(widths, rank), (widths, rank)


@pytest.mark.parametrize(("layers", "widest"), [(1, 9), (2, 9), (3, 6), (4, 4), (5, 3)])
def test_twice_the_coefficient_is_the_codimension_of_the_largest_stratum(layers, widest):
    for widths in itertools.product(range(1, widest + 1), repeat=layers + 1):
        for rank in ranks_of(widths):
            core = codimension(tuple(width - rank for width in widths))
            regular_part = rank * (widths[0] + widths[-1]) - rank**2
            assert 2 * deep_linear(widths, rank)[0] == regular_part + core, (widths, rank)


def test_depth_never_increases_the_coefficient():
    for widths in itertools.product(range(1, 7), repeat=3):
        for rank in ranks_of(widths):
            shallow = deep_linear(widths, rank)[0]
            for hidden, place in itertools.product(range(max(rank, 1), 8), (1, 2)):
                deep = [*widths[:place], hidden, *widths[place:]]
                assert deep_linear(deep, rank)[0] <= shallow, (deep, rank)


@given(networks())
def test_the_order_of_the_layers_matters_only_through_the_ends(network):
    widths, rank = network
    assert deep_linear(widths, rank) == deep_linear(widths[::-1], rank)
    first, *hidden, last = widths
    assert deep_linear(widths, rank) == deep_linear([first, *sorted(hidden), last], rank)


@given(networks())
def test_the_coefficient_is_at_most_that_of_the_linear_map_itself(network):
    widths, rank = network
    value, theta = deep_linear(widths, rank)
    assert value <= Fraction(widths[0] * widths[-1], 2)
    assert 1 <= theta <= (len(widths) - 1) ** 2 // 4 + 1
    assert 4 * value == int(4 * value)


@given(networks(), st.integers(1, 50))
def test_a_wide_enough_extra_layer_changes_nothing(network, more):
    widths, rank = network
    wide = sum(widths) + more
    assert deep_linear([widths[0], wide, *widths[1:]], rank) == deep_linear(widths, rank)


@given(networks(most_layers=1))
def test_a_single_layer_is_regular(network):
    widths, rank = network
    assert deep_linear(widths, rank) == regular(widths[0] * widths[1])


@given(networks())
def test_an_output_bias_adds_half_the_output_width(network):
    widths, rank = network
    value, theta = deep_linear(widths, rank)
    assert deep_linear(widths, rank, bias=True) == (value + Fraction(widths[0], 2), theta)


def local_points(widest):
    for first, hidden, last in itertools.product(range(1, widest + 1), repeat=3):
        for alpha, beta in itertools.product(range(min(first, hidden) + 1), range(min(hidden, last) + 1)):
            for rank in range(max(0, alpha + beta - hidden), min(alpha, beta) + 1):
                yield (first, hidden, last), rank, (alpha, beta)


def stratum_codimension(widths, rank, alpha, beta):
    """Codimension of {AB = P, rank A = α, rank B = β}: P's own rank is regular, the rest is the fibre over zero."""
    first, hidden, last = (width - rank for width in widths)
    a, b = alpha - rank, beta - rank
    zero_fibre = (first - a) * (hidden - a) + (hidden - b) * (last - b) + a * b
    return rank * (widths[0] + widths[2]) - rank**2 + zero_fibre


def test_twice_the_local_coefficient_is_the_codimension_of_the_largest_stratum_through_the_point():
    for widths, rank, (alpha, beta) in local_points(5):
        first, hidden, last = widths
        through = [
            stratum_codimension(widths, rank, a, b)
            for a in range(alpha, min(first, hidden) + 1)
            for b in range(beta, min(hidden, last, hidden + rank - a) + 1)
        ]
        assert 2 * deep_linear_local(widths, rank, (alpha, beta))[0] == min(through), (widths, rank, alpha, beta)


def test_local_coefficients_respect_transposition_and_bounds():
    for widths, rank, (alpha, beta) in local_points(5):
        first, hidden, last = widths
        value, theta = deep_linear_local(widths, rank, (alpha, beta))
        assert (value, theta) == deep_linear_local(widths[::-1], rank, (beta, alpha))
        assert value >= deep_linear(widths, rank)[0]
        low, high = hessian_bounds(hidden * (first + last), first * beta + last * alpha - alpha * beta)
        assert low <= value <= high


def test_the_least_degenerate_point_has_the_global_coefficient():
    for widths in itertools.product(range(1, 7), repeat=3):
        for rank in ranks_of(widths):
            assert deep_linear_local(widths, rank, (rank, rank)) == deep_linear(widths, rank)


@pytest.mark.parametrize(
    ("widths", "rank", "message"),
    [
        ([2, 3, 2], 3, r"rank must be at most widths\[0\] = 2, got 3"),
        ([2, 3, 2], -1, "rank must be at least 0, got -1"),
        ([2, -3, 2], 0, r"widths\[1\] must be at least 1, got -3"),
        ([2, 0, 2], 0, r"widths\[1\] must be at least 1, got 0"),
        ([2, 2.0, 2], 0, r"widths\[1\] must be an integer, got 2.0"),
        ([2, True, 2], 0, r"widths\[1\] must be an integer, got True"),
        ([], 0, "widths is empty"),
        ([4], 0, "at least two"),
        (4, 0, "widths must be a list, got 4"),
    ],
)
def test_impossible_networks_are_refused(widths, rank, message):
    with pytest.raises(InputError, match=message):
        deep_linear(widths, rank)


@pytest.mark.parametrize(
    ("widths", "rank", "ranks", "message"),
    [
        ([2, 2, 2, 2], 0, (0, 0), "expected three widths, got 4"),
        ([2, 2, 2], 0, (3, 0), r"ranks must be at most \(2, 2\)"),
        ([2, 2, 2], 0, (2, 1), r"lies in 1\.\.1, got 0 — no such point exists"),
        ([2, 2, 2], 2, (1, 1), r"lies in 0\.\.1, got 2"),
        ([2, 2, 2], 0, (1,), "ranks must be"),
    ],
)
def test_impossible_points_are_refused(widths, rank, ranks, message):
    with pytest.raises(InputError, match=message):
        deep_linear_local(widths, rank, ranks)


def test_reduced_rank_names_the_width_that_limits_the_rank():
    with pytest.raises(InputError, match="rank must be at most hidden = 2, got 3"):
        reduced_rank(4, 2, 5, 3)
