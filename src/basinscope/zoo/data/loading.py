"""Load a real data set by name: whole, or as its 7 × 7 view, which may stand in a file of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from ...errors import BasinscopeError, InputError
from ...files import whole_file
from .catalogue import SOURCES, Source, data_folder, missing, names, small_file, source_of, verified
from .formats import read_cifar, read_idx, read_npz, read_svhn
from .sets import DataSet, Pair

VIEWS = ("full", "7x7")


def load(
    name: str,
    *,
    view: str = "full",
    train: int | None = None,
    test: int | None = None,
    folder: str | Path | None = None,
) -> DataSet:
    """A data set with images (n, channels, height, width), float32 in [0, 1], and labels.

    Files are looked for in `folder/name`, where `folder` is $BASINSCOPE_DATA unless given, or the user's cache; their
    hashes are checked at every call. `basinscope data fetch NAME` brings them there. Where the official files are not,
    the view `7x7` comes from the small file that `basinscope data shrink NAME` writes, if that is there.

    Args:
        name: `digits`, `mnist`, `fashion_mnist`, `cifar10` or `svhn`.
        view: `full`, or `7x7` for 7 × 7 grey images.
        train: keep only the first so many training samples.
        test: keep only the first so many test samples.
        folder: where the data sets live.

    Examples:
        >>> load("digits")
        DataSet(digits: 1,437 + 360 samples of shape (1, 8, 8), 10 classes)
    """
    if view not in VIEWS:
        raise InputError(f"view must be one of {VIEWS}, got {view!r}")
    name = name.replace("-", "_")
    if name == "digits":
        pairs = _digits()
    elif name in READERS:
        place, source = data_folder(folder) / name, source_of(name)
        pairs = (_small(place, source) if view == "7x7" else None) or READERS[name](place, source)
    else:
        raise InputError(f"unknown data set {name!r}: expected one of {', '.join(names())}")
    whole = DataSet(name, *pairs, 10).first(train, test)
    return DataSet(name, _view(whole.train, view), _view(whole.test, view), 10)


def _view(pair: Pair, view: str) -> Pair:
    """Images in [0, 1], whole or as 7 × 7 grey ones, and their labels."""
    images = pair[0].float() / 255 if pair[0].dtype == torch.uint8 else pair[0]
    small = images.shape[2:] == (7, 7)
    return (images if view == "full" or small else seven_by_seven(images)), pair[1]


def _digits() -> tuple[Pair, Pair]:
    """scikit-learn's 1,797 digits on 8 × 8 pixels, in one fixed random order, four fifths for training."""
    try:
        from sklearn import datasets
    except ImportError:
        raise BasinscopeError(
            "the digits come with scikit-learn, which is not installed — pip install 'basinscope[demo]'"
        ) from None
    bunch = datasets.load_digits()
    order = torch.randperm(len(bunch.target), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(bunch.images, dtype=torch.float32)[order, None] / 16
    labels = torch.tensor(bunch.target)[order]
    cut = len(labels) * 4 // 5
    return (images[:cut], labels[:cut]), (images[cut:], labels[cut:])


def _small(place: Path, source: Source) -> tuple[Pair, Pair] | None:
    """The 7 × 7 view from its own file; None where there is none, or the official files are there."""
    path, official = place / small_file(source.name), [place / file.name for file in source.files]
    if not path.is_file() or all(file.is_file() and verified(source, file) for file in official):
        return None
    (images, labels), (test_images, test_labels) = read_npz(path)
    return (images[:, None], labels), (test_images[:, None], test_labels)


def _idx(place: Path, source: Source) -> tuple[Pair, Pair]:
    images, labels, test_images, test_labels = map(read_idx, _verified_files(place, source))
    return (images[:, None], labels.long()), (test_images[:, None], test_labels.long())


def _cifar(place: Path, source: Source) -> tuple[Pair, Pair]:
    for path in (place / source.files[0].name, *(place / name for name in source.editions)):
        if path.is_file():
            return read_cifar(path)  # checks the hash of every batch in it
    raise missing(source, place / source.files[0].name)


def _svhn(place: Path, source: Source) -> tuple[Pair, Pair]:
    train, test = map(read_svhn, _verified_files(place, source))
    return train, test


def _verified_files(place: Path, source: Source) -> Iterator[Path]:
    """The files of a data set, each of them there and whole."""
    for file in source.files:
        path = place / file.name
        if not path.is_file():
            raise missing(source, path)
        verified(source, path)
        yield path


READERS: dict[str, Callable[[Path, Source], tuple[Pair, Pair]]] = {
    "mnist": _idx,
    "fashion_mnist": _idx,
    "cifar10": _cifar,
    "svhn": _svhn,
}


LUMA = (0.299, 0.587, 0.114)
_MAX_IMAGES = 4096  # pooled at once


def seven_by_seven(images: Tensor) -> Tensor:
    """Images (n, 1 or 3, h, w) in [0, 1] as 7 × 7 grey ones (n, 1, 7, 7).

    Grey is 0.299 R + 0.587 G + 0.114 B; each of the 7 × 7 pixels is the mean of its part of the image (adaptive
    average pooling). They are the images of Shoham, Mor-Yosef and Avron, "Flatness After All?" (2025,
    https://arxiv.org/abs/2506.17809).

    Examples:
        >>> seven_by_seven(torch.full((2, 3, 32, 32), 0.5)).shape
        torch.Size([2, 1, 7, 7])
    """
    if images.ndim != 4 or images.shape[1] not in (1, 3) or min(images.shape[2:]) < 7:
        raise InputError(f"images must have shape (n, 1 or 3, ≥ 7, ≥ 7), got {tuple(images.shape)}")
    pieces = []
    for piece in images.split(_MAX_IMAGES):
        if piece.shape[1] == 3:
            piece = (piece * torch.tensor(LUMA).to(piece).view(3, 1, 1)).sum(1, keepdim=True)
        pieces.append(functional.adaptive_avg_pool2d(piece, 7))
    return torch.cat(pieces)


def shrink(name: str, to: str | Path, folder: str | Path | None = None) -> Path:
    """Write the 7 × 7 view of all images to `to/name`; `load(name, view="7x7", folder=to)` gives it back to the bit.

    Args:
        name: of a data set that comes in files.
        to: another folder of data sets.
        folder: where its files are, as for `load`.
    """
    if name not in SOURCES:
        raise InputError(f"unknown data set {name!r}: expected one of {', '.join(SOURCES)}")
    small = load(name, view="7x7", folder=folder)
    path = Path(to) / name / small_file(name)
    arrays: dict[str, Any] = {
        f"{letter}_{part}": tensor.numpy()
        for part, (images, labels) in (("train", small.train), ("test", small.test))
        for letter, tensor in (("x", images[:, 0]), ("y", labels))
    }
    with whole_file(path) as stream:
        np.savez_compressed(stream, **arrays)
    return path
