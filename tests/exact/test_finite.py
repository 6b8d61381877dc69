import csv
import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import digamma, erf

from basinscope.errors import InputError
from basinscope.exact import deep_linear, finite, normal_crossing
from basinscope.exact.finite import matrices
from chance import assert_within

TABLE = Path(__file__).parent / "data" / "finite_values.csv"
ROWS = list(csv.DictReader(TABLE.read_text().splitlines()))
FUNCTIONS = {
    "quadratic": lambda p, t, gamma: finite.quadratic(p["sig"], t, gamma),
    "hyperbola": lambda p, t, gamma: finite.hyperbola(t, gamma),
    "monomial": lambda p, t, gamma: finite.monomial(p["k"], t),
    "matrix_product": lambda p, t, gamma: finite.matrix_product(p["M"], p["H"], p["N"], t, gamma),
}
# Each value beside its heat capacity, both as functions of nβ alone.
CURVES = {
    "quadratic": (finite.quadratic, finite.quadratic_heat_capacity, ([1.0, 0.1, 0.01],), (2.0,)),
    "hyperbola": (finite.hyperbola, finite.hyperbola_heat_capacity, (), (3.0,)),
    "stiff hyperbola": (finite.hyperbola, finite.hyperbola_heat_capacity, (), (900.0,)),
    "monomial": (finite.monomial, finite.monomial_heat_capacity, ([1, 2, 2],), ()),
    "monomial with prior": (finite.monomial, finite.monomial_heat_capacity, ([1, 1],), ([2, Fraction(1, 2)],)),
    "localized": (finite.monomial_localized, finite.monomial_localized_heat_capacity, ([2, 1, 1],), (2.0, 0.5)),
    "matrix": (finite.matrix_product, finite.matrix_product_heat_capacity, (2, 3, 2), (2.0,)),
    "odd matrix": (finite.matrix_product, finite.matrix_product_heat_capacity, (3, 3, 4), (2.0,)),
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['model']}-{row['params']}-{row['nbeta']}-{row['gamma']}")
def test_the_function_gives_the_known_value(row):
    value = FUNCTIONS[row["model"]](json.loads(row["params"]), float(row["nbeta"]), float(row["gamma"] or "nan"))
    assert type(value) is float
    assert value == pytest.approx(float(row["lambda_t"]), abs=2e-10)


@pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES.keys())
@pytest.mark.parametrize("t", [0.3, 40.0, 5453.0])
def test_the_heat_capacity_is_minus_the_slope_against_the_temperature(curve, t):
    """t²Var[K] = λ_t − t dλ_t/dt, the slope by differences in log t."""
    value, heat, before, after = curve

    def at(log_shift):
        return value(*before, t * math.exp(log_shift), *after)

    h = 0.02
    slope = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)
    assert heat(*before, t, *after) == pytest.approx(at(0) - slope, abs=2e-8)


def test_quadratic_with_a_gradient_by_quadrature():
    t, gamma, sigma, g = 7.0, 0.5, 1.3, 0.4
    w = np.linspace(-12, 12, 40_001)
    loss = g * w + sigma * w**2 / 2
    weight = np.exp(-t * loss - gamma * w**2 / 2)
    mean = np.average(t * loss, weights=weight)
    assert finite.quadratic([sigma], t, gamma, [g]) == pytest.approx(mean, abs=1e-10)
    variance = np.average((t * loss - mean) ** 2, weights=weight)
    assert finite.quadratic_heat_capacity([sigma], t, gamma, [g]) == pytest.approx(variance, abs=1e-10)


def test_quadratic_without_localiser_is_half_the_dimension():
    assert finite.quadratic([3.0, 0.2, 1e-5], nbeta=2, gamma=0) == pytest.approx(1.5)


@pytest.mark.parametrize("t", [0.01, 1.0, 30.0])
def test_one_variable_on_the_interval(t):
    """Z = ∫₀¹ exp(−tw²) dw is an error function."""
    slope = math.sqrt(t) * math.exp(-t) / (math.sqrt(math.pi) * erf(math.sqrt(t)))
    assert finite.monomial([1], t) == pytest.approx(0.5 - slope, abs=1e-12)


