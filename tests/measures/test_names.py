"""One name for one argument: nbeta and matrix everywhere; former names warn and give the same number."""

import inspect

import numpy as np
import pytest
import torch

import basinscope as bs
from basins import quadratic

ROWS = np.random.default_rng(0).normal(-1.0, 0.1, size=(4, 100, 20))
LAND = quadratic([1.0, 0.3], n=20, noise=1.0, dtype=torch.float64)


@pytest.mark.parametrize("measure", [bs.waic, bs.loo, bs.fluctuation])
def test_nbeta_is_n_times_the_temperature_that_beta_was(measure):
    by_nbeta = measure(ROWS, nbeta=10.0)
    with pytest.warns(DeprecationWarning, match="beta is now called nbeta, which is n·beta") as warned:
        by_beta = measure(ROWS, beta=0.5)
    assert warned[0].filename == __file__  # where it is to be changed
    assert by_beta.value == by_nbeta.value != measure(ROWS).value
    assert measure(ROWS, nbeta=20).value == measure(ROWS).value  # β = 1


@pytest.mark.slow
def test_nbeta_of_the_others():
    table = bs.criteria(ROWS, only=["waic"], nbeta=10.0)
    assert table.waic.value == bs.waic(ROWS, nbeta=10.0).value
    with pytest.warns(DeprecationWarning, match="nbeta"):
        assert bs.criteria(ROWS, only=["waic"], beta=0.5).waic.value == table.waic.value
    quick = {"gamma": 1.0, "budget": 0.2, "progress": False}
    half = bs.free_energy(LAND, nbeta=10.0, **quick)
    assert half.diagnostics["beta"] == 0.5
    with pytest.warns(DeprecationWarning, match="nbeta"):
        assert bs.free_energy(LAND, beta=0.5, **quick).value == half.value
    draws = {"draws": 4, "chains": 2, **quick}
    assert bs.log_likelihood(LAND, nbeta=10.0, **draws).beta == 0.5
    with pytest.warns(DeprecationWarning, match="nbeta"):
        assert bs.log_likelihood(LAND, beta=0.5, **draws).beta == 0.5


def test_both_names_at_once_are_refused():
    with (
        pytest.warns(DeprecationWarning, match="nbeta"),
        pytest.raises(bs.InputError, match=r"got nbeta=10.0 and beta=0.5 — pass nbeta alone"),
    ):
        bs.waic(ROWS, nbeta=10.0, beta=0.5)
    with pytest.raises(bs.InputError, match="nbeta must be a positive"):
        bs.waic(ROWS, nbeta=0.0)


@pytest.mark.parametrize(
    "measure", [bs.tic, bs.parameter_error, bs.loss_distance, bs.information_distance, lambda *a, **k: bs.gap(
        *a, method="tic", **k
    )],
)  # fmt: skip
def test_matrix_is_what_curvature_was(measure):
    options = {"weight_decay": 0.1}
    by_matrix = measure(LAND, matrix="hessian", **options)
    with pytest.warns(DeprecationWarning, match="curvature is now called matrix") as warned:
        by_curvature = measure(LAND, curvature="hessian", **options)
    assert warned[0].filename == __file__
    assert by_curvature.value == by_matrix.value


def measures():
    """Every public function that takes a landscape first."""
    for name in bs.__all__:
        value = getattr(bs, name)
        if inspect.isfunction(value) and next(iter(inspect.signature(value).parameters)) == "land":
            if value is bs.hessian_trace:
                continue  # `trace` by its former name
            yield value


@pytest.mark.parametrize("measure", list(measures()), ids=lambda measure: measure.__name__)
def test_what_is_no_landscape_is_refused_everywhere(measure):
    needed = {
        name: 1.0
        for name, parameter in inspect.signature(measure).parameters.items()
        if parameter.default is parameter.empty and name != "land"
    }
    with pytest.raises(bs.InputError, match=r"land must be a Landscape, got int — make one with bs\.Landscape"):
        measure(3, **needed)


def test_arguments_of_one_name_have_one_default():
    defaults = {}
    for measure in measures():
        for name, parameter in inspect.signature(measure).parameters.items():
            if name == "rtol" and measure in (bs.operator_norm, bs.spectrum):
                continue  # the residual of an eigenvalue, not a standard error
            if name == "budget" and measure is bs.quick:
                continue  # which answers within ten seconds
            if name in ("budget", "rtol", "seed", "progress", "nbeta", "gamma", "sampler"):
                defaults.setdefault(name, {})[measure.__name__] = parameter.default
    assert {name: set(by.values()) for name, by in defaults.items()} == {
        "budget": {60.0}, "rtol": {0.02}, "seed": {0}, "progress": {True}, "nbeta": {None}, "gamma": {None},
        "sampler": {"auto"},
    }  # fmt: skip


def test_a_trace_is_named_after_its_matrix_and_hessian_trace_is_of_the_hessian():
    names = [bs.trace(LAND, matrix=matrix).name for matrix in ("hessian", "fisher", "covariance")]
    assert names == ["hessian_trace", "fisher_trace", "covariance_trace"]
    with pytest.warns(DeprecationWarning, match="hessian_trace is now called trace") as warned:
        former = bs.hessian_trace(LAND)
    assert warned[0].filename == __file__
    assert (former.name, former.value) == ("hessian_trace", bs.trace(LAND).value)
    with pytest.warns(DeprecationWarning, match="trace"), pytest.raises(bs.InputError, match=r"call bs\.trace"):
        bs.hessian_trace(LAND, matrix="fisher")
