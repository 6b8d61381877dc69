"""Products of several matrices at the origin against the two-matrix case, quadrature-free brute force and the limit."""

import math
from itertools import pairwise

import numpy as np
import pytest

from basinscope.errors import InputError
from basinscope.exact import deep_linear, finite
from chance import assert_within


@pytest.mark.parametrize("sizes", [(1, 2, 2), (1, 3, 5), (1, 4, 2), (1, 1, 1)])
@pytest.mark.parametrize("t", [0.5, 5453.0])
def test_two_matrices(sizes, t):
    assert finite.matrix_chain(sizes, t, 1.5) == pytest.approx(finite.matrix_product(*sizes, t, 1.5), rel=1e-9)
    heat = finite.matrix_product_heat_capacity(*sizes, t, 1.5)
    assert finite.matrix_chain_heat_capacity(sizes, t, 1.5) == pytest.approx(heat, rel=1e-8)


def test_three_matrices_by_brute_force(seed):
    """Draws from the localiser, weighted by exp(−tK): t is small enough for that to work."""
    t, gamma, widths = 3.0, 2.0, (3, 2, 1, 2)
    rng = np.random.default_rng(seed)
    product = np.eye(widths[0])[None]
    for below, above in pairwise(widths):
        product = rng.standard_normal((400_000, above, below)) / math.sqrt(gamma) @ product
    loss = t * (product**2).sum((1, 2)) / 2
    weights = np.exp(-loss)
    values = (weights * loss).mean() / weights.mean()
    residual = weights * (loss - values)
    stderr = residual.std() / math.sqrt(len(loss)) / weights.mean()
    assert_within(values, finite.matrix_chain(widths, t, gamma), stderr)


@pytest.mark.parametrize("widths", [(3, 2, 1, 4), (1, 3, 5, 4), (5, 1, 7)])
def test_the_limit_is_the_learning_coefficient(widths):
    assert finite.matrix_chain(widths, 1e40, 1.0) == pytest.approx(float(deep_linear(widths, 0)[0]), rel=1e-6)


def test_the_heat_capacity_is_the_slope():
    h, t, widths = 0.02, 300.0, (4, 1, 3, 2)
    at = [finite.matrix_chain(widths, t * math.exp(shift * h), 2.0) for shift in (-2, -1, 1, 2)]
    slope = (8 * (at[2] - at[1]) - (at[3] - at[0])) / (12 * h)
    heat = finite.matrix_chain_heat_capacity(widths, t, 2.0)
    assert heat == pytest.approx(finite.matrix_chain(widths, t, 2.0) - slope, abs=2e-8)


def test_what_is_refused():
    with pytest.raises(InputError, match="one of the widths must be 1"):
        finite.matrix_chain([2, 3, 2], 10.0, 1.0)
    with pytest.raises(InputError, match="at least two sizes"):
        finite.matrix_chain([1], 10.0, 1.0)
    with pytest.raises(InputError, match="gamma"):
        finite.matrix_chain([1, 2], 10.0, 0.0)
