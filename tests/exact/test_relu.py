from fractions import Fraction

import pytest

from basinscope.errors import InputError
from basinscope.exact import deep_linear, hessian_bounds, regular, relu_kink_pair, relu_three_layer, sum_rule


def test_groups_add_up_with_one_more_input_for_their_bias():
    expected = sum_rule(deep_linear([2, 4, 4], 1), deep_linear([2, 1, 4], 0))
    assert relu_three_layer(3, 2, [(4, 1), (1, 0)]) == expected


def test_a_group_active_everywhere_is_a_linear_network_with_bias():
    assert relu_three_layer(3, 2, [], always_active=(4, 1), output_bias=True) == deep_linear([2, 4, 3], 1, bias=True)
    assert relu_three_layer(3, 2, [], always_active=(4, 1)) == deep_linear([2, 4, 4], 1)


def test_an_output_bias_is_regular():
    alone = relu_three_layer(3, 2, [(4, 1)])
    assert relu_three_layer(3, 2, [(4, 1)], output_bias=True) == sum_rule(alone, regular(2))


def test_a_shared_kink_exceeds_what_the_hessian_of_an_analytic_loss_allows():
    assert relu_kink_pair()[0] > hessian_bounds(2, 1)[1] == Fraction(3, 4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: relu_three_layer(2, 1, []), "groups is empty"),
        (lambda: relu_three_layer(2, 1, [(3, 2)]), r"groups\[0\]: rank must be at most 1"),
        (lambda: relu_three_layer(2, 1, [(0, 0)]), r"groups\[0\] must be \(units, rank\) with at least one unit"),
        (lambda: relu_three_layer(2, 1, [(3,)]), r"groups\[0\] must be \(units, rank\)"),
        (lambda: relu_three_layer(0, 1, [(3, 1)]), "inputs must be at least 1, got 0"),
        (lambda: relu_three_layer(1, 3, [], always_active=(3, 2), output_bias=True), "always_active: rank must be at"),
    ],
)
def test_bad_groups_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
