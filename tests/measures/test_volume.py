import pytest
import torch

import basinscope as bs
from basins import Product, quadratic
from basinscope.errors import InputError
from basinscope.measures.volume import volume_scaling
from chance import assert_within

f64 = torch.float64


def ones():
    return torch.ones(3, 1, dtype=f64)


def hyperbola():
    return bs.Landscape(Product(dtype=f64), "mse", (ones(), 0 * ones()))


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(f64, marks=pytest.mark.slow)])
def test_a_regular_basin_has_half_its_dimension(dtype, seed):
    settings = {"particles": 128, "groups": 32, "seed": seed, "progress": False}
    est = volume_scaling(quadratic([1.0, 4.0, 9.0], n=30, dtype=dtype), gamma=1.0, **settings)
    assert est.stderr < 0.05
    assert_within(est.value, 1.5, est.stderr, freedom=31)


def test_the_hyperbola_needs_its_logarithm(seed):
    land = hyperbola()
    settings = {"gamma": 1.0, "smallest": 1e-10, "groups": 32, "seed": seed, "progress": False}
    plain, bent = (volume_scaling(land, multiplicity=each, **settings) for each in (1, 2))
    assert plain.value + 8.5 * plain.stderr < 0.5  # what the missing logarithm costs: (θ − 1)/log(1/ε)
    assert_within(bent.value, 0.5, bent.stderr, freedom=31, bias=0.02)
    left, right = bent.plot().axes
    assert left.get_ylabel() == "V(ε)"
    assert right.get_ylabel() == "d log V / d log ε"


def test_a_point_that_is_no_minimum_fails():
    est = volume_scaling(quadratic([1.0, 2.0], offset=[0.3, 0.0], dtype=f64), gamma=1.0, progress=False)
    assert est.verdict == "failed"
    assert "not at a minimum" in est.warnings[0]
    summit = bs.Landscape(Product(1.0, 1.0, f64), lambda output, target: -(output[:, 0] - 1).square(), (ones(), ones()))
    with pytest.raises(InputError, match="w\\* is no minimum"):
        volume_scaling(summit, gamma=1.0, progress=False)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"smallest": 0.0}, "smallest must be a positive finite number"),
        ({"multiplicity": 0}, "multiplicity must be a whole number of at least 1"),
        ({"groups": 2}, "groups must be a whole number of at least 4"),
        ({"particles": 2.5}, "particles must be a whole number"),
        ({"gamma": -1.0}, "gamma"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        volume_scaling(hyperbola(), **settings)


def test_something_else_than_a_landscape_is_refused():
    with pytest.raises(InputError, match="land must be a Landscape, got str"):
        volume_scaling("land")
