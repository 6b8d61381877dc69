"""Basinscope tells how complex a trained neural network really is."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from . import exact as exact
    from .errors import BasinscopeError as BasinscopeError
    from .errors import InputError as InputError
    from .estimates import Estimate as Estimate
    from .landscape import Landscape as Landscape
    from .measures.llc import llc as llc
    from .measures.wbic import wbic as wbic

# Names are loaded on first use: the command line answers --help without importing torch.
_HOMES = {
    "BasinscopeError": "errors",
    "InputError": "errors",
    "Estimate": "estimates",
    "Landscape": "landscape",
    "llc": "measures.llc",
    "wbic": "measures.wbic",
}

__all__ = ["__version__", "exact", *_HOMES]


def __getattr__(name: str) -> Any:
    if name == "exact":
        return importlib.import_module(".exact", __name__)
    if name in _HOMES:
        value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'basinscope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
