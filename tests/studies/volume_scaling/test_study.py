"""Exact values of the study beside brute force, and a small run of it."""

import numpy as np
import pytest

from basinscope.runs.driver import run
from basinscope.runs.results import Results
from basinscope.runs.store import Store
from chance import assert_within
from studies.volume_scaling.cases import DENSITIES, banana
from studies.volume_scaling.report import sampler_table, volume_table
from studies.volume_scaling.study import STUDY


def energy(nbeta, loss):
    """E[nβ (K − K(0))] under exp(−nβ K − ‖w‖²/2), on a grid."""
    axis = np.linspace(-8, 8, 2001)
    x, y = np.meshgrid(axis, axis, indexing="ij")
    weight = np.exp(-nbeta * loss(x, y) - (x**2 + y**2) / 2)
    return float((weight * nbeta * (loss(x, y) - loss(0.0, 0.0))).sum() / weight.sum())


@pytest.mark.parametrize("nbeta", [1.0, 20.0])
def test_exact_energies_on_a_grid(nbeta):
    curved = energy(nbeta, lambda x, y: 0.5 * (y - 0.5 * (x**2 - 1)) ** 2)
    assert DENSITIES["banana"].energy(nbeta) == pytest.approx(curved, rel=1e-6)
    assert banana(nbeta) == pytest.approx(curved + nbeta / 8, rel=1e-6)
    crossed = energy(nbeta, lambda x, y: 0.5 * (x * y) ** 2)
    assert DENSITIES["hyperbola"].energy(nbeta) == pytest.approx(crossed, rel=1e-4)


def test_a_small_run_ends_near_lambda(tmp_path):
    small = {
        "landscapes": ["hyperbola (xy)²"],
        "particles": 64,
        "banana": [],
        "hyperbola": [4.0],
        "acceptances": [0.95],
    }
    store = Store(tmp_path / "store")
    assert run(STUDY, store, settings=small, progress=False).complete
    results = Results(STUDY, STUDY.settings(**small), store)
    (volumes,) = volume_table(results.table).to_dict("records")
    assert (volumes["exact"], volumes["multiplicity"], volumes["smallest"]) == (0.5, 2, pytest.approx(1e-10))
    assert_within(volumes["llc"], 0.5, volumes["stderr"], freedom=15)
    (sampled,) = sampler_table(results.table).to_dict("records")
    assert sampled["off"] == pytest.approx((sampled["mean"] - sampled["exact"]) / sampled["stderr"])
    (tmp_path / "report").mkdir()
    assert all(path.stat().st_size for path in STUDY.report(results, tmp_path / "report"))
