"""The leaderboard's own landscape, the files that other environments read, and how gradients are counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from samplers.contest import Outcome
from samplers.counting import counted
from samplers.peers.kept import Kept
from samplers.problem import CASES, keep
from samplers.superposition import Pair, pair
from samplers.table import interval, page, ranked

import basinscope as bs
from basinscope.sampling.chains import ChainLosses
from chance import assert_within


def test_the_antipodal_pair_is_what_weighted_draws_of_its_localiser_say(seed: int) -> None:
    land, nbeta, gamma = Pair(sizes=2, double=True).landscape(), 20.0, 4.0
    rng = np.random.default_rng(seed)
    rows = torch.tensor(np.unique(land.samples.inputs.numpy(), axis=0))
    means = []
    for _ in range(20):
        delta = torch.tensor(rng.normal(size=(20_000, 4)) / gamma**0.5)
        w, b = delta[:, :2] + torch.tensor([1.0, -1.0]), delta[:, 2:]
        product = (rows @ w.T).T[:, :, None] * w[:, None, :]
        energy = nbeta * 0.5 * (torch.relu(product + b[:, None]) - rows).square().sum(2).mean(1)
        means.append([float((-energy).exp().mean()), float((energy * (-energy).exp()).mean())])
    table = np.array(means)
    value = table[:, 1].sum() / table[:, 0].sum()
    stderr = float(np.std(table[:, 1] - value * table[:, 0]) / table[:, 0].mean() / np.sqrt(len(table)))
    assert_within(pair(np.array([0.5, 1.0]), nbeta, gamma, 101), value, stderr, len(table) - 1)
    assert float(land.per_sample().mean()) == 0.0


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_other_environments_read_the_same_landscape(case, tmp_path: Path) -> None:
    land = case.landscape()
    keep(land, tmp_path / "problem.npz")
    kept = Kept.load(tmp_path / "problem.npz")
    assert float(kept.loss(kept.model).detach()) == pytest.approx(float(land.per_sample().mean()), rel=1e-5, abs=1e-9)
    with torch.no_grad():
        for tensor in kept.model.parameters():
            tensor.add_(0.1)
    moved = land.at({name: tensor + 0.1 for name, tensor in land.parameters.items()})
    assert float(kept.loss(kept.model).detach()) == pytest.approx(float(moved.per_sample().mean()), rel=1e-4)


def test_gradients_are_counted_by_chain_and_sample() -> None:
    land = CASES[0].landscape()
    losses = ChainLosses(land)
    delta = torch.zeros(3, land.dimension)
    with counted() as count:
        losses.full(delta)
        losses.minibatch(delta, torch.zeros(3, 100, dtype=torch.long))
        _ = bs.operator(land, "hessian") @ torch.zeros(land.dimension, 2)
    assert count.gradients >= 3 + 0.3 + 4
    before = count.gradients
    losses.full(delta)
    assert count.gradients == before


def test_the_page_ranks_by_the_median_and_shows_what_gave_no_number() -> None:
    rows = [
        Outcome(name, place, gradients, 0, value, 1.0, 1.0)
        for name, value in (("bs.llc", 1.01), ("SGLD", 1.2), ("MALA", float("nan")))
        for place in ("a", "b")
        for gradients in (300, 1000, 3000)
    ]
    assert ranked(rows) == ["bs.llc", "SGLD", "MALA"]
    text = page(rows, ["here"])
    assert "`bs.llc` is 1.0% off in the median, and the best of the others, SGLD, 20.0%" in text
    assert "| MALA | — | — | — | — | 2 of 2 |" in text
    assert "| SGLD | 20.0% (20.0%, 20.0%) |" in text
    assert '@entry("HMC")' in text


def test_the_interval_of_a_median_is_that_of_landscapes_and_seeds_drawn_again() -> None:
    rows = [
        Outcome("SGLD", str(place), 300, seed, 1 + 0.01 * (place + 1), 1.0, 1.0)
        for place in range(9)
        for seed in (0, 1)
    ]
    low, high = interval(rows, "SGLD", 300)
    assert 0.02 <= low < 0.05 < high <= 0.08  # the median of 1 to 9 %, of nine
    assert interval(rows, "SGLD", 1000) == (np.inf, np.inf)
