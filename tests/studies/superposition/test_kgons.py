"""The k-gons of the toy model of superposition: closed form, published numbers, minima, and λ."""

import numpy as np
import pandas as pd
import pytest
import torch

from basinscope.runs.driver import run
from basinscope.runs.results import Results
from basinscope.runs.settings import resolved
from basinscope.runs.store import Store
from studies.superposition.kgons import BY_NAME, KGONS, coefficient, place, potential
from studies.superposition.landscapes import at_kgon, inputs, landscape, shape, start
from studies.superposition.report import answer, jumps
from studies.superposition.study import STUDY


def test_the_loss_in_closed_form_is_that_of_many_inputs(seed):
    rng = np.random.default_rng(seed)
    weights, bias = rng.normal(size=(2, 6)), 0.5 * rng.normal(size=6)
    land = landscape(torch.from_numpy(weights), torch.from_numpy(bias), 2000)
    assert float(land.per_sample().mean()) == pytest.approx(potential(weights, bias), rel=1e-5)


@pytest.mark.parametrize("kgon", [kgon for kgon in KGONS if kgon.published], ids=lambda kgon: kgon.name)
def test_losses_are_those_that_were_published(kgon):
    assert potential(*place(kgon)) == pytest.approx(kgon.published, abs=6e-6)


def test_lengths_and_biases_are_those_that_were_published():
    for name, length, corner in (("5", 1.17046, -0.28230), ("6", 1.32053, -0.61814)):
        weights, bias = place(BY_NAME[name])
        assert np.linalg.norm(weights[:, 0]) == pytest.approx(length, abs=1e-5)
        assert bias[0] == pytest.approx(corner, abs=1e-5)


@pytest.mark.parametrize("kgon", KGONS, ids=lambda kgon: kgon.name)
def test_kgons_are_minima(kgon, seed):
    weights, bias = place(kgon)
    rng = np.random.default_rng(seed)
    least = potential(weights, bias)
    for _ in range(200):
        shift, lift = 1e-3 * rng.normal(size=weights.shape), 1e-3 * rng.normal(size=bias.shape)
        assert potential(weights + shift, bias + lift) >= least


@pytest.mark.parametrize("kgon", KGONS, ids=lambda kgon: kgon.name)
def test_near_a_kgon_the_loss_is_homogeneous_of_degree_two(kgon, seed):
    weights, bias = place(kgon)
    rays = np.random.default_rng(seed).normal(size=(200, 18))
    rises = [
        sum(potential(weights + size * ray[:12].reshape(2, 6), bias + size * ray[12:]) for ray in rays)
        - len(rays) * potential(weights, bias)
        for size in (1e-4, 2e-4)
    ]
    assert rises[1] / rises[0] == pytest.approx(4, rel=0.01)


def test_flat_directions_of_the_smooth_kgons_are_counted_by_the_hessian():
    for name in ("5", "5+", "6"):
        land = at_kgon(name, 40)
        flat = land.flatten(land.parameters)

        def loss(vector, land=land):
            return land.losses(land.unflatten(vector), land.samples).mean()

        spectrum = torch.linalg.eigvalsh(torch.func.jacrev(torch.func.grad(loss))(flat))
        assert (spectrum > -1e-6).all()
        assert int((spectrum > 1e-6).sum()) == round(2 * coefficient(BY_NAME[name]))


def test_inputs_are_single_features():
    x = inputs(5)
    assert x.shape == (30, 6)
    assert ((x > 0).sum(1) == 1).all()


def test_a_start_near_a_kgon_looks_like_it():
    assert shape(*start("4++", 0)) == "4++"


@pytest.mark.slow
def test_a_small_study_from_end_to_end(tmp_path):
    assert run(STUDY, tmp_path / "store", scale="smoke", progress=False).complete
    results = Results(STUDY, resolved(STUDY, "smoke", {}), Store(tmp_path / "store"))
    written = results.write(tmp_path / "out")
    assert [path.name for path in written[-3:]] == ["kgons.png", "trainings.png", "README.md"]
    assert written[-1].read_text().splitlines()[2].startswith("Sampled λ̂ is within ")


def test_jumps_are_between_settled_moments_alone():
    rows = [
        {"start": "4++", "seed": 0, "step": step, "floor": floor, "shape": name, "llc_basin": basin,
         "llc_basin_stderr": 0.1, "llc_verdict": "ok"}
        for step, floor, name, basin in (
            (1, 0.0972, "4++", 8.4), (2, 0.08, "5+", 9.0), (3, 0.0618, "5+", 8.5), (4, 0.0482, "6", 8.6)
        )
    ]  # fmt: skip
    made = jumps(pd.DataFrame(rows))
    assert made[["before", "after", "step"]].values.tolist() == [["4++", "5+", 3], ["5+", "6", 4]]
    kgons = pd.DataFrame([{"llc": 7.1, "exact": 7.0, "llc_stderr": 0.1, "error": 0.1 / 7}])
    assert "2 times" in answer({"kgons": kgons, "jumps": made})
