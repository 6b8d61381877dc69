"""A training run in one file: tensors as safetensors, everything else as JSON in its header. No code in data."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError

FORMAT = 1
_KEY = "basinscope-training"


def save_checkpoint(path: str | Path, state: Mapping[str, Any]) -> None:
    """Write a tree of dicts, lists, tuples, tensors, numbers, strings and None; the file is there whole or not at all.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_checkpoint(Path(folder) / "run", {"weights": [torch.ones(2)], "steps": {3: (0.5, None)}})
        ...     load_checkpoint(Path(folder) / "run")
        {'weights': [tensor([1., 1.])], 'steps': {3: (0.5, None)}}
    """
    from safetensors.torch import save

    path = Path(path)
    tensors: dict[str, Tensor] = {}
    plain = _plain({"format": FORMAT, "state": dict(state)}, "state", tensors)
    data = save(tensors, {_KEY: json.dumps(plain)})
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")  # one name, so that what a killed run left is overwritten
    try:
        with part.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    _flush_folder(path.parent)


def load_checkpoint(path: str | Path) -> dict[str, Any]:
    """The tree that was saved, its tensors on the CPU."""
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        raise InputError(f"no checkpoint at {path}: expected a file written by train(folder=…)")
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(_KEY)
            if text is None:
                raise InputError(
                    f"{path} is no checkpoint of a training run: expected a file written by train(folder=…)"
                )
            tree = json.loads(text)
            if tree["$dict"][0] != ["format", FORMAT]:
                raise InputError(
                    f"{path} has format {tree['$dict'][0][1]!r}, this version reads {FORMAT} — train again, or use the "
                    f"version that wrote it"
                )
            state: dict[str, Any] = _tree(tree, {name: file.get_tensor(name) for name in file.keys()})["state"]  # noqa: SIM118
            return state
    except (SafetensorError, json.JSONDecodeError, KeyError, IndexError) as error:
        raise InputError(f"{path} is broken ({error}): delete it and train again") from error


def is_training_checkpoint(path: str | Path) -> bool:
    """Whether a safetensors file holds a training run, rather than bare weights."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(Path(path), framework="pt") as file:
            return _KEY in (file.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} cannot be read: {error} — it is damaged, or still being written") from error


def _plain(tree: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """The tree without its tensors, which are put aside under a name; what JSON cannot say is spelt out."""
    if isinstance(tree, Tensor):
        key = f"{len(tensors)}:{name}"
        tensors[key] = tree.detach().to("cpu", copy=True).contiguous()
        return {"$tensor": key}
    if isinstance(tree, Mapping) and all(isinstance(key, (str, int)) for key in tree):
        return {"$dict": [[key, _plain(value, f"{name}.{key}", tensors)] for key, value in tree.items()]}
    if isinstance(tree, (list, tuple)):
        items = [_plain(value, f"{name}.{place}", tensors) for place, value in enumerate(tree)]
        return {"$tuple": items} if isinstance(tree, tuple) else items
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return tree
    raise InputError(
        f"{name} is a {type(tree).__name__}, which a checkpoint cannot hold: expected tensors, numbers, strings, None, "
        f"lists and tuples of these, and dicts by strings or whole numbers"
    )


def _tree(plain: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(plain, list):
        return [_tree(item, tensors) for item in plain]
    if not isinstance(plain, dict):
        return plain
    if "$tensor" in plain:
        return tensors[plain["$tensor"]]
    if "$tuple" in plain:
        return tuple(_tree(item, tensors) for item in plain["$tuple"])
    return {key: _tree(value, tensors) for key, value in plain["$dict"]}


def _flush_folder(folder: Path) -> None:
    """Make the new name itself last through a power cut, where the system can."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def rng_state(device: torch.device) -> dict[str, Tensor]:
    """The state of torch's own generators, which dropout draws from."""
    found = {"cpu": torch.get_rng_state()}
    return {**found, "cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else found


def set_rng_state(state: Mapping[str, Tensor], device: torch.device) -> None:
    """Put the generators back to where `rng_state` found them."""
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
