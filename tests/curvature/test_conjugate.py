import itertools
import math

import pytest
import torch

from basinscope.curvature.conjugate import inverse_form

f64 = torch.float64


def spread(values, seed):
    """A symmetric matrix with these eigenvalues and a vector, both at random."""
    generator = torch.Generator().manual_seed(seed)
    frame = torch.linalg.qr(torch.randn(len(values), len(values), dtype=f64, generator=generator)).Q
    return (frame * values) @ frame.T, torch.randn(len(values), dtype=f64, generator=generator)


@pytest.mark.parametrize("condition", [1.0, 30.0, 1e4])
def test_forms_are_those_of_dense_solves(condition, seed):
    matrix, b = spread(torch.logspace(0, math.log10(condition), 25, dtype=f64), seed)
    found = inverse_form(lambda v: matrix @ v, b, rtol=1e-12, max_products=200)
    assert found.descent is None
    exact = torch.linalg.solve(matrix, b)
    assert found.value == pytest.approx(float(b @ exact), rel=1e-8)
    torch.testing.assert_close(found.solution, exact, rtol=1e-4, atol=1e-6 * float(exact.norm()))


def test_forms_grow_to_the_right_value_from_below(seed):
    matrix, b = spread(torch.logspace(0, 4, 40, dtype=f64), seed)
    exact = float(b @ torch.linalg.solve(matrix, b))
    values = [inverse_form(lambda v: matrix @ v, b, rtol=0.0, max_products=most).value for most in range(1, 40)]
    assert all(later > earlier for earlier, later in itertools.pairwise(values))
    assert values[0] < 0.9 * exact
    assert values[-1] <= exact * (1 + 1e-9)
    # One product makes the best multiple of b.
    assert values[0] == pytest.approx(float(b @ b) ** 2 / float(b @ matrix @ b), rel=1e-12)


def test_forms_lie_between_their_bounds_however_early_they_end(seed):
    matrix, b = spread(torch.logspace(0, 4, 40, dtype=f64), seed)
    exact = float(b @ torch.linalg.solve(matrix, b))
    for least in (0.9, 0.1):
        forms = [inverse_form(lambda v: matrix @ v, b, rtol=0.0, max_products=most, least=least) for most in range(41)]
        assert forms[0].upper == pytest.approx(float(b @ b) / least), "no product tells nothing"
        assert all(form.upper >= exact * (1 - 1e-9) for form in forms)
        assert forms[20].upper < 0.5 * forms[0].upper
        assert not forms[20].settled
    # μ above the least eigenvalue is found out.
    assert inverse_form(lambda v: matrix @ v, b, rtol=0.0, max_products=39, least=2.0).upper == math.inf
    assert inverse_form(lambda v: matrix @ v, b, rtol=1e-3, max_products=99).settled


def test_products_are_counted_and_few_where_few_do(seed):
    matrix, b = spread(torch.tensor([1.0, 1.0, 1.0, 5.0, 5.0], dtype=f64), seed)
    found = inverse_form(lambda v: matrix @ v, b, rtol=1e-6, max_products=100)
    assert found.products <= 4, "two eigenvalues take two products"
    none = inverse_form(lambda v: matrix @ v, 0 * b, rtol=1e-6, max_products=9)
    assert (none.value, none.descent, none.products) == (0.0, None, 0)
    assert torch.equal(none.solution, 0 * b)


def test_a_direction_of_descent_is_handed_back(seed):
    values = torch.linspace(-0.5, 4.0, 20, dtype=f64)
    matrix, b = spread(values, seed)
    found = inverse_form(lambda v: matrix @ v, b, rtol=1e-12, max_products=200)
    assert found.descent is not None
    assert float(found.descent @ matrix @ found.descent) <= 0
