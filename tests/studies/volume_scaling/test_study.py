"""Exact values of the study beside brute force, and a small run of it."""

import numpy as np
import pandas as pd
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


def test_volumes_end_near_lambda(tmp_path):
    small = {"landscapes": ["hyperbola (xy)²"], "particles": 64, "banana": [], "hyperbola": []}
    store = Store(tmp_path / "store")
    assert run(STUDY, store, settings=small, progress=False).complete
    results = Results(STUDY, STUDY.settings(**small), store)
    (row,) = volume_table(results.table).to_dict("records")
    assert (row["exact"], row["multiplicity"], row["smallest"]) == (0.5, 2, pytest.approx(1e-10))
    assert_within(row["llc"], 0.5, row["stderr"], freedom=15)
    (tmp_path / "report").mkdir()
    assert all(path.stat().st_size for path in STUDY.report(results, tmp_path / "report"))


def test_samplers_stand_beside_exact_energies():
    job = {"part": "samplers", "density": "hyperbola", "nbeta": 4.0, "stderr": 0.01, "divergences": 2.0}
    exact = DENSITIES["hyperbola"].energy(4.0)
    rows = [{**job, "acceptance": 0.8, "mean": exact + 0.02}, {**job, "acceptance": 0.0, "mean": exact - 0.01}]
    made = sampler_table(pd.DataFrame(rows))
    assert made["target"].tolist() == ["hyperbola, nβ = 4"] * 2
    assert made["sampler"].tolist() == ["NUTS, acceptance 0.8", "engine"]
    assert made["off"].tolist() == pytest.approx([2.0, -1.0])
