"""Where a number comes from: version, commit, libraries, device."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from .._version import __version__

_LIBRARIES = ("numpy", "pandas", "pyarrow", "safetensors", "scikit-learn", "scipy", "torch")


def provenance(code: Path | None = None) -> dict[str, Any]:
    """What this process computes with.

    Args:
        code: a folder beside the package, in the same checkout, that decides the numbers, too.

    Examples:
        >>> provenance()["basinscope"] == __version__
        True
    """
    return {**_fixed(code), "device": device_since(0), "threads": _threads(), "process": os.getpid()}


@cache
def _fixed(code: Path | None) -> dict[str, Any]:
    return {
        "basinscope": __version__,
        "commit": _commit(code),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "host": platform.node(),
        "libraries": {name: version for name in _LIBRARIES if (version := _version(name)) is not None},
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _commit(code: Path | None) -> str | None:
    """The commit of the source checkout, with `+` when package or code differ from it; None for an installed one."""
    package = Path(__file__).parents[1]
    if _git(package, "ls-files", "--error-unmatch", "_version.py") is None:
        return None  # perhaps inside somebody else's repository
    top = _git(package, "rev-parse", "--show-toplevel")
    paths = [str(package), *([str(code)] if code and top and code.is_relative_to(top) else [])]
    commit, changes = _git(package, "rev-parse", "HEAD"), _git(package, "status", "--porcelain", "--", *paths)
    return None if commit is None else commit + ("+" if changes else "")


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        completed = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return completed.stdout.strip() if completed.returncode == 0 else None


def gpu_allocations() -> int:
    """Pieces of a GPU's memory that this process has asked for so far, on all its GPUs."""
    torch = sys.modules.get("torch")  # what never loaded torch used no GPU through it
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return sum(
        int(torch.cuda.memory_stats(number).get("allocation.all.allocated", 0))
        for number in range(torch.cuda.device_count())
    )


def device_since(allocations: int) -> str:
    """What has computed since `gpu_allocations` was so many: to be asked afterwards, for a GPU is loaded when it is
    first used."""
    if gpu_allocations() > allocations:
        return str(sys.modules["torch"].cuda.get_device_name())
    return f"cpu ({platform.machine()})"


def _threads() -> int | None:
    torch = sys.modules.get("torch")
    return None if torch is None else int(torch.get_num_threads())
