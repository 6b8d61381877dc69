"""λ̂ along a training and over resolutions, against closed forms of quadratics."""

import math

import numpy as np
import pytest
import torch

import basinscope as bs
from basins import quadratic
from basinscope.measures.llc_along import _correlation, moved
from basinscope.sampling.calibration import Resolution
from basinscope.sampling.local import Sampler, Settings
from chance import SAMPLED, assert_within

f64 = torch.float64
SIGMA = [1.0, 0.5, 0.1, 0.01]
N = 200
T = N / math.log(N)
DISPLACED = quadratic(SIGMA, offset=[1.0] * 4)
OPTIONS = {"gamma": 1.0, "budget": 1.0, "progress": False}


def split(distance, nbeta, gamma=1.0):
    """Basin and drop of the quadratic seen from w* so far from its minimum in every direction."""
    sigma = np.array(SIGMA)
    stiffness = nbeta * sigma + gamma
    moved = -nbeta * sigma * distance / stiffness
    drop = -nbeta * float((sigma * distance * moved + 0.5 * sigma * moved**2).sum())
    return 0.5 * float((nbeta * sigma / stiffness).sum()), drop


def training(distances=(2.0, 0.5, 0.0)):
    return {f"at {each}": quadratic(SIGMA, offset=[each] * 4) for each in distances}


def test_both_readings_along_a_training(seed):
    run = bs.llc_along(training(), seed=seed, **OPTIONS)
    assert run.names == ("at 2.0", "at 0.5", "at 0.0")
    common = run.common[0].diagnostics["nbeta"]
    basin, drop = split(2.0, common)
    assert drop <= 0.1 * (basin - drop), "the worst checkpoint is a minimum there"
    basin, drop = split(2.0, 1.06 * common)
    assert drop > 0.1 * (basin - drop), "and no finer, to a step of the search"
    for distance, fine, coarse in zip((2.0, 0.5, 0.0), run.fine, run.common, strict=True):
        for point, nbeta in ((fine, T), (coarse, common)):
            basin, drop = split(distance, nbeta)
            assert_within(point.basin.value, basin, point.basin.stderr, SAMPLED, bias=1e-3 * basin)
            assert point.drop.value == pytest.approx(drop, rel=1e-4, abs=2 * point.drop.stderr + 1e-6)
    assert [point.at_minimum for point in run.fine] == ["no", "no", "yes"]
    assert [point.at_minimum for point in run.common] == ["yes", "yes", "yes"]
    assert {point.diagnostics["gamma"] for point in (*run.fine, *run.common)} == {1.0}


def test_differences_have_the_errors_of_common_noise(seed):
    run = bs.llc_along(training(), common=False, seed=seed, **OPTIONS)
    assert run.common == ()
    for place, difference in enumerate(run.differences()):
        assert_within(difference.value, 0.0, difference.stderr, SAMPLED, bias=1e-3)
        apart = math.hypot(run.fine[place].basin.stderr, run.fine[place + 1].basin.stderr)
        correlation = difference.diagnostics["correlation"]
        assert 0 <= correlation < 1
        assert difference.stderr <= apart * (1 + 1e-12)
    with pytest.raises(bs.InputError, match="reading must be 'fine' or 'common'"):
        run.differences("coarse")


def test_correlations_are_those_of_living_chains(seed):
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=200)
    one, other = noise + 0.1 * rng.normal(size=200), noise + 0.1 * rng.normal(size=200)
    assert 0.97 < _correlation(one, other) < 0.995
    assert _correlation(one, rng.normal(size=200)) < 0.5
    dead = one.copy()
    dead[:3] = np.nan
    assert _correlation(dead, other) == pytest.approx(_correlation(one[3:], other[3:]))
    assert _correlation(one[:4], other[:4]) == 0.0, "too few to tell"
    assert _correlation(one, other[:9]) == 0.0, "not the same chains"


def test_chains_are_where_they_were_seen_from_another_point():
    here, there = quadratic(SIGMA), quadratic(SIGMA, offset=[0.3, -0.2, 0.1, 2.0])
    at = Resolution(T, 1.0)
    sampler, other = Sampler(here, Settings(draws=16)), Sampler(there, Settings(draws=16))
    outcome = sampler.run(at, lambda share, text: None)
    shifted = moved(outcome, sampler.losses.origin - other.losses.origin)
    weights = sampler.losses.origin + outcome.displacement
    torch.testing.assert_close(other.losses.origin + shifted.displacement, weights)


