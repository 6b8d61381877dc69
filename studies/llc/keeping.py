"""Partial results of a job, written down as they come."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from basinscope.runs.files import Files


def one_by_one(names: Iterable[str], find: Callable[[str], Any], kept: Path) -> list[Any]:
    """What `find` finds for each name, in plain values and written to `kept` at once: work cut off goes on from there.

    Examples:
        >>> import tempfile
        >>> kept = Path(tempfile.mkdtemp()) / "lengths.json"
        >>> one_by_one(["a"], len, kept), one_by_one(["a", "bc"], len, kept)
        ([1], [1, 2])
    """
    found: dict[str, Any] = json.loads(kept.read_text()) if kept.is_file() else {}
    wanted = list(names)
    for name in wanted:
        if name not in found:
            found[name] = find(name)
            Files(kept.parent).write(kept.name, json.dumps(found).encode())
    return [found[name] for name in wanted]
