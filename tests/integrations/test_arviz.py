import math

import numpy as np
import pytest
import torch
from torch import nn

import basinscope as bs
import lacking
from basins import quadratic
from basinscope.integrations.arviz import elpd

arviz_stats = lacking.package("arviz_stats")
lacking.package("arviz_base")

QUICK = {"rtol": 0.05, "budget": 1.0, "progress": False}


@pytest.fixture(scope="module")
def drawn():
    return bs.log_likelihood(quadratic([1.0, 0.3], n=30, noise=1.0), gamma=1.0, draws=100, seed=4, **QUICK)


def test_the_matrix_is_what_waic_and_loo_saw(drawn):
    land = quadratic([1.0, 0.3], n=30, noise=1.0)
    assert bs.waic(land, gamma=1.0, draws=100, seed=4, **QUICK).value == pytest.approx(bs.waic(drawn.values).value)
    assert bs.loo(land, gamma=1.0, draws=100, seed=4, **QUICK).value == pytest.approx(bs.loo(drawn.values).value)
    assert bs.waic(drawn).value == bs.waic(drawn.values).value
    with pytest.raises(bs.InputError, match=r"these draws are at nbeta=30, got nbeta=15"):
        bs.loo(drawn, nbeta=15.0)
    assert all(check.passed for check in drawn.checks)
    assert drawn.facts["n"] == 30


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # of pandas, in ArviZ
def test_arviz_finds_the_same_loo_in_the_exported_tree(drawn):
    theirs = arviz_stats.loo(drawn.to_arviz(), reff=1.0, pointwise=True)
    ours = bs.loo(drawn.values)
    assert theirs.elpd == pytest.approx(-30 * ours.value, abs=1e-8)
    assert theirs.se == pytest.approx(30 * ours.diagnostics["sampling_stderr"], abs=1e-8)
    np.testing.assert_allclose(theirs.elpd_i, -ours.diagnostics["pointwise"]["loo"], atol=1e-8)
    np.testing.assert_allclose(theirs.pareto_k, ours.diagnostics["pointwise"]["shape"], atol=1e-8)
    exported = elpd(ours)
    for name in ("elpd", "se", "p", "n_samples", "n_data_points", "good_k"):
        assert getattr(exported, name) == pytest.approx(getattr(theirs, name), abs=1e-8)
    table = arviz_stats.compare({"theirs": theirs, "ours": exported})
    assert len(table) == 2


def test_estimates_become_trees(drawn):
    found = bs.loo(drawn.values)
    tree = found.to_arviz()
    assert tree.posterior["loo"].shape == drawn.values.shape[:2]
    np.testing.assert_array_equal(tree.pointwise["shape"], found.diagnostics["pointwise"]["shape"])
    assert tree.attrs["verdict"] == found.verdict
    assert tree.attrs["value"] == found.value
    assert math.isfinite(float(arviz_stats.rhat(tree)["loo"]))  # four chains, of which it makes sense
    chains = bs.llc(quadratic([1.0]), gamma=1.0, **QUICK).to_arviz()
    assert chains.posterior["llc"].dims == ("chain", "draw")
    waic = elpd(bs.waic(drawn.values))
    assert waic.kind == "waic"
    assert waic.pareto_k is None
    assert math.isnan(waic.good_k)


def test_nothing_to_show():
    land = bs.Landscape(nn.Linear(1, 1), "mse", (torch.ones(4, 1), torch.ones(4, 1)))
    exact = bs.trace(land)
    with pytest.raises(bs.InputError, match="hessian_trace comes from no chains"):
        exact.to_arviz()
    with pytest.raises(bs.InputError, match=r"elpd takes an estimate of bs.waic or bs.loo, got 'hessian_trace'"):
        elpd(exact)
    with pytest.raises(bs.InputError, match="more than memory=0 MiB"):
        bs.log_likelihood(quadratic([1.0]), gamma=1.0, memory=1000, **QUICK)
    with pytest.raises(bs.InputError, match="must be a Landscape, got ndarray"):
        bs.log_likelihood(np.zeros((3, 3)))


def test_without_arviz(monkeypatch, drawn):
    monkeypatch.setitem(__import__("sys").modules, "arviz_base", None)
    for thing in (drawn, bs.loo(drawn.values)):
        with pytest.raises(bs.InputError, match=r"install basinscope\[arviz\]"):
            thing.to_arviz()
