"""The header of a training run's checkpoint: everything but its tensors, read without torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..foreign import opened, parsed

KEY = "basinscope-training"  # of the entry in the header of a safetensors file
_MAX_HEADER_BYTES = 64 << 20  # a longer one is a mistake


def training_header(path: Path) -> dict[str, Any] | None:
    """`rows`, `over`, `clock` and `settings` of a run; None for a safetensors file that holds none."""
    try:
        with opened(path) as file:
            size = int.from_bytes(file.read(8), "little")
            if not 2 <= size <= _MAX_HEADER_BYTES:
                raise ValueError("its header is cut off")
            header = parsed(file.read(size))
        text = header.get("__metadata__", {}).get(KEY)
        if text is None:
            return None
        state = dict(decoded(parsed(text, finite=False))["state"])
        return {name: state[name] for name in ("rows", "over", "clock", "settings")}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path.name} cannot be read ({error}): it is damaged, or still being written") from error


def decoded(tree: Any, tensors: Mapping[str, Any] | None = None) -> Any:
    """The tree that the header spells out; its tensors, which are elsewhere in the file, as None unless given.

    Examples:
        >>> decoded({"$dict": [["a", {"$tuple": [1, 2]}], [3, {"$tensor": "0:a"}]]})
        {'a': (1, 2), 3: None}
    """
    if isinstance(tree, list):
        return [decoded(item, tensors) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if "$tensor" in tree:
        return None if tensors is None else tensors[tree["$tensor"]]
    if "$tuple" in tree:
        return tuple(decoded(item, tensors) for item in tree["$tuple"])
    return {key: decoded(value, tensors) for key, value in tree["$dict"]}
