import pytest
import torch

import basinscope as bs
from basins import Product, quadratic
from basinscope.errors import InputError
from basinscope.measures.volume import volume_scaling

f64 = torch.float64


def ones():
    return torch.ones(3, 1, dtype=f64)


def hyperbola():
    return bs.Landscape(Product(dtype=f64), "mse", (ones(), 0 * ones()))


@pytest.mark.parametrize("dtype", [torch.float32, f64])
def test_a_regular_basin_has_half_its_dimension(dtype):
    est = volume_scaling(quadratic([1.0, 4.0, 9.0], dtype=dtype), gamma=1.0, particles=128, progress=False)
    assert est.value == pytest.approx(1.5, rel=0.05)
    assert abs(est.value - 1.5) < 4 * est.stderr
    assert est.verdict == "ok"


def test_the_hyperbola_needs_its_logarithm():
    land = hyperbola()
    plain = volume_scaling(land, gamma=1.0, smallest=1e-10, progress=False)
    bent = volume_scaling(land, gamma=1.0, smallest=1e-10, multiplicity=2, progress=False)
    assert plain.value < 0.47  # what the missing logarithm costs: (θ − 1)/log(1/ε)
    assert bent.value == pytest.approx(0.5, abs=0.03)
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
