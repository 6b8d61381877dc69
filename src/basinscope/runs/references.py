"""From a text to a study: a folder, `package.module:name`, `file.py:name` or `file.yaml`."""

from __future__ import annotations

import importlib.machinery
import itertools
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import InputError
from ..foreign import contents, parsed
from ..objects import named_object, nearest
from .records import Record, record
from .study import Study
from .sweep import Sweep
from .yaml_text import from_yaml

_FILE = "study.py"
_SWEEP = "sweep:"  # a sweep's declaration itself, as JSON: workers need no file


@dataclass(frozen=True)
class Named:
    """A study, the text by which a worker finds it, and what a file said of scale and settings."""

    study: Study
    reference: str
    scale: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


class Declaration(Record):
    """A YAML file: settings of a known `study`, or a `function` with its own `grid`, `jobs` and `common`.

    Attributes:
        study: name or reference of a study; excludes `function`.
        function: `package.module:name`, or `file.py:name` beside the YAML file.
        name, title, version: of a new study; the file's name unless given.
        scale: used unless the command line names one.
        settings: changes to the settings of `study`.
        common, grid, jobs: of a new study, as in `SweepSettings`.
        scales: changes to a new study's `common`, `grid`, `jobs` by scale.
    """

    study: str | None = None
    function: str | None = None
    name: str | None = None
    title: str = ""
    version: int = 1
    scale: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    common: dict[str, Any] = field(default_factory=dict)
    grid: dict[str, list[Any]] = field(default_factory=dict)
    jobs: list[dict[str, Any]] = field(default_factory=list)
    scales: dict[str, dict[str, Any]] = field(default_factory=dict)


def find(text: str, catalogue: Mapping[str, str] | None = None) -> Named:
    """The study that `text` names: one of the catalogue's names, a folder, a reference, or a YAML file.

    A folder holds the study as `STUDY` in its file `study.py`; that may import its neighbours and, where folders above
    have an `__init__.py`, what is there.

    Examples:
        >>> find("quadratic", {"quadratics": "basinscope.studies.quadratics:STUDY"})
        Traceback (most recent call last):
        ...
        basinscope.errors.InputError: there is no study 'quadratic' — did you mean 'quadratics'?
    """
    references = catalogue or {}
    if text in references:
        return Named(load(references[text]), references[text])
    if text.startswith(_SWEEP):
        return Named(load(text), text)
    if text.endswith((".yaml", ".yml")):
        return _declared(Path(text), references)
    if ":" in text:
        reference = _absolute(text, Path.cwd())
        return Named(load(reference), reference)
    if (Path(text) / _FILE).is_file():
        return find(f"{Path(text) / _FILE}:STUDY")
    if Path(text).is_dir() or len(Path(text).parts) > 1:
        raise InputError(f"there is no {_FILE} in {text!r} — a study's folder holds it as STUDY in a file of that name")
    raise InputError(f"there is no study {text!r} — {nearest(text, references)}")


def load(reference: str) -> Study:
    """The study behind a reference, as a worker sees it."""
    if reference.startswith(_SWEEP):
        try:
            spec = dict(parsed(reference.removeprefix(_SWEEP)))
            function, parts = spec["function"], {part: spec[part] for part in ("common", "grid", "jobs")}
            options = {name: spec[name] for name in ("scales", "title", "version")}
            return Sweep(str(spec["name"]), named_object(str(function)), parts, **options)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"a reference that begins with {_SWEEP!r} must go on with the JSON that a YAML file was turned into, "
                f"got {reference[:80]!r} ({type(error).__name__}: {error})"
            ) from error
    target = named_object(reference)
    study = target() if isinstance(target, type) and issubclass(target, Study) else target
    if not isinstance(study, Study):
        raise InputError(f"{reference} must be a Study, got {type(study).__name__}")
    return study


def search_path() -> list[str]:
    """The folders in which this process looks for modules."""
    return [str(Path(folder).resolve()) for folder in sys.path]


def load_from(reference: str, folders: Iterable[str]) -> Study:
    """The study behind a reference, looked for in another process's folders too, as far as they exist here."""
    sys.path += [folder for folder in folders if folder not in sys.path and Path(folder).exists()]
    return load(reference)


def reference_to(study: Study) -> str | None:
    """The reference by which another process finds this very study; None when no module holds it.

    Examples:
        >>> reference_to(Study()) is None
        True
    """
    for module in [sys.modules[type(study).__module__], *list(sys.modules.values())]:
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is study:
                return _reference(module, name)
    return None


def _reference(module: ModuleType, name: str) -> str | None:
    if module.__name__ != "__main__" and _importable(module.__name__):
        return f"{module.__name__}:{name}"
    path = getattr(module, "__file__", None)
    return None if path is None else f"{Path(path).resolve()}:{name}"


def _importable(name: str) -> bool:
    """Whether another process, with the same path, would find the module by its name."""
    spec = None
    for part in itertools.accumulate(name.split("."), "{}.{}".format):
        spec = importlib.machinery.PathFinder.find_spec(part, None if spec is None else spec.submodule_search_locations)
        if spec is None:
            return False
    return True


def _declared(path: Path, catalogue: Mapping[str, str]) -> Named:
    try:
        text = contents(path).decode()
    except FileNotFoundError:
        raise InputError(f"there is no file {str(path)!r}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as YAML: {error}") from error
    content = from_yaml(text, str(path))
    if not isinstance(content, dict):
        raise InputError(f"{path} must hold a mapping with 'study' or 'function', got {type(content).__name__}")
    declaration: Declaration = record(Declaration, content, str(path), "entry")
    if (declaration.study is None) == (declaration.function is None):
        raise InputError(f"{path} must have either 'study', to change settings of one, or 'function', to declare one")
    if declaration.study is not None:
        if declaration.grid or declaration.jobs or declaration.common or declaration.scales:
            raise InputError(f"{path}: 'grid', 'jobs', 'common' and 'scales' belong to 'function' — use 'settings'")
        inner = find(declaration.study, catalogue)
        return Named(inner.study, inner.reference, declaration.scale, declaration.settings)
    if declaration.settings:
        raise InputError(f"{path}: 'settings' belongs to 'study' — use 'common', 'grid' or 'jobs'")
    assert declaration.function is not None
    spec = {part: declaration.config()[part] for part in ("title", "version", "common", "grid", "jobs", "scales")}
    spec |= {"name": declaration.name or path.stem, "function": _absolute(declaration.function, path.resolve().parent)}
    reference = _SWEEP + json.dumps(spec)
    return Named(load(reference), reference, declaration.scale)


def _absolute(reference: str, folder: Path) -> str:
    place, _, name = reference.rpartition(":")
    return f"{(folder / place).resolve()}:{name}" if place.endswith(".py") else reference
