from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basinscope.errors import InputError
from basinscope.exact import normal_crossing, power_rule, product_rule, regular, sum_rule

PARTS = st.tuples(st.fractions(0, 5, max_denominator=12), st.integers(1, 4))


@given(st.lists(PARTS, min_size=2, max_size=5))
def test_rules_do_not_depend_on_order_or_grouping(parts):
    for rule in (sum_rule, product_rule):
        assert rule(*parts) == rule(*parts[::-1]) == rule(rule(*parts[:1]), rule(*parts[1:]))


@given(st.lists(PARTS, min_size=1, max_size=4), st.integers(1, 6))
def test_a_power_of_a_product_is_the_product_of_powers(parts, power):
    assert power_rule(product_rule(*parts), power) == product_rule(*(power_rule(part, power) for part in parts))


def test_monomials_are_products_of_their_variables():
    for k in ([1, 1], [1, 2, 2], [3, 1, 3, 3]):
        assert product_rule(*(normal_crossing([power]) for power in k)) == normal_crossing(k)


def test_regular_models_are_sums_of_their_parameters():
    assert sum_rule(*[regular(1)] * 7) == regular(7)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sum_rule(), "at least one part"),
        (lambda: product_rule(), "at least one part"),
        (lambda: sum_rule(Fraction(1, 2)), r"a part must be a pair \(λ, θ\)"),
        (lambda: sum_rule((0.5, 1)), "λ must be an integer or a Fraction, got 0.5"),
        (lambda: sum_rule((Fraction(-1, 2), 1)), "λ must not be negative, got -1/2"),
        (lambda: sum_rule((Fraction(1, 2), 0)), "θ must be at least 1, got 0"),
        (lambda: power_rule(regular(1), 0), "power must be positive, got 0"),
    ],
)
def test_bad_parts_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
