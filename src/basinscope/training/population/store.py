"""Checkpoints: the whole state of a population in one file, written at once or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import InputError
from ...files import whole_file
from ...foreign import arrays, parsed

_ABOUT = "about"


def save(path: Path, state: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Write tensors, and what they belong to, as a NumPy archive; a file of that name appears only once complete."""
    content: dict[str, Any] = {name: tensor.cpu().numpy() for name, tensor in state.items()}
    content[_ABOUT] = np.array(json.dumps(about))
    with whole_file(path) as file:
        np.savez(file, **content)


def load(path: Path, about: Mapping[str, Any], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a checkpoint, of the shapes and types of others, if it is of the population that `about` tells."""
    try:
        archive = arrays(path)
        description = dict(parsed(str(archive.pop(_ABOUT))))
        tensors = {name: torch.from_numpy(array) for name, array in archive.items()}
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no checkpoint of a population ({error}) — delete it to start afresh") from error
    expected = json.loads(json.dumps(about))
    differing = [key for key in expected if description.get(key) != expected[key]]
    if differing:
        parts = [f"{key}: {_difference(description.get(key), expected[key])}" for key in differing]
        raise InputError(
            f"{path} belongs to another population — {'; '.join(parts)} — pass another checkpoint, or delete it"
        )
    unlike = [name for name, tensor in like.items() if name not in tensors or _form(tensors[name]) != _form(tensor)]
    if unlike:
        raise InputError(f"{path} holds no {unlike[0]!r} of its shape when saved — delete it to start afresh")
    return tensors


def _form(tensor: Tensor) -> tuple[Any, ...]:
    return (*tensor.shape, tensor.dtype)


def _difference(stored: Any, expected: Any) -> str:
    """The difference of two settings in few words."""
    if isinstance(stored, list) and isinstance(expected, list):
        if len(stored) != len(expected):
            return f"{len(stored)} there, {len(expected)} here"
        place = next(i for i, pair in enumerate(zip(stored, expected, strict=True)) if pair[0] != pair[1])
        return f"the first difference is at {place}: {stored[place]} there, {expected[place]} here"
    return f"{str(stored)[:80]} there, {str(expected)[:80]} here"
