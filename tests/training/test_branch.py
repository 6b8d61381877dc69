"""Branches from a checkpoint, and runs compared at one training loss."""

import pytest
import torch

import basinscope as bs
from basinscope.optim import KFAC, OnlineNGD
from basinscope.training import Every, Run, branch, histories, matched, train
from training_cases import OPTIMIZERS, data, network

OPTIONS = {"batch_size": 8, "progress": False, "seed": 3}


def sgd(lr, momentum=0.0):
    return lambda net: torch.optim.SGD(net.parameters(), lr=lr, momentum=momentum)


def same(one, two):
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True))


def test_a_branch_with_the_same_optimizer_is_the_run_itself(tmp_path):
    trunk = train(network(), data(), sgd(0.1), epochs=2, folder=tmp_path / "trunk", **OPTIONS)
    whole = train(network(), data(), sgd(0.1), epochs=5, **OPTIONS)
    # Another network object with other weights: the checkpoint's count.
    runs = branch(trunk.checkpoint, network(seed=8), data(), {"same": sgd(0.1)}, epochs=3, **OPTIONS)
    assert same(runs["same"].model, whole.model)
    assert runs["same"].rows == whole.rows
    assert runs["same"].origin == trunk.step == 14
    assert not same(trunk.model, whole.model)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_carried_optimizer_goes_on(name, tmp_path):
    trunk = train(network(), data(), OPTIMIZERS[name], steps=5, folder=tmp_path, **OPTIONS)
    whole = train(network(), data(), OPTIMIZERS[name], steps=9, **OPTIONS)
    carried = branch(trunk.checkpoint, network(), data(), {"on": OPTIMIZERS[name]}, steps=4, carry=True, **OPTIONS)
    assert same(carried["on"].model, whole.model)


def test_a_carried_optimizer_takes_its_new_rate(tmp_path):
    trunk = train(network(), data(), sgd(0.1, 0.9), steps=5, folder=tmp_path, **OPTIONS)
    run = branch(trunk.checkpoint, network(), data(), {"on": sgd(0.7, 0.9)}, steps=1, carry=True, **OPTIONS)["on"]
    assert run.rows[-1]["lr"] == 0.7
    with pytest.raises(bs.InputError, match="its optimizer is 'SGD', here it is 'OnlineNGD'"):
        branch(trunk.checkpoint, network(), data(), {"on": OPTIMIZERS["online"]}, steps=1, carry=True, **OPTIONS)


def test_split_into_several_optimizers_and_rates(tmp_path):
    """The split experiment of "natural gradient against SGD", with branches that can be interrupted and resumed."""
    trunk = train(network(), data(), sgd(0.1), epochs=2, folder=tmp_path / "trunk", keep=Every(epochs=1), **OPTIONS)
    point = tmp_path / "trunk" / "step-00000007.safetensors"
    optimizers = {
        "sgd": sgd(0.1),
        "sgd raised": sgd(0.3),
        "ngd": lambda net: OnlineNGD(net.parameters(), lr=0.1),
        "kfac": lambda net: KFAC(net, lr=0.01),
    }
    runs = branch(point, network(), data(), optimizers, epochs=2, folder=tmp_path / "split", **OPTIONS)
    again = branch(point, network(), data(), optimizers, epochs=2, folder=tmp_path / "split", **OPTIONS)
    for name, run in runs.items():
        assert run.step == 21
        assert run.origin == again[name].origin == 7
        assert run.rows[:2] == trunk.rows[:2]
        assert same(run.model, again[name].model)
    assert len({run.rows[-1]["train_loss"] for run in runs.values()}) == len(runs)
    table = histories(runs)
    assert table.groupby("run").size().tolist() == [4] * len(runs)


def test_bad_branches(tmp_path):
    trunk = train(network(), data(), sgd(0.1), epochs=1, folder=tmp_path, **OPTIONS)
    with pytest.raises(bs.InputError, match="at least one name"):
        branch(trunk.checkpoint, network(), data(), {}, epochs=1)
    with pytest.raises(bs.InputError, match="no name for a folder"):
        branch(trunk.checkpoint, network(), data(), {"a/b": sgd(0.1)}, epochs=1, folder=tmp_path)
    with pytest.raises(bs.InputError, match="pass it as the first argument"):
        branch(trunk.checkpoint, network(), data(), {"a": sgd(0.1)}, epochs=1, start=tmp_path)
    with pytest.raises(bs.InputError, match="its parameters is"):
        branch(trunk.checkpoint, torch.nn.Linear(4, 3), data(), {"a": sgd(0.1)}, epochs=1, **OPTIONS)


# ---------------------------------------------------------------------- matching


def made(losses, **columns):
    rows = [{"step": 10 * k, "train_loss": loss} for k, loss in enumerate(losses)]
    for name, values in columns.items():
        for row, value in zip(rows, values, strict=True):
            if value is not None:
                row[name] = value
    return Run(None, None, rows, "finished", "", rows[-1]["step"], 1.0)


def test_matched_at_one_loss():
    runs = {
        "fast": made([4.0, 1.0, 0.5], llc=[0.0, 3.0, 5.0], llc_verdict=["ok"] * 3),
        "slow": made([4.0, 3.0, 2.5, 1.5], llc=[0.0, 1.0, 2.0, 4.0]),
        "bumpy": made([4.0, 1.0, 3.0, 0.5], llc=[0.0, 3.0, 1.0, 9.0]),
        "never": made([4.0, 3.5], llc=[0.0, 1.0]),
        "below": made([0.1, 0.05], llc=[7.0, 8.0]),
    }
    table = matched(runs, [2.0, 1.0]).set_index(["level", "run"])
    assert table.loc[(2.0, "fast")].to_dict() == {"step": pytest.approx(20 / 3), "train_loss": 2.0, "llc": 2.0}
    assert table.loc[(2.0, "slow"), "llc"] == pytest.approx(3.0)
    assert table.loc[(2.0, "bumpy"), "llc"] == pytest.approx(2.0)
    assert table.loc[(1.0, "fast"), "llc"] == 3.0
    assert sorted(run for level, run in table.index if level == 1.0) == ["bumpy", "fast"]


def test_matched_takes_what_there_is():
    table = matched({"a": made([2.0, 1.0], llc=[None, 3.0], trace=[5.0, None])}, [1.5])
    assert table.to_dict("records") == [
        {"level": 1.5, "run": "a", "step": 5.0, "train_loss": 1.5, "llc": 3.0, "trace": 5.0}
    ]
    assert matched({"a": made([2.0, 1.0])}, [0.5]).empty
    with pytest.raises(bs.InputError, match="run 'a' has no column 'llc'"):
        matched({"a": made([2.0, 1.0])}, [0.5], on="llc")


def test_matched_on_real_runs():
    runs = {
        name: train(network(dropout=0.0), data(), build, epochs=6, **OPTIONS)
        for name, build in {"sgd": sgd(0.2), "kfac": OPTIMIZERS["kfac"]}.items()
    }
    level = max(run.rows[-1]["train_loss"] for run in runs.values()) * 1.01
    table = matched(runs, [level])
    assert table["train_loss"].tolist() == pytest.approx([level, level])
    assert table["run"].tolist() == ["sgd", "kfac"]
