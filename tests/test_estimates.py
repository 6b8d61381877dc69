import dataclasses
import json
import math

import numpy as np
import pytest
import torch

import basinscope as bs


def test_interval_is_normal_by_default():
    # The 95th and 97.5th percentile of the standard normal law, from tables.
    assert bs.Estimate("llc", 10.0, 0.5).interval(0.9) == pytest.approx((10 - 0.5 * 1.644854, 10 + 0.5 * 1.644854))
    assert bs.Estimate("llc", 10.0, 0.5).interval(0.95) == pytest.approx((10 - 0.5 * 1.959964, 10 + 0.5 * 1.959964))


def test_interval_widens_with_few_degrees_of_freedom():
    # Student's t with four degrees of freedom, from tables.
    assert bs.Estimate("trace", 0.0, 1.0, freedom=4).interval(0.9) == pytest.approx((-2.131847, 2.131847))


def test_interval_of_an_exact_value():
    assert bs.Estimate("trace", 3.0, 0.0, freedom=1).interval(0.99) == (3.0, 3.0)


@pytest.mark.parametrize("level", [0, 1, -0.1, 90, math.nan])
def test_levels(level):
    with pytest.raises(bs.InputError, match=f"level must lie strictly between 0 and 1, got {level}"):
        bs.Estimate("llc", 1.0, 0.1).interval(level)


def test_to_dict_is_plain():
    estimate = bs.Estimate(
        "llc",
        1.5,
        0.1,
        (bs.Check("virial ratio", "0.5", "1", False, reason="because"), bs.Check("R̂", "1.0", "below 1.1", True)),
        {
            "array": np.arange(3.0),
            "scalar": np.float32(0.5),
            "flag": np.bool_(True),
            "tensor": torch.ones(2, 2),
            "nested": {"pairs": [(1, np.int64(2))], 3: None},
        },
        bounds=(1.0, 2.0),
    )
    stored = json.loads(json.dumps(estimate.to_dict()))
    assert stored["name"] == "llc"
    assert (stored["value"], stored["stderr"], stored["verdict"]) == (1.5, 0.1, "doubtful")
    assert stored["warnings"] == ["because"]
    assert stored["bounds"] == [1.0, 2.0]
    assert stored["interval90"] == pytest.approx([1.5 - 0.1644854, 1.5 + 0.1644854])
    assert stored["diagnostics"] == {
        "array": [0.0, 1.0, 2.0],
        "scalar": 0.5,
        "flag": True,
        "tensor": [[1.0, 1.0], [1.0, 1.0]],
        "nested": {"pairs": [[1, 2]], "3": None},
    }


def test_a_failed_value_is_still_json():
    # NaN and Infinity are no JSON: other languages refuse a file that holds them.
    failed = bs.Estimate.failed("llc", "diverged", {"slope": math.nan})
    json.dumps(failed.to_dict(), allow_nan=False)


def test_it_reads_well():
    estimate = bs.Estimate("llc", 12.345678, 0.1234, (bs.Check("a", "a < b", "a > b", False),))
    assert str(estimate) == "llc = 12.346 ± 0.12 (doubtful)"
    assert float(estimate) == 12.345678
    assert "a &lt; b" in estimate._repr_html_()


def test_it_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        bs.Estimate("llc", 1.0, 0.1).value = 2.0
