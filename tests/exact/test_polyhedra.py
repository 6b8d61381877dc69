from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from basinscope.errors import InputError
from basinscope.exact import brieskorn, newton, normal_crossing, power_rule, product_rule, sum_rule

PRIORS = st.sampled_from([Fraction(-1, 2), Fraction(0), Fraction(1), Fraction(3, 2)])


@st.composite
def polyhedra(draw, max_variables=4, max_monomials=5):
    d = draw(st.integers(1, max_variables))
    monomial = st.lists(st.integers(0, 4), min_size=d, max_size=d).filter(any)
    return draw(st.lists(monomial, min_size=1, max_size=max_monomials)), draw(st.lists(PRIORS, min_size=d, max_size=d))


def side_by_side(left, right):
    """Exponents of two polynomials in separate variables, each padded with the other's variables."""
    return [[*e, *[0] * len(right[0])] for e in left], [[*[0] * len(left[0]), *e] for e in right]


def numerical(monomials, h):
    """λ as the cheapest weight vector u, and θ as the dimension of all such u, by floating-point programmes."""
    e, c = np.array(monomials, float), 1 + np.array(h, float)
    d = len(c)
    value = linprog(c, A_ub=-e, b_ub=-np.ones(len(e))).fun  # min c·u with u·e ≥ 1
    # θ − 1 is the dimension of the optimal face: the inequalities that are tight on all of it cut it out.
    face = {"A_ub": -e, "b_ub": -np.ones(len(e)), "A_eq": c[None], "b_eq": [value]}
    normals = np.vstack([np.eye(d), e])
    offsets = np.concatenate([np.zeros(d), np.ones(len(e))])
    tight = [n for n, b in zip(normals, offsets, strict=True) if -linprog(-n, **face).fun - b < 1e-7]
    return value, d - np.linalg.matrix_rank(np.array([*tight, c])) + 1


@given(polyhedra())
@settings(max_examples=60)
def test_the_exact_programme_agrees_with_a_floating_point_one(polyhedron):
    value, theta = newton(*polyhedron)
    reference, reference_theta = numerical(*polyhedron)
    assert float(value) == pytest.approx(reference, rel=1e-9)
    assert theta == reference_theta


@given(st.lists(st.integers(0, 5), min_size=1, max_size=5).filter(any), st.data())
def test_one_monomial_is_a_normal_crossing(k, data):
    h = data.draw(st.lists(PRIORS, min_size=len(k), max_size=len(k)))
    assert newton([[2 * power for power in k]], h) == normal_crossing(k, h)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_pure_powers_are_a_brieskorn_sum(p):
    assert newton(np.diag(p).tolist()) == brieskorn(p)


@given(polyhedra(3, 4), polyhedra(3, 3))
@settings(max_examples=50)
def test_separate_variables_follow_the_sum_and_product_rules(left, right):
    padded_left, padded_right = side_by_side(left[0], right[0])
    h = [*left[1], *right[1]]
    parts = newton(*left), newton(*right)
    assert newton(padded_left + padded_right, h) == sum_rule(*parts)
    products = [[x + y for x, y in zip(e, f, strict=True)] for e in padded_left for f in padded_right]
    assert newton(products, h) == product_rule(*parts)


@given(polyhedra(), st.integers(1, 5))
@settings(max_examples=50)
def test_a_power_divides_the_coefficient(polyhedron, power):
    monomials, h = polyhedron
    scaled = [[power * exponent for exponent in monomial] for monomial in monomials]
    assert newton(scaled, h) == power_rule(newton(monomials, h), power)


@given(polyhedra(), st.data())
@settings(max_examples=50)
def test_another_monomial_never_lowers_the_coefficient(polyhedron, data):
    monomials, h = polyhedron
    d = len(h)
    extra = data.draw(st.lists(st.integers(0, 4), min_size=d, max_size=d).filter(any))
    assert newton([*monomials, extra], h)[0] >= newton(monomials, h)[0]


def test_a_point_in_the_middle_of_an_edge():
    # In three dimensions, (2, 2, 2) lies inside the edge from (4, 0, 2) to (0, 4, 2): codimension two.
    assert newton([[4, 0, 2], [0, 4, 2]]) == (Fraction(1, 2), 2)


def test_the_degenerate_square_is_only_bounded():
    assert newton([[2, 0], [1, 1], [0, 2]])[0] > Fraction(1, 2)  # (x − y)² has λ = ½


@pytest.mark.parametrize(
    ("exponents", "h", "message"),
    [
        ([], None, "exponents is empty"),
        (2, None, "exponents must be a list, got 2"),
        ([[2, 0], [0]], None, r"lengths \[1, 2\]"),
        ([[2, 0], [0, 0]], None, "K must vanish at the origin"),
        ([[2, -1]], None, r"exponents\[0\]\[1\] must be at least 0, got -1"),
        ([[2, 0.5]], None, r"exponents\[0\]\[1\] must be an integer, got 0.5"),
        ([[]], None, r"exponents\[0\] is empty"),
        ([[2, 2]], [0], "h needs one exponent per variable: expected 2, got 1"),
        ([[2, 2]], [0, -1], r"h\[1\] must be above -1, got -1"),
        ([[2, 2]], [0, 0.5], r"h\[1\] must be an integer or a Fraction, got 0.5 — pass Fraction\('0.5'\)"),
    ],
)
def test_bad_exponents_are_refused(exponents, h, message):
    with pytest.raises(InputError, match=message):
        newton(exponents, h)
