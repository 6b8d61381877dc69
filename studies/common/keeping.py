"""Partial results of a job, written down as they come."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from basinscope.runs.files import Files


def one_by_one(names: Iterable[str], find: Callable[[str], Any], file: Path) -> list[Any]:
    """What `find` finds for each name, in plain values and written to `file` at once: work cut off goes on from there.

    Examples:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "lengths.json"
        >>> one_by_one(["a"], len, file), one_by_one(["a", "bc"], len, file)
        ([1], [1, 2])
    """
    results: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    wanted = list(names)
    for name in wanted:
        if name not in results:
            results[name] = find(name)
            Files(file.parent).write(file.name, json.dumps(results).encode())
    return [results[name] for name in wanted]
