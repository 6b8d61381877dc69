"""λ̂ of several networks at one resolution, against exact values of quadratic basins."""

import math

import pytest

import basinscope as bs
from basins import quadratic
from chance import assert_within


def test_a_difference_is_that_of_the_exact_values(seed):
    """On a quadratic basin λ̂ is ½ Σ nβσ/(nβσ + γ)."""
    curvatures = {"sharp": [4.0, 2.0, 1.0], "flat": [4.0, 0.1, 0.02]}
    lands = [quadratic(values, n=400, noise=0.3) for values in curvatures.values()]
    comparison = bs.compare(*lands, names=curvatures, nbeta=50.0, gamma=5.0, seed=seed, progress=False)
    exact = {name: sum(50 * s / (50 * s + 5) for s in values) / 2 for name, values in curvatures.items()}
    difference = comparison.differences["flat"]
    assert_within(difference.value, exact["flat"] - exact["sharp"], difference.stderr, freedom=difference.freedom)
    assert "smaller" in str(comparison)
    table = comparison.to_dataframe()
    assert table["name"].tolist() == ["sharp", "flat"]
    assert table["difference"].tolist()[1] == difference.value
    assert math.isnan(table["difference"].tolist()[0])


def test_all_are_measured_at_the_coarsest_of_their_resolutions():
    lands = [quadratic([1.0, 0.5], n=n, noise=0.3) for n in (100, 300)]
    own = [bs.llc(land, budget=0.2, progress=False).diagnostics for land in lands]
    comparison = bs.compare(*lands, budget=0.2, progress=False)
    for estimate in comparison.estimates.values():
        assert estimate.diagnostics["nbeta"] == min(each["nbeta"] for each in own)
        assert estimate.diagnostics["gamma"] == max(each["gamma"] for each in own)


def test_estimates_at_hand_are_compared():
    a, b = (bs.Estimate("llc", value, 0.1, diagnostics={"nbeta": 80.0, "gamma": 1.0}) for value in (3.0, 3.1))
    comparison = bs.compare(a, b)
    assert comparison.differences["b"].value == pytest.approx(0.1)
    assert str(comparison).endswith("not told apart")
    assert "<pre>" in comparison._repr_html_()


@pytest.mark.parametrize(
    ("count", "options", "told"),
    [
        (1, {}, "two landscapes or more"),
        (2, {"names": ["x", "x"]}, "different texts"),
        (2, {"names": ["x"]}, "2 different texts"),
        (2, {"gamma": 1.0}, "gamma=1.0 is about drawing from a landscape, got estimates that have their resolution"),
    ],
)
def test_wrong_calls(count, options, told):
    estimates = [bs.Estimate("llc", float(k), 0.1) for k in range(count)]
    with pytest.raises(bs.InputError, match=told):
        bs.compare(*estimates, **options)
    with pytest.raises(bs.InputError, match="got Estimate, Landscape"):
        bs.compare(estimates[0], quadratic([1.0], n=20))