def test_a_folder_of_weights(tmp_path, seed):
    land = quadratic(SIGMA)
    net = torch.nn.Linear(4, 1, bias=False)
    for step, scale in enumerate((0.9, 1.0)):
        torch.nn.init.constant_(net.weight, scale)
        torch.save(net.state_dict(), tmp_path / f"step_{step}.pt")
    data = (land.samples.inputs, land.samples.target)
    run = bs.llc_along(tmp_path, model=net, loss="mse", data=data, seed=seed, **OPTIONS)
    assert run.names == ("step_0", "step_1")
    assert run.fine[0].drop.value == pytest.approx(split(-0.1, T)[1], rel=1e-3)
    with pytest.raises(bs.InputError, match="pass model, loss and data"):
        bs.llc_along(tmp_path)


def test_what_does_not_belong_together_is_refused():
    with pytest.raises(bs.InputError, match="one network on the same data"):
        bs.llc_along([quadratic(SIGMA), quadratic([1.0])])
    with pytest.raises(bs.InputError, match="checkpoints must be at least one, got none"):
        bs.llc_along([])
    with pytest.raises(bs.InputError, match="unknown sampler"):
        bs.llc_along([quadratic(SIGMA)], sampler="sgld")


def test_a_table_and_a_picture_of_a_training(seed):
    pytest.importorskip("matplotlib")
    run = bs.llc_along(training(), seed=seed, **OPTIONS)
    table = run.to_dataframe()
    assert table["reading"].tolist() == ["fine"] * 3 + ["common"] * 3
    assert table["basin"].tolist()[:3] == [point.basin.value for point in run.fine]
    left, right = run.plot().axes
    assert "about to become" in left.get_title()
    assert "is now" in right.get_title()
    assert f"{run.common[0].diagnostics['nbeta']:.3g}" in str(run)


def test_a_curve_of_resolutions(seed):
    curve = bs.resolution_curve(
        quadratic(SIGMA, offset=[1.0] * 4), gamma=1.0, count=5, budget=3, seed=seed, progress=False
    )
    nbetas = [point.diagnostics["nbeta"] for point in curve.points]
    assert nbetas == pytest.approx([T, T / 10, T / 100, T / 1000, T / 10000])
    for point, nbeta in zip(curve.points, nbetas, strict=True):
        basin, drop = split(1.0, nbeta)
        assert_within(point.basin.value, basin, point.basin.stderr, SAMPLED, bias=1e-3 * basin)
        assert point.drop.value == pytest.approx(drop, rel=1e-3, abs=2 * point.drop.stderr + 1e-7)
    # The drop is a tenth of λ̂ between two of the points, where a power law is right to a tenth.
    basin, drop = split(1.0, curve.finest)
    assert drop / (basin - drop) == pytest.approx(0.1, rel=0.25)
    assert min(nbetas) < curve.finest < max(nbetas)


def test_a_curve_over_gamma(seed):
    land = quadratic(SIGMA, offset=[0.2] * 4)
    curve = bs.resolution_curve(land, over="gamma", gamma=0.1, decades=3, count=4, budget=3, seed=seed, progress=False)
    for point, gamma in zip(curve.points, (0.1, 1.0, 10.0, 100.0), strict=True):
        assert point.diagnostics["gamma"] == pytest.approx(gamma)
        basin, drop = split(0.2, T, gamma)
        assert_within(point.basin.value, basin, point.basin.stderr, SAMPLED, bias=1e-3 * basin)
        assert point.drop.value == pytest.approx(drop, rel=1e-3, abs=2 * point.drop.stderr + 1e-7)


def test_a_table_and_a_picture_of_a_curve(seed):
    pytest.importorskip("matplotlib")
    curve = bs.resolution_curve(
        quadratic(SIGMA, offset=[1.0] * 4), gamma=1.0, count=3, budget=1, seed=seed, progress=False
    )
    assert curve.to_dataframe().columns.tolist()[:4] == ["nbeta", "gamma", "llc", "llc_stderr"]
    (axes,) = curve.plot().axes
    assert f"{curve.finest:.3g}" in axes.get_title()
    assert f"{curve.finest:.3g}" in str(curve)
    with pytest.raises(bs.InputError, match="over must be"):
        bs.resolution_curve(quadratic(SIGMA), over="beta")
