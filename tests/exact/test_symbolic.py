from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from basinscope.errors import InputError
from basinscope.exact import curve_squared, newton, normal_crossing, polynomial, reduced_rank, tanh_one_input
from basinscope.exact._faces import compact_faces, facets, lattice_coordinates


@st.composite
def point_sets(draw, least=2, most=3):
    d = draw(st.integers(least, most))
    point = st.tuples(*[st.integers(0, 4)] * d).filter(any)
    return draw(st.lists(point, min_size=1, max_size=6, unique=True))


@given(point_sets())
@settings(max_examples=60)
def test_compact_faces_are_what_positive_weights_select(points):
    faces = set(compact_faces(points))
    rng = np.random.default_rng(0)
    d = len(points[0])
    grid = [*np.ndindex(*[5] * d), *rng.integers(1, 60, size=(300, d)).tolist()]
    for weights in grid:
        if min(weights) > 0:
            values = [int(np.dot(weights, point)) for point in points]
            assert frozenset(p for p, v in zip(points, values, strict=True) if v == min(values)) in faces
    # And each is selected by some positive weight: the sum of the normals of the facets that meet in it.
    result = facets(points)
    for face in faces:
        normals = [u for u, c in result if all(np.dot(u, p) == c for p in face)]
        weights = np.sum(normals, axis=0)
        values = [int(weights @ np.array(p)) for p in points]
        assert weights.min() > 0
        assert frozenset(p for p, v in zip(points, values, strict=True) if v == min(values)) == face


@given(point_sets(2, 4))
@settings(max_examples=60)
def test_lattice_coordinates_keep_volumes(points):
    places = lattice_coordinates(points)
    matrix = np.array([np.subtract(p, min(points)) for p in points])
    inner = np.array([places[p] for p in points], float).reshape(len(points), -1)
    assert inner.shape[1] == np.linalg.matrix_rank(matrix)
    # A linear relation between the points holds in both coordinates or in neither.
    for three in combinations(range(len(points)), 3):
        before = np.linalg.matrix_rank(matrix[list(three[1:])] - matrix[three[0]])
        after = np.linalg.matrix_rank(inner[list(three[1:])] - inner[three[0]])
        assert before == after


@given(st.lists(st.integers(0, 3), min_size=1, max_size=4).filter(any))
@settings(max_examples=30)
def test_a_monomial_is_a_normal_crossing(k):
    symbols = sympy.symbols(f"w0:{len(k)}")
    bound = polynomial(sympy.Mul(*(x ** (2 * e) for x, e in zip(symbols, k, strict=True))), symbols)
    assert bound.exact
    assert (bound.value, bound.multiplicity) == normal_crossing(k)


@given(point_sets(), st.lists(st.integers(1, 5), min_size=6, max_size=6))
@settings(max_examples=30)
def test_sums_of_squares_of_monomials_are_nondegenerate(points, factors):
    symbols = sympy.symbols(f"w0:{len(points[0])}")
    squares = [
        c * sympy.Mul(*(x ** (2 * e) for x, e in zip(symbols, p, strict=True)))
        for p, c in zip(points, factors, strict=False)
    ]
    bound = polynomial(sympy.Add(*squares), symbols)
    assert bound.exact
    assert (bound.value, bound.multiplicity) == newton([[2 * e for e in p] for p in points])


@pytest.mark.parametrize(("p", "q"), [(1, 1), (1, 3), (2, 2), (2, 3), (3, 2), (3, 3), (2, 5), (4, 4), (3, 5)])
def test_squared_plane_curves_are_exact(p, q):
    bound = polynomial(f"(x**{p} - y**{q})**2")
    assert bound.exact
    assert (bound.value, bound.multiplicity) == curve_squared(p, q)


