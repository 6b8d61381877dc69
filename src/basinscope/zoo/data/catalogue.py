"""The files of each data set, their addresses and their hashes."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import InputError


@dataclass(frozen=True)
class File:
    """One official file: its md5 and the places that serve it, tried in turn."""

    name: str
    md5: str
    urls: tuple[str, ...]
    megabytes: float


@dataclass(frozen=True)
class Source:
    """A data set as it is published."""

    name: str
    what: str
    files: tuple[File, ...]
    licence: str = ""
    # Known files that are not the official ones: name → md5. They hold part of the data.
    editions: dict[str, str] = field(default_factory=dict)


def _idx(where: tuple[str, ...], hashes: tuple[str, ...], megabytes: tuple[float, ...]) -> tuple[File, ...]:
    names = (
        "train-images-idx3-ubyte.gz",
        "train-labels-idx1-ubyte.gz",
        "t10k-images-idx3-ubyte.gz",
        "t10k-labels-idx1-ubyte.gz",
    )
    return tuple(
        File(name, md5, tuple(base + name for base in where), size)
        for name, md5, size in zip(names, hashes, megabytes, strict=True)
    )


# md5 of the members of CIFAR-10's binary archive, whichever of them an archive holds.
CIFAR_MEMBERS = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}

_SOURCES = (
    Source(
        "mnist",
        "60,000 + 10,000 handwritten digits, 28 × 28 grey",
        _idx(
            ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
            (
                "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "d53e105ee54ea40749a09fcbcd1e9432",
                "9fb629c4189551a2d022fa330f9573f3",
                "ec29112dd5afa0611ce80d1b7f02629c",
            ),
            (9.9, 0.03, 1.6, 0.005),
        ),
    ),
    Source(
        "fashion_mnist",
        "60,000 + 10,000 pieces of clothing, 28 × 28 grey",
        _idx(
            ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
            (
                "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                "25c81989df183df01b3e8a0aad5dffbe",
                "bef4ecab320f06d8554ea6380940ec79",
                "bb300cfdad3c16e7a12a480ee83cd310",
            ),
            (26.4, 0.03, 4.4, 0.005),
        ),
        licence="MIT",
    ),
    Source(
        "cifar10",
        "50,000 + 10,000 photographs in ten classes, 32 × 32 colour",
        (
            File(
                "cifar-10-binary.tar.gz",
                "c32a1d4ab5d03f1284b67883e8d87530",
                ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
                170.1,
            ),
        ),
        editions={"cifar-10-binary-20k.tar.gz": "96ccc1e5d1c0def8b6e1b0f8bbb7935b"},
    ),
    Source(
        "svhn",
        "73,257 + 26,032 house numbers, 32 × 32 colour",
        (
            File(
                "train_32x32.mat",
                "e26dedcc434d2e4c54c9b2d4a06d8373",
                ("http://ufldl.stanford.edu/housenumbers/train_32x32.mat",),
                182.0,
            ),
            File(
                "test_32x32.mat",
                "eb5a983be6a315427106f1b164d9cef3",
                ("http://ufldl.stanford.edu/housenumbers/test_32x32.mat",),
                64.3,
            ),
        ),
        licence="non-commercial use",
        editions={
            "train_32x32.mat": "018fb9e710c66a2453b9e1c8d2dd5a87",
            "test_32x32.mat": "b34125163805a41b9a1f6885246f5f43",
        },
    ),
)

SOURCES = {source.name: source for source in _SOURCES}


def names() -> list[str]:
    """The real data sets that `load` knows: `digits` comes with scikit-learn, the others are files.

    Examples:
        >>> names()
        ['digits', 'mnist', 'fashion_mnist', 'cifar10', 'svhn']
    """
    return ["digits", *SOURCES]


def source_of(name: str) -> Source:
    """The source of that name."""
    source = SOURCES.get(name.replace("-", "_"))
    if source is None:
        raise InputError(f"unknown data set {name!r}: expected one of {', '.join(SOURCES)}")
    return source


def data_folder(folder: str | Path | None = None) -> Path:
    """The folder of all data sets: `folder`, else $BASINSCOPE_DATA, else the user's cache."""
    if folder is not None:
        return Path(folder).expanduser()
    configured = os.environ.get("BASINSCOPE_DATA")
    if configured:
        return Path(configured).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "basinscope" / "data"


def small_file(name: str) -> str:
    """The name of the file that holds a data set's 7 × 7 view."""
    return f"{name}_7x7_gray.npz"


def md5(path: Path) -> str:
    """The md5 of a file, as sixteen hexadecimal pairs."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def verified(source: Source, path: Path) -> bool:
    """Whether `path` is the official file, or else a known edition; any other content is refused."""
    official = {file.name: file.md5 for file in source.files}.get(path.name)
    actual = md5(path)
    if actual == official:
        return True
    if actual == source.editions.get(path.name):
        return False
    expected = official or source.editions.get(path.name)
    raise InputError(
        f"{path} has md5 {actual}, expected {expected}: it is damaged or another file — "
        f"`basinscope data fetch {source.name}` replaces it"
    )


def missing(source: Source, path: Path) -> InputError:
    """The error for a file that is not there."""
    return InputError(
        f"{source.name} needs {path}, which is not there — run `basinscope data fetch {source.name}`, or point "
        f"BASINSCOPE_DATA at the folder that holds {source.name}/"
    )