@given(st.floats(3, 14), st.integers(1, 4), st.integers(0, 3))
def test_two_equal_rates_have_their_asymptote(log10_t, k, h):
    t = 10**log10_t
    rate = (h + 1) / (2 * k)
    expected = rate - 1 / (math.log(t) - digamma(rate))
    assert finite.monomial([k, k], t, [h, h]) == pytest.approx(expected, abs=1e-9)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.floats(-2, 12))
@settings(max_examples=50)
def test_monomials_stay_below_their_limit(k, log10_t):
    limit = float(normal_crossing(k)[0])
    t = 10**log10_t
    assert 0 < finite.monomial(k, t) < limit * (1 + 1e-12)
    assert 0 < finite.monomial_localized(k, t, 1.0) < limit * (1 + 1e-12)
    assert finite.monomial(k, t) < finite.monomial(k, 2 * t) + 1e-12


@pytest.mark.parametrize("others", [[1], [2], [3], [1, 2], [2, 2]])
def test_localised_monomials_by_quadrature(others):
    """One variable enters squared and integrates out; the others are summed over on a fine grid."""
    t, gamma, scale = 5.0, 1.5, 0.7
    w = np.linspace(-8, 8, 1601)
    grid = np.meshgrid(*[w] * len(others), indexing="ij", sparse=True)
    ratio = 2 * t * scale / gamma * math.prod(axis ** (2 * power) for axis, power in zip(grid, others, strict=True))
    weight = np.exp(-gamma / 2 * sum(axis**2 for axis in grid)) / np.sqrt(1 + ratio)
    mean = np.average(0.5 * ratio / (1 + ratio), weights=weight)
    assert finite.monomial_localized([1, *others], t, gamma, scale) == pytest.approx(mean, abs=1e-9)


def test_free_directions_do_not_count():
    assert finite.monomial([2, 0], 50.0) == pytest.approx(finite.monomial([2], 50.0), abs=1e-14)
    assert finite.monomial_localized([2, 0], 50.0, 2.0) == pytest.approx(
        finite.monomial_localized([2], 50.0, 2.0), abs=1e-14
    )


@given(st.floats(-3, 8), st.floats(-2, 3))
@settings(max_examples=60)
def test_one_singularity_by_three_routes(log10_t, log10_gamma):
    t, gamma = 10**log10_t, 10**log10_gamma
    value = finite.hyperbola(t, gamma)
    assert finite.monomial_localized([1, 1], t, gamma, scale=0.5) == pytest.approx(value, abs=1e-8)
    assert finite.matrix_product(1, 1, 1, t, gamma) == pytest.approx(value, abs=1e-8)
    heat = finite.hyperbola_heat_capacity(t, gamma)
    assert finite.matrix_product_heat_capacity(1, 1, 1, t, gamma) == pytest.approx(heat, abs=1e-8)


def test_the_hyperbola_is_continuous_where_its_formula_changes():
    below, above = (finite.hyperbola(1.0, 2 * math.sqrt(x)) for x in (100 - 1e-7, 100 + 1e-7))
    assert below == pytest.approx(above, abs=1e-9)


def test_two_singular_values_by_quadrature():
    """Gauss–Legendre sums over x < y, which keep clear of the kink of |x − y|."""
    rows, columns, t, gamma = 3, 4, 300.0, 2.0
    nodes, weights = np.polynomial.legendre.leggauss(40)

    def rule(low, high, pieces=20):
        half = (high - low) / pieces / 2
        centers = low + half * (2 * np.arange(pieces) + 1)
        return (centers[:, None] + half * nodes).ravel(), np.tile(half * weights, pieces)

    (u, du), (v, dv) = rule(-25, 6), rule(-60, 0)
    y = np.exp(u)[:, None]
    x = y * np.exp(v)[None]
    density = (x * y) ** ((rows - 2 + 1) / 2) * (y - x) * np.exp(-gamma * (x + y) / 2)
    density *= ((1 + t * x / gamma) * (1 + t * y / gamma)) ** (-columns / 2) * du[:, None] * dv[None]
    mean = columns / 2 * (t * x / (gamma + t * x) + t * y / (gamma + t * y))
    expected = np.average(mean, weights=density)
    assert finite.matrix_product(rows, 2, columns, t, gamma) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("sizes", [(5, 6, 2), (3, 4, 6), (7, 8, 3), (5, 5, 6), (2, 30, 5), (3, 3, 60)])
