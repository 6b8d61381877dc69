import json

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import basinscope as bs
import lacking
from basinscope.adapters.checkpoints import checkpoints_in, read_weights
from basinscope.report.checkpoints import Subject, measure_checkpoints
from basinscope.training import Every, train

FAST = {"budget": 0.2, "seed": 0}


def weights(scale=1.0):
    return {"weight": torch.full((1, 2), scale), "bias": torch.zeros(1)}


def measured(subject, path, **options):
    return measure_checkpoints(subject, path, FAST, command="basinscope measure", progress=False, **options)


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".pth", ".bin", ".ckpt"])
def test_every_kind_of_file_gives_the_weights(tmp_path, suffix):
    path = tmp_path / f"net{suffix}"
    (save_file if suffix == ".safetensors" else torch.save)(weights(), path)
    assert torch.equal(read_weights(path)["weight"], torch.ones(1, 2))


@pytest.mark.parametrize("wrapper", ["state_dict", "model_state_dict", "model"])
def test_weights_inside_a_larger_file_are_found(tmp_path, wrapper):
    torch.save({"epoch": 3, wrapper: weights(), "optimizer": {"lr": 0.1}}, tmp_path / "all.pt")
    assert set(read_weights(tmp_path / "all.pt")) == {"weight", "bias"}


def test_names_of_wrapped_networks_fit(subject, tmp_path):
    save_file({f"module._orig_mod.{name}": value for name, value in weights().items()}, tmp_path / "a.safetensors")
    assert measured(subject, tmp_path / "a.safetensors").final.subject.parameters == 3


def test_a_checkpoint_that_does_not_fit_names_the_keys(subject, tmp_path):
    save_file({"weight": torch.ones(1, 3), "head.bias": torch.ones(1)}, tmp_path / "other.safetensors")
    with pytest.raises(bs.InputError) as caught:
        measured(subject, tmp_path / "other.safetensors")
    for told in (
        "missing bias",
        "left over head.bias",
        "weight is (1, 3) in the file and (1, 2) in the network",
        "--model",
    ):
        assert told in str(caught.value)


class Bomb:
    def __reduce__(self):
        return exec, ("import pathlib; pathlib.Path('exploded').touch()",)


def test_a_pickled_checkpoint_is_refused_unopened_with_the_way_to_convert_it(subject, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"weight": torch.ones(1), "extra": Bomb()}, "bomb.pt")
    torch.save(nn.Linear(2, 1), "whole.pt")
    for name in ("bomb.pt", "whole.pt"):
        with pytest.raises(bs.InputError, match=r"could run any code: it is refused.*save_file"):
            measured(subject, tmp_path / name)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_a_file_that_was_cut_off_is_told(subject, tmp_path, suffix):
    path = tmp_path / f"cut{suffix}"
    (save_file if suffix == ".safetensors" else torch.save)(weights(), path)
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(bs.InputError, match="damaged, or still being written"):
        measured(subject, path)


@pytest.mark.parametrize(
    ("content", "told"),
    [([1, 2], "holds a list"), ({"epoch": 3}, "holds no tensors")],
)
def test_files_without_weights_are_told(subject, tmp_path, content, told):
    torch.save(content, tmp_path / "odd.pt")
    with pytest.raises(bs.InputError, match=told):
        measured(subject, tmp_path / "odd.pt")


def test_places_without_checkpoints_are_told(tmp_path):
    with pytest.raises(bs.InputError, match="there is no checkpoint at"):
        checkpoints_in(tmp_path / "nowhere")
    with pytest.raises(bs.InputError, match="holds no checkpoint"):
        checkpoints_in(tmp_path)
    (tmp_path / "checkpoint.safetensors.part").touch()
    with pytest.raises(bs.InputError, match="still being written"):
        checkpoints_in(tmp_path)
    (tmp_path / "notes.txt").touch()
    with pytest.raises(bs.InputError, match="is no checkpoint"):
        read_weights(tmp_path / "notes.txt")


def test_a_folder_gives_curves_in_order_and_a_bad_file_a_row(subject, tmp_path):
    for step in (2, 10, 100):
        save_file(weights(1 + 1 / step), tmp_path / f"step-{step}.safetensors")
    (tmp_path / "step-50.safetensors").write_bytes(b"cut")
    found = measured(subject, tmp_path)
    assert [point.step for point in found.points] == [2, 10, 50, 100]
    assert found.points[2].measured is None
    assert "still being written" in found.points[2].error
    assert "1 of 4 checkpoints could not be measured" in found.to_html()
    assert found.points[0].measured.spectrum is None
    assert found.points[3].measured.spectrum is not None
    assert "still being written" in found.to_markdown()


