import math
import os

import pytest
import torch
from safetensors.torch import save_file

import basinscope as bs
from basinscope.training import load_checkpoint, save_checkpoint

TREE = {
    "model": {"0.weight": torch.randn(2, 3), "scale": torch.tensor(0.5, dtype=torch.float64)},
    "state": {0: {"step": torch.tensor(3.0)}, 1: {}},
    "groups": [{"betas": (0.9, 0.999), "lr": 0.1, "foreach": None, "params": [0, 1], "on": True}],
    "rows": [{"loss": math.inf, "gap": 1 / 3, "note": "a “word”"}],
    "bytes": torch.arange(5, dtype=torch.uint8),
    "nothing": torch.zeros(0, 4),
    "view": torch.arange(6.0).view(2, 3).T,
    "0.weight": torch.ones(1),
}


def same(one, two):
    if isinstance(one, torch.Tensor):
        return one.dtype == two.dtype and torch.equal(one, two)
    if isinstance(one, dict):
        return list(one) == list(two) and all(same(one[key], two[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(two) and len(one) == len(two) and all(map(same, one, two))
    return type(one) is type(two) and one == two


def test_trees_come_back_as_they_were(tmp_path):
    save_checkpoint(tmp_path / "deep" / "file", TREE)
    assert same(load_checkpoint(tmp_path / "deep" / "file"), TREE)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["file"]


def test_nan_survives(tmp_path):
    save_checkpoint(tmp_path / "file", {"x": math.nan})
    assert math.isnan(load_checkpoint(tmp_path / "file")["x"])


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    save_checkpoint(path, {"step": 1})

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(path, {"step": 2, "weights": torch.zeros(1000)})
    monkeypatch.undo()
    assert load_checkpoint(path) == {"step": 1}
    assert [item.name for item in tmp_path.iterdir()] == ["file"]


def test_broken_files_are_named(tmp_path):
    with pytest.raises(bs.InputError, match="no checkpoint at"):
        load_checkpoint(tmp_path / "none")
    path = tmp_path / "file"
    save_checkpoint(path, TREE)
    whole = path.read_bytes()
    for piece in (b"", whole[:5], whole[: len(whole) // 2], whole[:-1]):
        path.write_bytes(piece)
        with pytest.raises(bs.InputError, match=r"file is broken .* delete it and train again"):
            load_checkpoint(path)
    save_file({"weight": torch.ones(2)}, path)
    with pytest.raises(bs.InputError, match="is no checkpoint of a training run"):
        load_checkpoint(path)


def test_other_formats_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("basinscope.adapters.training_file.FORMAT", 99)
    save_checkpoint(tmp_path / "file", {})
    monkeypatch.undo()
    with pytest.raises(bs.InputError, match="has format 99, this version reads 1"):
        load_checkpoint(tmp_path / "file")


def test_what_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(bs.InputError, match=r"state.state.hook is a function"):
        save_checkpoint(tmp_path / "file", {"hook": lambda: None})
    with pytest.raises(bs.InputError, match=r"state.state.table is a dict, which a checkpoint cannot hold"):
        save_checkpoint(tmp_path / "file", {"table": {(1, 2): 3}})
    assert not (tmp_path / "file").exists()
