"""Checkpoints: the whole state of a population in one file, written at once or not at all."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import InputError
from ...files import whole_file

_ABOUT = "about"


def save(path: Path, state: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Write tensors, and what they belong to, as a NumPy archive; a file of that name appears only once complete."""
    arrays: dict[str, Any] = {name: tensor.cpu().numpy() for name, tensor in state.items()}
    arrays[_ABOUT] = np.array(json.dumps(about))
    with whole_file(path) as file:
        np.savez(file, **arrays)


def load(path: Path, about: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of a checkpoint, if it belongs to a population that is described by `about`."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            arrays = {name: torch.from_numpy(archive[name].copy()) for name in archive.files if name != _ABOUT}
            description = json.loads(str(archive[_ABOUT]))
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError) as error:
        raise InputError(f"{path} is no checkpoint of a population ({error}) — delete it to start afresh") from error
    expected = json.loads(json.dumps(about))
    differing = [key for key in expected if description.get(key) != expected[key]]
    if differing:
        parts = [f"{key}: {_difference(description.get(key), expected[key])}" for key in differing]
        raise InputError(
            f"{path} belongs to another population — {'; '.join(parts)} — pass another checkpoint, or delete it"
        )
    return arrays


def _difference(stored: Any, expected: Any) -> str:
    """The difference of two settings in few words."""
    if isinstance(stored, list) and isinstance(expected, list):
        if len(stored) != len(expected):
            return f"{len(stored)} there, {len(expected)} here"
        place = next(i for i, pair in enumerate(zip(stored, expected, strict=True)) if pair[0] != pair[1])
        return f"the first difference is at {place}: {stored[place]} there, {expected[place]} here"
    return f"{str(stored)[:80]} there, {str(expected)[:80]} here"
