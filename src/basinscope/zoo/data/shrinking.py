"""The 7 × 7 view of a data set in a file of its own: a few megabytes, for machines to which the whole is too large."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ...errors import InputError
from ...files import whole_file
from .catalogue import SOURCES, small_file
from .loading import load


def shrink(name: str, to: str | Path, folder: str | Path | None = None) -> Path:
    """Write the 7 × 7 view of all images to `to/name`; `load(name, view="7x7", folder=to)` gives it back to the bit.

    Args:
        name: of a data set that comes in files.
        to: another folder of data sets.
        folder: where its files are, as for `load`.
    """
    if name not in SOURCES:
        raise InputError(f"unknown data set {name!r}: expected one of {', '.join(SOURCES)}")
    found = load(name, view="7x7", folder=folder)
    path = Path(to) / name / small_file(name)
    arrays: dict[str, Any] = {
        f"{letter}_{part}": tensor.numpy()
        for part, (images, labels) in (("train", found.train), ("test", found.test))
        for letter, tensor in (("x", images[:, 0]), ("y", labels))
    }
    with whole_file(path) as stream:
        np.savez_compressed(stream, **arrays)
    return path