@pytest.mark.parametrize("stiffness", [1e-3, 1.0, 1e4, 1e12])
def test_integrating_either_factor_out_gives_the_same(sizes, stiffness):
    """The two sides lead to different numbers of eigenvalues, hence to quite different Pfaffians."""
    left, right = matrices.moments(*sizes, stiffness), matrices.moments(*sizes[::-1], stiffness)
    assert left == pytest.approx(right, abs=1e-8)


def test_three_singular_values_by_importance_sampling(seed):
    t, gamma, columns = 2.0, 1.0, 3
    squares = np.linalg.svd(np.random.default_rng(seed).standard_normal((100_000, 3, 3)), compute_uv=False) ** 2 / gamma
    weight = np.prod(1 + t * squares / gamma, axis=1) ** (-columns / 2)
    inside = columns / 2 * np.sum(t * squares / (gamma + t * squares), axis=1)
    mean = np.average(inside, weights=weight)
    stderr = math.sqrt(np.sum((weight * (inside - mean)) ** 2)) / weight.sum()
    assert stderr < 0.01
    assert_within(mean, finite.matrix_product(3, 3, columns, t, gamma), stderr)


@pytest.mark.parametrize("sizes", [(2, 2, 2), (3, 2, 3), (4, 4, 4), (5, 2, 2), (1, 2, 4), (1, 1, 2)])
def test_products_tend_to_the_deep_linear_coefficient(sizes):
    value, theta = deep_linear(sizes, rank=0)
    assert theta == 1
    assert finite.matrix_product(*sizes, nbeta=1e14, gamma=1.0) == pytest.approx(float(value), abs=1e-4)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 1, 2), (3, 3, 3), (3, 4, 2)])
def test_a_multiple_pole_is_approached_from_below_logarithmically(sizes):
    """λ_t ≈ λ − (θ − 1)/(log t + c): the gaps at two temperatures differ by log t in their inverse."""
    value, theta = deep_linear(sizes, rank=0)
    assert theta == 2
    cold, colder = (1 / (float(value) - finite.matrix_product(*sizes, nbeta=t, gamma=1.0)) for t in (1e12, 1e14))
    assert colder - cold == pytest.approx(math.log(100), abs=1e-3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: finite.quadratic([], 1, 1), "eigenvalues is empty"),
        (lambda: finite.quadratic([1.0], 0, 1), "nbeta must be positive, got 0"),
        (lambda: finite.quadratic([1.0], 1, -1), "gamma must not be negative, got -1"),
        (lambda: finite.quadratic([1.0, -2.0], 1, 1), "raise gamma"),
        (lambda: finite.quadratic([1.0, math.nan], 1, 1), r"eigenvalues\[1\] must be finite, got nan"),
        (lambda: finite.quadratic([1.0], 1, 1, [1.0, 2.0]), "expected 1, got 2"),
        (lambda: finite.hyperbola(1, 0), "gamma must be positive, got 0"),
        (lambda: finite.hyperbola("many", 1), "nbeta must be a number, got 'many'"),
        (lambda: finite.monomial([0], 1), "k must have a positive entry"),
        (lambda: finite.monomial([1, 1], 1, [0]), "expected 2, got 1"),
        (lambda: finite.monomial_localized([0], 1, 1), "k must have a positive entry"),
        (lambda: finite.monomial_localized([1], 1, 1, scale=-1), "scale must be positive"),
        (lambda: finite.matrix_product(0, 1, 1, 1, 1), "M must be at least 1, got 0"),
        (lambda: finite.matrix_product(40, 40, 40, 1, 1), "cannot resolve 40 eigenvalues"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
