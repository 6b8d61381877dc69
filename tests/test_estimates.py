import dataclasses
import json
import math

import numpy as np
import pytest
import torch

import basinscope as bs
from basinscope.verdict import Check


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


def test_its_repr_is_one_short_line():
    estimate = bs.Estimate("llc", 26.91, 0.25, diagnostics={"nbeta": 80.456, "gamma": 1.5, "trace": np.zeros((9, 99))})
    assert repr(estimate) == "Estimate(llc = 26.91 ± 0.25, ok at nβ = 80.46, γ = 1.5)"


def test_a_notebook_shows_interval_resolution_verdict_and_a_picture():
    estimate = bs.Estimate("llc", 10.0, 0.5, (bs.Check("a", "1", "2", False),), {"nbeta": 80.0, "gamma": 1.5})
    page = estimate._repr_html_()
    for words in ("llc = 10 ± 0.5", "doubtful", "90 % interval 9.178 … 10.82", "nβ = 80, γ = 1.5", "a: 1, wanted 2"):
        assert words in page
    assert page.count("<svg") == 1
    assert "<svg" not in bs.Estimate("trace", 3.0, 0.0)._repr_html_()  # exact
    assert "<svg" not in bs.Estimate.failed("llc", "<b>")._repr_html_()
    assert "&lt;b&gt;" in bs.Estimate.failed("llc", "<b>")._repr_html_()


def test_a_difference_has_the_error_of_both():
    """Student's interval has Welch's degrees of freedom: (0.09 + 0.16)² / (0.09²/4 + 0.16²/9)."""
    first = bs.Estimate("llc", 10.0, 0.3, freedom=4, diagnostics={"nbeta": 80.0, "gamma": 1.0, "rhat": 1.0})
    second = bs.Estimate("llc", 8.0, 0.4, freedom=9, diagnostics={"nbeta": 80.0, "gamma": 1.0})
    difference = first - second
    assert (difference.value, difference.stderr) == pytest.approx((2.0, 0.5))
    assert difference.freedom == pytest.approx(0.25**2 / (0.09**2 / 4 + 0.16**2 / 9))
    assert difference.diagnostics == {"nbeta": 80.0, "gamma": 1.0}
    assert (second - first).value == -2.0


def test_what_speaks_against_one_speaks_against_the_difference():
    shaky = bs.Estimate("llc", 10.0, 0.3, (bs.Check("R̂", "1.4", "1.1", False, "raise budget"),))
    difference = bs.Estimate("llc", 8.0, 0.4) - shaky
    assert difference.verdict == "doubtful"
    assert difference.warnings == ("second: R̂: 1.4, wanted 1.1 — raise budget",)
    assert (bs.Estimate.failed("llc", "diverged") - shaky).verdict == "failed"


@pytest.mark.parametrize(
    ("name", "value", "diagnostics", "told"),
    [
        ("wbic", 8.0, {"nbeta": 80.0, "gamma": 1.0}, "different things"),
        ("llc", 8.0, {"nbeta": 80.0, "gamma": 1.1}, "different resolutions.*same gamma"),
        ("llc", 8.0, {"nbeta": 81.0, "gamma": 1.0}, "different resolutions.*same nbeta"),
        ("llc", 8.0, {}, "different resolutions: nβ = 80, γ = 1 and none"),
        ("llc", 10.0, {"nbeta": 80.0, "gamma": 1.0}, "not independent.*another seed"),
    ],
)
def test_what_cannot_be_subtracted_is_refused(name, value, diagnostics, told):
    first = bs.Estimate("llc", 10.0, 0.3, diagnostics={"nbeta": 80.0, "gamma": 1.0})
    with pytest.raises(bs.InputError, match=told):
        first - bs.Estimate(name, value, 0.3, diagnostics=diagnostics)


def test_a_number_is_no_estimate_to_subtract():
    with pytest.raises(TypeError):
        bs.Estimate("llc", 10.0, 0.3) - 1.0


def test_an_estimate_is_saved_and_loaded(tmp_path):
    check = bs.Check("virial ratio", "0.5", "1", False)
    estimate = bs.Estimate("llc", 1.5, 0.1, (check,), {"nbeta": 80.0, "trace": [[1.0, 2.0]]}, 7.0, (1.0, 2.0))
    assert bs.Estimate.load(estimate.save(tmp_path / "deeper" / "llc.json")) == estimate
    (tmp_path / "no.json").write_text("{}")
    for name in ("no.json", "nowhere.json"):
        with pytest.raises(bs.InputError, match=name):
            bs.Estimate.load(tmp_path / name)


def test_whatever_a_measure_returns_has_a_verdict():
    sound, shaky = bs.Estimate("llc", 3.0, 0.1), bs.Estimate("llc", 4.0, 0.1, (Check("a", "2", "1", False),))
    flat = bs.Symmetries(1, 1.0, {}, 0.0, None, 3, checks=shaky.checks)
    for results in (bs.Criteria({"waic": sound, "loo": shaky}), bs.Comparison({"a": shaky, "b": sound}), flat):
        assert results.verdict == "doubtful"
    assert bs.Criteria({"waic": sound}).verdict == "ok"
