"""Python objects by references in text: `package.module:name` or `file.py:name`."""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from .errors import InputError

_MOST_LISTED = 40  # words of a hint


def named_object(reference: str) -> Any:
    """The object that a reference names; modules are loaded once.

    Examples:
        >>> named_object("math:hypot")(3, 4)
        5.0
        >>> named_object("math:hypto")
        Traceback (most recent call last):
        ...
        basinscope.errors.InputError: math has no 'hypto' — did you mean 'hypot'?
    """
    place, colon, name = reference.rpartition(":")
    if not colon or not place or not name:
        raise InputError(f"a reference must be package.module:name or file.py:name, got {reference!r}")
    if "\0" in reference or not (place.endswith(".py") or all(map(str.isidentifier, place.split(".")))):
        raise InputError(f"a reference must be package.module:name or file.py:name, got {reference!r}")
    module = _from_file(Path(place)) if place.endswith(".py") else _from_package(place)
    try:
        return getattr(module, name)
    except AttributeError:
        public = [attribute for attribute in vars(module) if not attribute.startswith("_")]
        raise InputError(f"{place} has no {name!r} — {nearest(name, public)}") from None


def nearest(word: str, valid: Iterable[str]) -> str:
    """A hint at the nearest of the valid words, or at all of them.

    Examples:
        >>> nearest("widht", ["width", "depth"]), nearest("x", ["width", "depth"])
        ("did you mean 'width'?", 'valid are width, depth')
    """
    names = list(valid)
    close = difflib.get_close_matches(word, names, n=1)
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return f"did you mean {close[0]!r}?" if close else f"valid are {', '.join(names[:_MOST_LISTED]) or 'none'}{more}"


def code_of(kind: type) -> Path | None:
    """The package, or else the file, that a class is written in; None where there is none.

    Examples:
        >>> code_of(InputError).name
        'basinscope'
    """
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if file is None:
        return None
    path = Path(file).resolve()
    return next((folder for folder in path.parents if folder.parent == _root(path)), path)


def _from_package(place: str) -> ModuleType:
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        raise InputError(f"cannot import {place!r}: {error} — is it installed, or on PYTHONPATH?") from error
    except (Exception, SystemExit) as error:
        raise _broken(place, error) from error


def _from_file(path: Path) -> ModuleType:
    """The module in a file: by its name in the package that it is part of, else under a name of its own."""
    path = path.resolve()
    if path.is_file() and (path.parent / "__init__.py").is_file():
        return _from_package_file(path)
    name = f"basinscope_file_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    if not path.is_file():
        raise InputError(f"there is no file {str(path)!r}")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _broken(str(path), error) from error
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _broken(place: str, error: BaseException) -> InputError:
    """The error for a module whose own code fails as it is loaded."""
    if isinstance(error, InputError):
        return error
    return InputError(f"{place} cannot be loaded: {type(error).__name__}: {error} — run it in Python by itself first")


def _root(path: Path) -> Path:
    """The folder that holds the package of a file: the first one above without an `__init__.py`."""
    return next(folder for folder in path.parents if not (folder / "__init__.py").is_file())


def _from_package_file(path: Path) -> ModuleType:
    """The module in a file of a package, by its name there."""
    root = _root(path)
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    name = ".".join(path.relative_to(root).with_suffix("").parts)
    module = _from_package(name)
    if module.__file__ is None or Path(module.__file__).resolve() != path:
        raise InputError(
            f"{str(path)!r} is module {name!r} of its package, but that name is taken by {module.__file__!r} — rename "
            f"the folder {name.partition('.')[0]!r}"
        )
    return module
