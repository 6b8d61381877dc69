"""Readers of the official formats. None of them runs code that comes with the data."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...errors import InputError
from ...foreign import arrays
from .catalogue import CIFAR_MEMBERS
from .sets import Pair


def read_idx(path: Path) -> Tensor:
    """An IDX file of unsigned bytes, gzipped: two zero bytes, type 8, the number of axes, their lengths, the values."""
    try:
        content = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} is no whole gzip file ({error}) — fetch it again") from error
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise InputError(f"{path} is no IDX file of unsigned bytes: it starts with {content[:4].hex()}")
    axes = content[3]
    header = 4 + 4 * axes
    shape = [int.from_bytes(content[4 + 4 * i : 8 + 4 * i], "big") for i in range(axes)]
    values = np.frombuffer(content[header:], np.uint8)
    if axes == 0 or len(content) < header or len(values) != np.prod(shape):
        raise InputError(f"{path} holds {len(values):,} values, its header promises {shape}")
    return torch.from_numpy(values.reshape(shape).copy())


def read_cifar(path: Path) -> tuple[Pair, Pair]:
    """The batches of a CIFAR-10 binary archive: records of a label byte and 3 × 32 × 32 bytes, red first."""
    train: list[tuple[str, NDArray[np.uint8]]] = []
    test: list[tuple[str, NDArray[np.uint8]]] = []
    try:
        with tarfile.open(path, "r:gz") as archive:
            for entry in archive:
                name = entry.name.rpartition("/")[2]
                if entry.isfile() and name in CIFAR_MEMBERS:
                    member = archive.extractfile(entry)
                    assert member is not None
                    content = member.read()
                    (test if name == "test_batch.bin" else train).append((name, _cifar_batch(path, name, content)))
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise InputError(f"{path} is no whole tar.gz archive ({error}) — `basinscope data fetch cifar10`") from error
    if not train or not test:
        raise InputError(f"{path} must hold data_batch_*.bin and test_batch.bin, found {[n for n, _ in train + test]}")
    batches = [records for _, records in sorted(train, key=lambda batch: batch[0])]
    return _cifar_pair(np.concatenate(batches)), _cifar_pair(test[0][1])


def _cifar_batch(path: Path, name: str, content: bytes) -> NDArray[np.uint8]:
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if md5 != CIFAR_MEMBERS[name]:
        raise InputError(f"{name} in {path} has md5 {md5}, expected {CIFAR_MEMBERS[name]}: the archive is damaged")
    return np.frombuffer(content, np.uint8).reshape(-1, 3073)


def _cifar_pair(records: NDArray[np.uint8]) -> Pair:
    images = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).copy())
    return images, torch.from_numpy(records[:, 0].astype(np.int64))


def read_svhn(path: Path) -> Pair:
    """A MATLAB file with X of shape 32 × 32 × 3 × N and labels y, where 10 stands for the digit 0."""
    from scipy.io import loadmat

    try:
        content: dict[str, Any] = loadmat(path, variable_names=["X", "y"])
    except (OSError, ValueError, TypeError, NotImplementedError, zlib.error) as error:
        raise InputError(f"{path} is no MATLAB file that can be read ({error})") from error
    if not {"X", "y"} <= content.keys() or content["X"].shape[:3] != (32, 32, 3):
        raise InputError(f"{path} must hold X of shape (32, 32, 3, N) and y")
    images = torch.from_numpy(np.ascontiguousarray(content["X"].transpose(3, 2, 0, 1)))
    return images, torch.from_numpy(content["y"].astype(np.int64).reshape(-1) % 10)


def read_npz(path: Path) -> tuple[Pair, Pair]:
    """Arrays x_train, y_train, x_test and y_test in one NumPy archive without objects, which has a checksum of each."""
    try:
        content = arrays(path)
        train, test = (
            (torch.from_numpy(content[f"x_{part}"]), torch.from_numpy(content[f"y_{part}"].astype(np.int64)))
            for part in ("train", "test")
        )
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is no whole archive of images and labels ({error}) — copy or make it again"
        ) from error
    return train, test