@pytest.mark.parametrize(
    ("expr", "value", "theta"),
    [
        ("x**2 + x*y + y**2", 1, 1),  # positive definite, with a negative discriminant
        ("x**4 - x**2*y**2 + y**4", Fraction(1, 2), 1),  # no real zero, though complex ones
        ("(x**2 + y**2)**2", Fraction(1, 2), 1),
        ("x**2 + (y**2 - z**2)**2*0 + y**4*z**2", Fraction(3, 4), 1),
        ("(x + y + z)**2 + (x - y)**4", Fraction(3, 4), 1),
        ("(x - y)**2 + (x - z)**4 + y**6", Fraction(11, 12), 1),
        ("(y - x - x*y)**2", Fraction(1, 2), 1),
        ("(1 + x)**2*x**2*(y + x**2)**4", Fraction(1, 4), 1),
        ("(x - 2*y)**2*(x + 3*y)**2", Fraction(1, 2), 2),
        ("(x**2 - 2*y**2)**2", Fraction(1, 2), 2),  # irrational branches
        ("((y - x**2)**2 - x**5)**2", Fraction(7, 20), 1),  # a cusp on a parabola: only shifted coordinates are adapted
        ("x**6", Fraction(1, 6), 1),
    ],
)
def test_known_values(expr, value, theta):
    bound = polynomial(expr)
    assert bound.exact
    assert (bound.value, bound.multiplicity) == (value, theta)
    assert bound.lower <= bound.value


def test_a_shear_does_not_change_the_answer():
    x, y, z = sympy.symbols("x y z")
    plain = polynomial("x**2*y**2 + z**4")
    moved = polynomial(sympy.expand((x + y**2) ** 2 * y**2 + (z - x * y) ** 4), [x, y, z])
    assert moved.value >= plain.value
    assert not moved.exact or moved.value == plain.value


@pytest.mark.parametrize(
    ("expr", "truth"),
    [
        ("(a*b + c*d)**2 + (a*b**3 + c*d**3)**2", tanh_one_input(2)[0]),
        ("(a*b + c*d)**2", reduced_rank(1, 2, 1, 0)[0]),
        ("(x**2 + y**2 - z**2)**2", Fraction(1, 2)),
    ],
)
def test_degenerate_polynomials_are_bounded_and_say_so(expr, truth):
    bound = polynomial(expr)
    assert not bound.exact
    assert bound.multiplicity is None
    assert bound.lower <= truth <= bound.value
    assert "vanishes off the coordinate planes" in bound.reason
    assert str(bound).startswith("λ ≤ ")


def test_a_prior_counts_and_forbids_new_coordinates():
    bound = polynomial("x**2*y**2", ["x", "y"], h=[1, 0])
    assert (bound.value, bound.multiplicity, bound.exact) == (Fraction(1, 2), 1, True)
    assert not polynomial("(x - y)**2", h=[1, 0]).exact


def test_variables_that_are_not_there_count_for_nothing():
    assert polynomial("x**2", ["x", "y"]).value == Fraction(1, 2)


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        ("x**2 + 1", r"K must vanish at the origin, got K\(0\) = 1"),
        ("x**3 + y**2", r"K must not be negative, but near the origin its part x\*\*3 is"),
        ("x**2 - y**2", "K must not be negative"),
        ("x**2 - 3*x*y + y**2", "K must not be negative"),
        ("-(x - y)**2", "K must not be negative"),
        ("x**2 + y**2 + z**2 - 3*x*y*0 - 2*x*y - 2*y*z - 2*x*z", "K must not be negative"),
        ("0.5*x**2", "coefficients must be rational"),
        ("sin(x)**2", "must be a polynomial in x"),
        ("x**2*", "expr must be a polynomial"),
        ("3 - 3", "K must depend on a variable"),
        (None, "expr must be a polynomial"),
        ("x**(1/2)", "must be a polynomial in x"),
    ],
)
def test_bad_polynomials_are_refused(expr, message):
    with pytest.raises(InputError, match=message):
        polynomial(expr)


def test_zero_is_refused():
    with pytest.raises(InputError, match="must not be zero everywhere"):
        polynomial("0*x", ["x"])
