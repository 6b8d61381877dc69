"""Load a real data set by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from ...errors import BasinscopeError, InputError
from .catalogue import Source, data_folder, missing, names, small_file, source_of, verified
from .formats import read_cifar, read_idx, read_npz, read_svhn
from .sets import DataSet, Pair
from .views import seven_by_seven

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
    arrays: list[Tensor] = []
    for file in source.files:
        path = place / file.name
        if not path.is_file():
            raise missing(source, path)
        verified(source, path)
        arrays.append(read_idx(path))
    images, labels, test_images, test_labels = arrays
    return (images[:, None], labels.long()), (test_images[:, None], test_labels.long())


def _cifar(place: Path, source: Source) -> tuple[Pair, Pair]:
    for path in (place / source.files[0].name, *(place / name for name in source.editions)):
        if path.is_file():
            return read_cifar(path)  # checks the hash of every batch in it
    raise missing(source, place / source.files[0].name)


def _svhn(place: Path, source: Source) -> tuple[Pair, Pair]:
    paths = [place / file.name for file in source.files]
    for path in paths:
        if not path.is_file():
            raise missing(source, path)
        verified(source, path)
    train, test = (read_svhn(path) for path in paths)
    return train, test


READERS: dict[str, Callable[[Path, Source], tuple[Pair, Pair]]] = {
    "mnist": _idx,
    "fashion_mnist": _idx,
    "cifar10": _cifar,
    "svhn": _svhn,
}
