"""Every estimate draws what its diagnostics hold, and lists its checks."""

import json

import numpy as np
import pytest

import basinscope as bs
import lacking
from basinscope.estimate_figure import figure

lacking.package("matplotlib")

TRACE = np.random.default_rng(0).normal(2.0, 1.0, size=(4, 50))
SEEN = {
    "trace": TRACE, "draws": 100, "burn_in": 50, "gamma": 4.0, "gamma_slope": -0.5, "gamma_slope_stderr": 0.1,
    "half_soft_rank": 2.1, "by_step_size": [(0.4, 2.4), (0.2, 2.2)],
}  # fmt: skip
CHECKS = (bs.Check("λ̂", "2", "positive", True), bs.Check("split-R̂", "1.3", "below 1.1", False, "raise budget"))


def labels(picture):
    return [axes.get_xlabel() for axes in picture.axes if axes.get_visible()]


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_lambda_hat_shows_chains_slope_steps_and_checks():
    estimate = bs.Estimate("llc", 2.0, 0.1, CHECKS, SEEN)
    chains, slope, steps, checks = estimate.plot().axes
    assert labels(estimate.plot()) == ["draw of each chain", "localisation γ", "step size ε", ""]
    assert chains.get_lines()[4].get_ydata() == pytest.approx(TRACE.mean(0))  # after the four chains
    assert chains.get_lines()[4].get_xdata()[[0, -1]] == pytest.approx([1.0, 99.0])
    tangent = slope.get_lines()[0]
    assert tangent.get_ydata() == pytest.approx(2.0 - 0.5 * np.log(tangent.get_xdata() / 4.0))
    assert steps.get_lines()[0].get_ydata() == pytest.approx([2.4, 2.2])
    assert texts(checks) == ["✓ λ̂: 2", "✗ split-R̂: 1.3, wanted below 1.1 — raise budget"]


def test_wbic_shows_the_lambda_hat_it_is_made_of():
    seen = {**SEEN, "llc": 2.0, "llc_stderr": 0.1}
    slope = bs.Estimate("wbic", 143.0, 0.5, (), seen).plot().axes[1]
    assert slope.get_lines()[0].get_ydata()[30] == pytest.approx(2.0)


def test_a_file_gives_the_same_figure():
    estimate = bs.Estimate("llc", 2.0, 0.1, CHECKS, SEEN)
    again = bs.Estimate.from_dict(json.loads(json.dumps(estimate.to_dict())))
    for one, two in zip(estimate.plot().axes, again.plot().axes, strict=True):
        for line, same in zip(one.get_lines(), two.get_lines(), strict=True):
            assert np.array_equal(line.get_xydata(), same.get_xydata())


def test_leave_one_out_shows_its_samples_and_their_shapes():
    estimate = bs.loo(np.random.default_rng(0).normal(-1.0, 0.1, size=(4, 200, 30)))
    assert labels(estimate.plot()) == ["draw of each chain", "loo of a sample", "sample, in order of k̂", ""]
    shapes = estimate.plot().axes[2].get_lines()[0].get_ydata()
    assert shapes.tolist() == sorted(estimate.diagnostics["pointwise"]["shape"], reverse=True)


def test_a_ladder_shows_its_energies():
    ladder = [(0.01, 50.0, 1.0), (0.1, 20.0, 0.5), (1.0, 10.0, 0.1)]
    energies = bs.Estimate("free_energy", 12.0, 0.1, (), {"ladder": ladder}).plot().axes[0]
    assert energies.get_lines()[0].get_ydata().tolist() == [50.0, 20.0, 10.0]


@pytest.mark.parametrize(
    ("estimate", "expected"),
    [
        (bs.Estimate("trace", 3.0, 0.0), ["trace", ""]),
        (bs.Estimate("soft_rank", 3.0, 0.1, bounds=(2.5, 3.5)), ["soft_rank", ""]),
        (bs.Estimate.failed("gap", "Tr F is zero — take more data"), [""]),
        (bs.Estimate("llc", float("nan"), float("nan"), (), {"trace": np.empty((0, 0))}), [""]),
    ],
)
def test_what_has_no_chains_shows_its_value_and_its_checks(estimate, expected):
    assert labels(figure(estimate)) == expected
    assert texts(estimate.plot().axes[-1])
