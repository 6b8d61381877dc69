"""Draws in files: what is written is what was drawn, for whoever reads it; what is damaged is refused in words."""

import json
import shutil

import numpy as np
import pytest
import torch

import basinscope as bs
import lacking
from basins import quadratic
from basinscope.measures import kept

zarr = lacking.package("zarr")
xarray = lacking.package("xarray")

LAND = quadratic([1.0, 0.3], n=20, noise=0.5, dtype=torch.float64)
QUICK = {"gamma": 1.0, "sampler": "hmc", "rtol": 0.05, "budget": 1.0, "progress": False}


@pytest.fixture(scope="module")
def post():
    return bs.posterior(LAND, chains=6, draws=30, seed=3, **QUICK)


@pytest.fixture
def store(post, tmp_path):
    x = LAND.samples.inputs[:3]
    held_out = x, LAND.samples.target[:3]
    return post.save(
        tmp_path / "run.zarr", progress=False, train=None, held=held_out, outputs=lambda w: LAND.outputs(w, x)
    )


def test_whoever_asks_for_draws_finds_the_same_in_the_file(post, store):
    again = bs.Posterior.load(store, LAND)
    assert "from a file: 6 chains of 30 draws" in repr(again)
    for one, other in zip(post.draws(), again.draws(), strict=True):
        assert all(torch.equal(a, b.to(a)) for a, b in zip(one, other, strict=True))
    found, known = bs.influence(again, progress=False), bs.influence(post, progress=False)
    assert np.array_equal(found.values, known.values)
    assert np.array_equal(found.stderr, known.stderr)
    assert found.checks == known.checks
    assert found.facts.keys() == known.facts.keys()
    assert bs.waic(again, progress=False).value == bs.waic(post, progress=False).value
    assert again.llc == bs.llc(post, progress=False).value
    with pytest.raises(bs.InputError, match="has its draws, but not the run behind them — read λ̂ from its `llc`"):
        bs.llc(again, progress=False)
    with pytest.raises(bs.InputError, match="there are 30 draws in the file, got 31"):
        next(again.draws(31))


def test_draws_that_do_not_fit_in_memory_are_read_again(store, monkeypatch):
    again = bs.Posterior.load(store, LAND, memory=1.0)
    first, second = (torch.stack([delta for delta, _ in again.draws()]) for _ in range(2))
    assert torch.equal(first, second)
    assert not again._held


def test_chunks_hold_several_draws_or_one(post, tmp_path, monkeypatch):
    for limit in (1, 6 * 2 * 8 * 7):
        monkeypatch.setattr(kept, "_CHUNK", limit)
        path = post.save(tmp_path / f"{limit}.zarr", progress=False)
        again = bs.Posterior.load(path, LAND)
        assert all(torch.equal(a[0], b[0]) for a, b in zip(post.draws(), again.draws(), strict=True))


def test_the_layout_is_that_of_devinterp_and_of_arviz(post, store):
    tree = xarray.open_datatree(store, engine="zarr", consolidated=False)
    assert tree.attrs["completed"] == 1
    assert tree.attrs["metadata"]["config"]["sampler"]["n_beta"] == post.nbeta
    assert tree["loss_train"].dims == ("chain", "draw", "batch_train", "token_pos")
    assert tree["loss_held"].shape == (6, 30, 3, 1)
    assert tree["sampling_loss_micro"].dims == ("chain", "step", "batch_sampling", "token_pos")
    assert tree["input_ids_held"].dims == ("batch_held", "token")
    losses = post.observe(progress=False)
    assert tree["loss_train"].values.mean((0, 1, 3)) == pytest.approx(losses.mean)
    assert tree["log_likelihood/target"].values == pytest.approx(-tree["loss_train"].values[..., 0])
    assert tree["sampling_loss_micro"].values.mean() == pytest.approx(losses.mean.mean())
    excess = (tree["sampling_loss_micro"].values - tree["init_loss"].values.mean())[..., 0, 0]
    assert tree["posterior/llc"].values == pytest.approx(post.nbeta * excess)
    assert tree["observables/outputs"].dims == ("chain", "draw", "entry_outputs")
    assert not tree["sample_stats/diverging"].values.any()
    assert bs.audit(store).facts["nbeta"] == post.nbeta


def changed(store, name, value):
    path = store / "zarr.json"
    about = json.loads(path.read_text())
    about["attributes"]["basinscope"][name] = value
    path.write_text(json.dumps(about))


def test_what_cannot_be_gone_on_with_is_refused(post, store, tmp_path):
    other = quadratic([1.0, 0.3], n=21, noise=0.5, dtype=torch.float64)
    for land, name in ((other, "n is 20, got 21"), (LAND.at({"weight": torch.zeros(1, 2)}), "weights is")):
        with pytest.raises(bs.InputError, match=f"of another landscape: its {name}"):
            bs.Posterior.load(store, land)
    with pytest.raises(bs.InputError, match="exists — remove it"):
        post.save(store)
    with pytest.raises(bs.InputError, match=r"give it a name that ends in \.zarr"):
        post.save(tmp_path / "run.nc")
    with pytest.raises(bs.InputError, match="observables need names of letters"):
        post.save(tmp_path / "b.zarr", **{"a b": None})
    with pytest.raises(bs.InputError, match="observables must be finite"):
        post.save(tmp_path / "c.zarr", progress=False, bad=lambda w: w["weight"] * float("nan"))
    light = post.save(tmp_path / "light.zarr", weights=False, progress=False)
    with pytest.raises(bs.InputError, match="keeps observables, but no weights"):
        bs.Posterior.load(light, LAND)
    with pytest.raises(bs.InputError, match="there are no draws at"):
        bs.Posterior.load(tmp_path / "nowhere.zarr", LAND)


def test_damaged_stores_and_those_of_other_versions_are_refused(store):
    changed(store, "format", 2)
    with pytest.raises(bs.InputError, match="is of format 2, this version reads format 1"):
        bs.Posterior.load(store, LAND)
    changed(store, "format", 1)
    changed(store, "complete", False)
    with pytest.raises(bs.InputError, match="is cut off: the draws were not all written"):
        bs.Posterior.load(store, LAND)
    changed(store, "complete", True)
    chunks = [path for path in (store / "weights" / "delta").rglob("*") if path.is_file() and path.name != "zarr.json"]
    chunks[0].write_bytes(chunks[0].read_bytes()[:20])
    again = bs.Posterior.load(store, LAND)
    with pytest.raises(bs.InputError, match="the file may be cut off"):
        again.observe(progress=False)
    (store / "zarr.json").write_text("{")
    with pytest.raises(bs.InputError, match="holds no draws of a posterior"):
        bs.Posterior.load(store, LAND)
    shutil.rmtree(store)
    zarr.create_group(store=str(store), zarr_format=2)
    with pytest.raises(bs.InputError, match="holds no draws of a posterior"):
        bs.Posterior.load(store, LAND)
