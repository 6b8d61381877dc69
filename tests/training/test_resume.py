"""A run interrupted at any moment and resumed ends in the same bits as one left alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import basinscope as bs
import lacking
from basinscope.training import Every, Measure, load_checkpoint, train
from training_cases import OPTIMIZERS, data, network


class Interrupted(BaseException):
    """Not an Exception: nothing may catch it."""


def bits(state):
    """Every number of a tree, tensors as bytes."""
    if isinstance(state, torch.Tensor):
        return str(state.dtype), tuple(state.shape), state.contiguous().numpy().tobytes()
    if isinstance(state, dict):
        return {key: bits(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return [bits(value) for value in state]
    return repr(state)


def run(build, folder, interrupt_at=None, seen=None):
    """41 steps and more, with rows, saves and measurements at times that do not fit together."""

    def norm(land):
        torch.rand(3)  # a measurement may use torch's generator, it must not matter
        calls = 0 if seen is None else len(seen)
        if seen is not None:
            seen.append(calls)
        if interrupt_at is not None and calls == interrupt_at:
            raise Interrupted
        return float(land.flatten(land.parameters).double().norm())

    return train(
        network(), data(), build, steps=41, batch_size=8, seed=5, validation=data(20, seed=9),
        record=Every(steps=10, start=True), measures=[Measure(norm, Every(steps=3), name="norm")], folder=folder,
        save=Every(steps=7), progress=False,
    )  # fmt: skip


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_interrupted_runs_end_in_the_same_bits(name, tmp_path):
    alone = run(OPTIMIZERS[name], tmp_path / "alone")
    assert alone.outcome == "finished"
    assert alone.step == 41
    truth = bits(load_checkpoint(alone.checkpoint))
    for place in (1, 4, 11):
        seen = []
        with pytest.raises(Interrupted):
            run(OPTIMIZERS[name], tmp_path / f"at {place}", place, seen)
        resumed = run(OPTIMIZERS[name], tmp_path / f"at {place}")
        assert bits(load_checkpoint(resumed.checkpoint)) == truth
        assert bits(resumed.model.state_dict()) == bits(alone.model.state_dict())
        assert bits(resumed.rows) == bits(alone.rows)


def test_training_without_a_folder_and_without_measuring_is_the_same(tmp_path):
    with_all = run(OPTIMIZERS["sgd"], tmp_path)
    bare = train(network(), data(), OPTIMIZERS["sgd"], steps=41, batch_size=8, seed=5, progress=False)
    assert bits(bare.model.state_dict()) == bits(with_all.model.state_dict())


KILLED = """
import os, random, sys
from pathlib import Path

sys.path[:0] = sys.argv[3:]
import torch
torch.set_num_threads(1)
from basinscope.training import Every, train
from training_cases import OPTIMIZERS, data, network

chance = random.Random(int(sys.argv[2]))

def go(folder, build):
    train(network(), data(), build, steps=40, batch_size=8, folder=folder, save=Every(steps=1), record=Every(steps=4),
          progress=False)

class Calls:
    # Counts the calls of Python and C functions, and at a number of them kills the process.
    def __init__(self, last=None):
        self.count, self.last = 0, last

    def __call__(self, frame, event, argument):
        self.count += 1
        if self.count == self.last:
            os.kill(os.getpid(), 9)

def killed(folder, build, last):
    pid = os.fork()
    if pid == 0:
        try:
            sys.setprofile(Calls(last))
            go(folder, build)
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])

for name, build in OPTIMIZERS.items():
    root = Path(sys.argv[1]) / name
    go(root / "warm", build)
    calls = Calls()
    sys.setprofile(calls)
    go(root / "alone", build)
    sys.setprofile(None)
    kills = [killed(root / "killed", build, int(chance.uniform(0.05, 0.3) * calls.count)) for _ in range(3)]
    go(root / "killed", build)
    print(name, sum(kills), sep=",")
"""


@pytest.mark.slow
@lacking.FORK.mark
def test_killed_runs_end_in_the_same_bits(tmp_path, seed):
    """Kills at calls that fall anywhere, in the middle of writing a checkpoint too: each is written every step."""
    paths = [str(Path(__file__).parents[1]), str(Path(bs.__file__).parents[1])]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), str(seed), *paths],
        capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    kills = {name: int(count) for name, count in (line.split(",") for line in done.stdout.splitlines())}
    assert kills == dict.fromkeys(OPTIMIZERS, 3)
    for name in kills:
        killed, alone = (tmp_path / name / kind / "checkpoint.safetensors" for kind in ("killed", "alone"))
        assert killed.read_bytes() == alone.read_bytes(), name
        assert [path.name for path in killed.parent.iterdir()] == [killed.name]


def test_more_epochs_train_on(tmp_path):
    options = {"batch_size": 8, "progress": False}
    short = train(network(), data(), OPTIMIZERS["adam"], epochs=2, folder=tmp_path, **options)
    again = train(network(), data(), OPTIMIZERS["adam"], epochs=2, folder=tmp_path, **options)
    assert bits(again.model.state_dict()) == bits(short.model.state_dict())
    assert again.step == short.step == 14
    longer = train(network(), data(), OPTIMIZERS["adam"], epochs=5, folder=tmp_path, **options)
    whole = train(network(), data(), OPTIMIZERS["adam"], epochs=5, **options)
    assert bits(longer.model.state_dict()) == bits(whole.model.state_dict())
    assert bits(longer.rows) == bits(whole.rows)


def test_settings_of_another_run_are_refused(tmp_path):
    options = {"epochs": 1, "batch_size": 8, "folder": tmp_path, "progress": False}
    train(network(), data(), OPTIMIZERS["sgd"], **options)
    for change, message in (
        ({"seed": 1}, "its seed is 0, here it is 1"),
        ({"batch_size": 9}, "its batch_size is 8, here it is 9"),
    ):
        with pytest.raises(bs.InputError, match=message):
            train(network(), data(), OPTIMIZERS["sgd"], **{**options, **change})
    with pytest.raises(bs.InputError, match="its optimizer is 'SGD', here it is 'Adam'"):
        train(network(), data(), OPTIMIZERS["adam"], **options)
    with pytest.raises(bs.InputError, match="its samples is 53, here it is 52"):
        train(network(), data(52), OPTIMIZERS["sgd"], **options)
    with pytest.raises(bs.InputError, match="its parameters is"):
        train(torch.nn.Linear(4, 3), data(), OPTIMIZERS["sgd"], **options)


def test_a_state_on_disk_is_exactly_that_in_memory(tmp_path):
    for name, build in OPTIMIZERS.items():
        done = run(build, tmp_path / name)
        assert bits(load_checkpoint(done.checkpoint)["optimizer"]) == bits(done.optimizer.state_dict())
