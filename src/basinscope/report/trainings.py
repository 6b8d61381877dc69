"""A training run's rows from its checkpoint's header: no tensor is read, and torch is not needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..errors import InputError

_KEY = "basinscope-training"
_LARGEST = 64 << 20  # bytes of a header that is no mistake


def training_header(path: Path) -> dict[str, Any] | None:
    """`rows`, `over`, `clock` and `settings` of a run; None for a safetensors file that holds none."""
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if not 2 <= size <= _LARGEST:
                raise ValueError("its header is cut off")
            header = json.loads(file.read(size))
        text = header.get("__metadata__", {}).get(_KEY)
        if text is None:
            return None
        state = dict(_plain(json.loads(text))["state"])
        return {name: state[name] for name in ("rows", "over", "clock", "settings")}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path.name} cannot be read ({error}): it is damaged, or still being written") from error


def _plain(tree: Any) -> Any:
    """The tree that the header spells out; its tensors, which are elsewhere in the file, as None."""
    if isinstance(tree, list):
        return [_plain(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if "$tensor" in tree:
        return None
    if "$tuple" in tree:
        return [_plain(item) for item in tree["$tuple"]]
    return {key: _plain(value) for key, value in tree["$dict"]}
