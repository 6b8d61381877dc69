"""Rounding, low rank, what a layer needs, and the correlations with their intervals."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

import basinscope as bs
from basinscope.runs.driver import run
from basinscope.runs.results import Results
from basinscope.runs.settings import resolved
from basinscope.runs.store import Store
from studies.compression.report import COMPARED, answer, correlations
from studies.compression.squeezing import critical, layers, low_rank, quantized, rise
from studies.compression.study import STUDY


def normal(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_rounding_errs_by_half_a_step_at_most():
    weight = normal(20, 30)
    for bits in (2.0, 3.5, 6.0):
        step = 2 * weight.abs().max() / 2**bits
        missed = (quantized(weight, bits) - weight).abs()
        assert missed.max() <= step / 2 + 1e-12
        assert len(quantized(weight, bits).unique()) <= 2**bits + 1


def test_low_rank_is_the_nearest_of_its_rank():
    weight = normal(4, 3, 2, 2)
    sizes = torch.linalg.svdvals(weight.flatten(1))
    for rank in range(5):
        near = low_rank(weight, rank)
        assert near.shape == weight.shape
        assert torch.linalg.matrix_rank(near.flatten(1)) == rank
        assert float((near - weight).square().sum()) == pytest.approx(float(sizes[rank:].square().sum()), abs=1e-12)


def test_the_rise_is_that_of_the_network_with_the_layer_put_in():
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).double()
    x = normal(10, 3)
    land = bs.Landscape(net, "mse", (x, x[:, :2]))
    before = float(land.per_sample().mean())
    assert layers(land) == ["0.weight", "2.weight"]
    risen = rise(land, "2.weight", torch.zeros_like)
    with torch.no_grad():
        net[2].weight.zero_()
        assert risen + before == pytest.approx(float(((net(x) - x[:, :2]) ** 2).sum(1).mean() / 2))


def test_what_is_needed_lies_beyond_the_last_rise():
    assert critical([1, 2, 3, 4], [0.01, 0.5, 0.2, 0.05], 0.1) == pytest.approx(3.5)
    assert critical([0, 1], [0.5, 0.0], 0.1) < 1
    assert math.isinf(critical([0, 1], [0.5, 0.2], 0.1))


def tied(seed):
    rng = np.random.default_rng(seed)
    rows = []
    for network in range(6):
        for layer in range(5):
            llc = rng.uniform(1, 2)
            rows.append({"network": "mlp", "seed": network, "layer": str(layer), "llc": llc, "llc_density": llc,
                         "trace_density": rng.uniform(), "parameters": rng.integers(10, 99), "bits": llc**2,
                         "rank_share": rng.uniform(), "total_bits": rng.uniform()})  # fmt: skip
    return pd.DataFrame(rows)


def test_correlations_are_one_where_order_is_shared(seed):
    made = correlations(tied(seed))
    assert len(made) == 2 * len(COMPARED)
    first = made.iloc[0]
    assert (first["tau"], first["low"], first["high"]) == (1.0, 1.0, 1.0)
    assert (made["low"].iloc[2:] < made["high"].iloc[2:]).all()
    assert answer(made).startswith("Yes for bits: over 30 layers")


@pytest.mark.slow
def test_a_small_study_from_end_to_end(tmp_path):
    assert run(STUDY, tmp_path / "store", scale="smoke", progress=False).complete
    results = Results(STUDY, resolved(STUDY, "smoke", {}), Store(tmp_path / "store"))
    written = results.write(tmp_path / "out")
    assert [path.name for path in written[-3:]] == ["layers.png", "curves.png", "README.md"]
    assert "Kendall's τ" in written[-1].read_text()