def test_all_checkpoints_of_a_folder_are_measured_at_the_localiser_of_the_last(subject, tmp_path):
    for step, scale in enumerate((3.0, 1.0, 0.5)):
        save_file(weights(scale), tmp_path / f"step-{step}.safetensors")
    (tmp_path / "step-3.safetensors").write_bytes(b"cut off")
    found = measured(subject, tmp_path)
    (gamma,) = {point.measured.llc.diagnostics["gamma"] for point in found.points if point.measured}
    assert gamma == pytest.approx(3 / (2 * 0.5**2))  # d/‖w*‖² of step 2
    chosen = measure_checkpoints(subject, tmp_path, {**FAST, "gamma": 2.0}, command="", progress=False)
    assert {point.measured.llc.diagnostics["gamma"] for point in chosen.points if point.measured} == {2.0}


def test_a_folder_of_bad_files_alone_is_an_error(subject, tmp_path):
    for step in (1, 2):
        (tmp_path / f"{step}.safetensors").write_bytes(b"cut")
    with pytest.raises(bs.InputError, match="none of 2 checkpoints"):
        measured(subject, tmp_path)


def test_what_train_wrote_is_measured_with_its_losses(subject, tmp_path):
    run = train(
        subject.network, subject.data, lambda net: torch.optim.SGD(net.parameters(), lr=0.3), loss="mse", epochs=4,
        batch_size=20, folder=tmp_path, keep=Every(epochs=2), validation=subject.data, progress=False,
    )  # fmt: skip
    found = measured(subject, tmp_path)
    assert [point.epoch for point in found.points] == [2, 4]  # the last state and the last kept step are one
    assert found.history == run.rows
    assert found.final.subject.loss_value == pytest.approx(run.rows[-1]["train_loss"], rel=1e-4)
    assert found.points[-1].validation_loss == run.rows[-1]["validation_loss"]


def test_what_is_kept_is_not_measured_again(subject, tmp_path, monkeypatch):
    for step in (1, 2):
        save_file(weights(1 + 1 / step), tmp_path / f"{step}.safetensors")
    first = measured(subject, tmp_path, keep=tmp_path / "kept")
    monkeypatch.setattr("basinscope.report.checkpoints.measurement", lambda *_, **__: pytest.fail("measured again"))
    again = measured(subject, tmp_path, keep=tmp_path / "kept")
    assert again.rows() == first.rows()
    assert bs.Report.load(tmp_path / "kept" / "report.json").rows() == first.rows()


def test_kept_numbers_of_other_settings_or_weights_are_not_taken(subject, tmp_path):
    save_file(weights(1.5), tmp_path / "a.safetensors")
    measured(subject, tmp_path / "a.safetensors", keep=tmp_path / "kept")
    save_file(weights(1.6), tmp_path / "a.safetensors")
    measured(subject, tmp_path / "a.safetensors", keep=tmp_path / "kept")
    assert len(list((tmp_path / "kept" / "points").iterdir())) == 2
    for file in (tmp_path / "kept" / "points").iterdir():
        json.loads(file.read_text())


OWN = """
import torch
from torch import nn

def build(): return nn.Linear(2, 3)
def number(): return 3
def needs(width): return nn.Linear(width, 3)
def broken(): raise RuntimeError("no weights here")
def load(): return torch.zeros(10, 2), torch.arange(10) % 3
def nothing(): return None
def labels(): return torch.zeros(10, 2), torch.arange(10)
def real(): return torch.zeros(10, 2), torch.zeros(10)
def odd(): return torch.zeros(10, 2), torch.arange(9) % 3
constant = 3
"""


@pytest.fixture
def own(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    return str(tmp_path / "own.py")


@pytest.mark.parametrize(
    ("model", "data", "told"),
    [
        ("nowhere.at.all:build", "load", "cannot import 'nowhere.at.all'"),
        ("buidl", "load", "did you mean 'build'"),
        ("number", "load", "must return a torch.nn.Module, got int"),
        ("constant", "load", "must be a function that builds the network, got int"),
        ("needs", "load", "called without arguments"),
        ("broken", "load", "RuntimeError: no weights here"),
        ("build", "nothing", "returned None"),
        ("build", "constant", "must be a function that returns the data, got int"),
    ],
)
def test_factories_that_do_not_work_are_told(own, model, data, told):
    model = model if ":" in model else f"{own}:{model}"
    with pytest.raises(bs.InputError, match=told):
        Subject.load(model, f"{own}:{data}")


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ("labels", r"labels must lie in 0..2 for 3 classes, got values 0..9"),
        ("real", "expects integer class labels"),
        ("odd", "disagree on the number of samples"),
    ],
)
def test_labels_that_do_not_fit_are_told(own, tmp_path, data, told):
    save_file(nn.Linear(2, 3).state_dict(), tmp_path / "net.safetensors")
    with pytest.raises(bs.InputError, match=told):
        measured(Subject.load(f"{own}:build", f"{own}:{data}"), tmp_path / "net.safetensors")


@lacking.NO_GPU.mark
def test_a_device_that_is_not_there_is_told(own):
    with pytest.raises(bs.InputError, match="--device 'cuda' cannot be used"):
        Subject.load(f"{own}:build", f"{own}:load", device="cuda")
