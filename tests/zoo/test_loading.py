"""Loaders against small files in the official formats, and against the real ones where BASINSCOPE_DATA has them."""

import gzip
import hashlib
import io
import tarfile
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.io import savemat
from torch.nn import functional

import lacking
from basinscope.errors import InputError
from basinscope.zoo import data
from basinscope.zoo.data import catalogue, formats
from basinscope.zoo.data.catalogue import File, Source


def idx(values):
    header = b"\x00\x00\x08" + bytes([values.ndim]) + b"".join(size.to_bytes(4, "big") for size in values.shape)
    return gzip.compress(header + values.tobytes())


def md5(content):
    return hashlib.md5(content).hexdigest()


@pytest.fixture
def tiny_mnist(tmp_path, monkeypatch):
    """A folder with a tiny MNIST that the catalogue knows."""
    rng = np.random.default_rng(0)
    contents = [
        idx(rng.integers(256, size=(5, 28, 28), dtype=np.uint8)),
        idx(np.arange(5, dtype=np.uint8)),
        idx(rng.integers(256, size=(3, 28, 28), dtype=np.uint8)),
        idx(np.arange(3, dtype=np.uint8)),
    ]
    place = tmp_path / "mnist"
    place.mkdir()
    files = []
    for file, content in zip(catalogue.SOURCES["mnist"].files, contents, strict=True):
        (place / file.name).write_bytes(content)
        files.append(File(file.name, md5(content), file.urls, 0.1))
    monkeypatch.setitem(catalogue.SOURCES, "mnist", Source("mnist", "tiny", tuple(files)))
    monkeypatch.setenv("BASINSCOPE_DATA", str(tmp_path))
    return place


def test_idx_files_become_images_in_the_unit_interval(tiny_mnist):
    made = data.load("mnist")
    raw = np.frombuffer(gzip.decompress((tiny_mnist / "train-images-idx3-ubyte.gz").read_bytes()), np.uint8, offset=16)
    expected = torch.from_numpy(raw.reshape(5, 1, 28, 28).copy()).float() / 255
    assert torch.equal(made.train[0], expected)
    assert made.train[1].tolist() == [0, 1, 2, 3, 4]
    small = data.load("mnist", view="7x7", train=2)
    torch.testing.assert_close(small.train[0], functional.avg_pool2d(expected[:2], 4))


def test_a_wrong_hash_is_refused(tiny_mnist):
    path = tiny_mnist / "train-labels-idx1-ubyte.gz"
    path.write_bytes(idx(np.arange(1, 6, dtype=np.uint8)))
    with pytest.raises(InputError, match=r"train-labels-idx1-ubyte.gz has md5 .*, expected .* data fetch mnist"):
        data.load("mnist")


def test_half_a_file_is_refused(tiny_mnist):
    path = tiny_mnist / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(InputError, match="has md5"):
        data.load("mnist")
    with pytest.raises(InputError, match="no whole gzip file"):
        formats.read_idx(path)


def test_a_missing_file_names_the_command_that_fetches_it(tiny_mnist):
    (tiny_mnist / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(InputError, match=r"t10k-labels-idx1-ubyte.gz, which is not there — run `basinscope data fetch"):
        data.load("mnist")
    for name in ("cifar10", "svhn", "fashion-mnist"):
        with pytest.raises(InputError, match=f"data fetch {name.replace('-', '_')}"):
            data.load(name)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: data.load("imagenet"), "unknown data set 'imagenet': expected one of digits, mnist"),
        (lambda: data.load("digits", view="8x8"), "view must be one of"),
        (lambda: data.load("mnist", train=6), "mnist holds 5 training samples here, 6 were asked for"),
        (lambda: data.load("mnist", test=0), "the number of test samples must be a whole number of at least 1"),
        (lambda: data.seven_by_seven(torch.zeros(2, 2, 9, 9)), "images must have shape"),
    ],
)
def test_bad_input(tiny_mnist, call, match):
    with pytest.raises(InputError, match=match):
        call()


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"\x00\x00\x0d\x01" + bytes(8), "no IDX file of unsigned bytes"),
        (b"\x00\x00\x08\x01\x00\x00\x00\x05abc", "holds 3 values, its header promises"),
        (b"\x00\x00\x08\x03\x00", "holds 0 values"),
    ],
    ids=["type", "length", "header"],
)
def test_broken_idx(tmp_path, content, match):
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(content))
    with pytest.raises(InputError, match=match):
        formats.read_idx(path)


def tar(members):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


