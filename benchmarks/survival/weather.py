"""What a process may meet without being told: a clock that is set back, and a file system that answers late.

The study whose jobs run under it calls `install` as it is loaded, so that driver and workers are all of one world. Each
kind holds while a file of its name lies in the folder that the environment variable names.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = "SURVIVAL_WEATHER"
BACK, LATE = "clock", "late"
_SET_BACK = 3 * 24 * 3600.0  # seconds
_DELAY = 0.1  # seconds that each access to a file takes longer


def install() -> None:
    """Patch this process, once, if there is a folder to look at."""
    folder = os.environ.get(FOLDER)
    if not folder or getattr(time.time, "patched", False):
        return
    from basinscope.runs.files import Files

    true_time = time.time

    def set_back() -> float:
        return true_time() - (_SET_BACK if Path(folder, BACK).exists() else 0.0)

    set_back.patched = True  # type: ignore[attr-defined]
    time.time = set_back
    for name in ("read", "write", "exists", "listed", "move", "remove"):
        setattr(Files, name, _late(getattr(Files, name), Path(folder, LATE)))


def _late(method: Callable[..., Any], sign: Path) -> Callable[..., Any]:
    def waited(*arguments: Any, **options: Any) -> Any:
        if sign.exists():
            time.sleep(_DELAY)
        return method(*arguments, **options)

    return waited
