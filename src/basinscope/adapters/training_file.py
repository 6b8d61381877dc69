"""A training run in one file: tensors as safetensors, everything else as JSON in its header. No code in data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ..errors import InputError
from ..files import whole_file
from ..foreign import parsed
from .training_header import KEY, decoded

FORMAT = 1


def save_checkpoint(path: str | Path, state: Mapping[str, Any]) -> None:
    """Write a tree of dicts, lists, tuples, tensors, numbers, strings and None; the file is there whole or not at all.

    Examples:
        >>> import tempfile, torch
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_checkpoint(Path(folder) / "run", {"weights": [torch.ones(2)], "steps": {3: (0.5, None)}})
        ...     load_checkpoint(Path(folder) / "run")
        {'weights': [tensor([1., 1.])], 'steps': {3: (0.5, None)}}
    """
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    plain = _encoded({"format": FORMAT, "state": dict(state)}, "state", tensors)
    data = save(tensors, {KEY: json.dumps(plain)})
    with whole_file(path) as file:
        file.write(data)


def load_checkpoint(path: str | Path) -> dict[str, Any]:
    """The tree that was saved, its tensors on the CPU."""
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        raise InputError(f"no checkpoint at {path}: expected a file written by train(folder=…)")
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(KEY)
            if text is None:
                raise InputError(
                    f"{path} is no checkpoint of a training run: expected a file written by train(folder=…)"
                )
            tree = parsed(text, finite=False)
            if tree["$dict"][0] != ["format", FORMAT]:
                raise InputError(
                    f"{path} has format {tree['$dict'][0][1]!r}, this version reads {FORMAT} — train again, or use the "
                    f"version that wrote it"
                )
            state: dict[str, Any] = decoded(tree, {name: file.get_tensor(name) for name in file.keys()})["state"]  # noqa: SIM118
            return state
    except InputError:
        raise
    except (SafetensorError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is broken ({error}): delete it and train again") from error


def is_training_checkpoint(path: str | Path) -> bool:
    """Whether a safetensors file holds a training run, rather than bare weights."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(Path(path), framework="pt") as file:
            return KEY in (file.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} cannot be read: {error} — it is damaged, or still being written") from error


def _encoded(tree: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """The tree as JSON can hold it: its tensors are put aside under a name, and tuples and dicts are spelt out."""
    if isinstance(tree, Tensor):
        key = f"{len(tensors)}:{name}"
        tensors[key] = tree.detach().to("cpu", copy=True).contiguous()
        return {"$tensor": key}
    if isinstance(tree, Mapping) and all(isinstance(key, (str, int)) for key in tree):
        return {"$dict": [[key, _encoded(value, f"{name}.{key}", tensors)] for key, value in tree.items()]}
    if isinstance(tree, (list, tuple)):
        items = [_encoded(value, f"{name}.{place}", tensors) for place, value in enumerate(tree)]
        return {"$tuple": items} if isinstance(tree, tuple) else items
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return tree
    raise InputError(
        f"{name} is a {type(tree).__name__}, which a checkpoint cannot hold: expected tensors, numbers, strings, None, "
        f"lists and tuples of these, and dicts by strings or whole numbers"
    )