def test_cifar_records(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    batches = {
        name: rng.integers(10, size=(4, 3073), dtype=np.uint8) for name in ("data_batch_1.bin", "test_batch.bin")
    }
    members = {name: batch.tobytes() for name, batch in batches.items()}
    monkeypatch.setattr(formats, "CIFAR_MEMBERS", {name: md5(content) for name, content in members.items()})
    path = tmp_path / "cifar10" / "cifar-10-binary.tar.gz"
    path.parent.mkdir()
    path.write_bytes(tar(members))
    made = data.load("cifar10", folder=tmp_path)
    first = batches["data_batch_1.bin"]
    assert made.train[1].tolist() == first[:, 0].tolist()
    assert made.train[0][2, 1, 3, 5] * 255 == pytest.approx(first[2, 1 + 1024 + 3 * 32 + 5])
    grey = (made.train[0] * torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(1, keepdim=True)
    small = data.load("cifar10", view="7x7", folder=tmp_path)
    assert small.train[0][1, 0, 0, 0] == pytest.approx(grey[1, 0, :5, :5].mean().item())  # 32/7 begins with 0..4
    path.write_bytes(tar({**members, "test_batch.bin": bytes(3073)}))
    with pytest.raises(InputError, match=r"test_batch.bin in .* has md5"):
        data.load("cifar10", folder=tmp_path)
    path.write_bytes(tar({"test_batch.bin": members["test_batch.bin"]}))
    with pytest.raises(InputError, match="must hold data_batch"):
        data.load("cifar10", folder=tmp_path)
    path.write_bytes(tar(members)[:500])
    with pytest.raises(InputError, match=r"no whole tar\.gz"):
        data.load("cifar10", folder=tmp_path)


def test_a_small_file_gives_the_same_view(tmp_path):
    images = torch.rand(6, 7, 7)
    labels = torch.arange(6)
    place = tmp_path / "full" / "cifar10"
    place.mkdir(parents=True)
    arrays = {"x_train": images[:4], "y_train": labels[:4], "x_test": images[4:], "y_test": labels[4:]}
    np.savez(place / "cifar10_7x7_gray.npz", **{name: tensor.numpy() for name, tensor in arrays.items()})
    path = data.shrink("cifar10", to=tmp_path / "small", folder=tmp_path / "full")
    made = data.load("cifar10", view="7x7", folder=tmp_path / "small")
    assert torch.equal(torch.cat([made.train[0], made.test[0]])[:, 0], images)
    assert torch.cat([made.train[1], made.test[1]]).tolist() == labels.tolist()
    assert made.train[0].shape == (4, 1, 7, 7)
    with pytest.raises(InputError, match=r"cifar-10-binary\.tar\.gz, which is not there"):
        data.load("cifar10", folder=tmp_path / "small")  # the view alone
    content = bytearray(path.read_bytes())
    content[80] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match="no whole archive"):
        data.load("cifar10", view="7x7", folder=tmp_path / "small")
    with pytest.raises(InputError, match="unknown data set 'digits'"):
        data.shrink("digits", to=tmp_path)


def test_the_official_files_come_before_a_small_one(tmp_path, tiny_mnist):
    expected = data.load("mnist", view="7x7")
    zeros = {"x_train": np.zeros((1, 7, 7)), "y_train": [0], "x_test": np.zeros((1, 7, 7)), "y_test": [0]}
    np.savez(tiny_mnist / "mnist_7x7_gray.npz", **zeros)
    assert torch.equal(data.load("mnist", view="7x7").train[0], expected.train[0])


def test_svhn_matrices(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(32, 32, 3, 4), dtype=np.uint8)
    place = tmp_path / "svhn"
    place.mkdir()
    for name in ("train_32x32.mat", "test_32x32.mat"):
        savemat(place / name, {"X": images, "y": np.array([[1], [10], [3], [10]], np.uint8)}, do_compression=True)
    source = catalogue.SOURCES["svhn"]
    files = tuple(replace(file, md5=catalogue.md5(place / file.name)) for file in source.files)
    monkeypatch.setitem(catalogue.SOURCES, "svhn", replace(source, files=files))
    made = data.load("svhn", folder=tmp_path)
    assert made.train[1].tolist() == [1, 0, 3, 0]
    assert made.train[0].shape == (4, 3, 32, 32)
    assert made.train[0][3, 2, 7, 9] * 255 == pytest.approx(images[7, 9, 2, 3])
    broken = tmp_path / "broken.mat"
    broken.write_bytes(b"MATLAB" + bytes(200))
    with pytest.raises(InputError, match=r"broken\.mat"):
        formats.read_svhn(broken)
    savemat(broken, {"X": images[0], "y": np.zeros(4)})
    with pytest.raises(InputError, match="must hold X of shape"):
        formats.read_svhn(broken)


def test_digits_are_whole_and_fixed():
    made = data.load("digits")
    assert len(made.train[0]) + len(made.test[0]) == 1797
    assert made.train[0].max() == 1
    assert torch.equal(made.train[0], data.load("digits").train[0])
    assert data.load("digits", view="7x7").test[0].shape == (360, 1, 7, 7)


@lacking.data_set("mnist").mark
@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_real_idx(name):
    made = data.load(name, view="7x7")
    assert made.train[0].shape == (60_000, 1, 7, 7)
    assert torch.bincount(made.test[1]).tolist() == (
        [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009] if name == "mnist" else [1000] * 10
    )


@lacking.data_set("cifar10").mark
def test_real_cifar():
    made = data.load("cifar10", view="7x7")
    assert len(made.train[0]) in (20_000, 50_000)
    assert torch.bincount(made.test[1]).tolist() == [1000] * 10


@lacking.data_set("svhn").mark
def test_real_svhn():
    small, full = data.load("svhn", view="7x7"), data.load("svhn")
    assert (len(small.train[0]), len(small.test[0])) == (73_257, 26_032)
    count = len(full.train[0])
    assert torch.equal(small.train[1][:count], full.train[1])
    difference = (small.train[0][:count] - data.seven_by_seven(full.train[0])).abs()
    assert difference.mean() < 0.01
