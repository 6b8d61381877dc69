"""Settings of a study from a scale, a file and `key=value` overrides, with errors that name the nearest valid key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import InputError
from .records import record
from .study import Study
from .yaml_text import from_yaml


def overrides(texts: Iterable[str]) -> dict[str, Any]:
    """`key=value` texts as nested settings: dots descend, values are YAML.

    Examples:
        >>> overrides(["seeds=[0, 1]", "grid.width=[8]", "name=a b"])
        {'seeds': [0, 1], 'grid': {'width': [8]}, 'name': 'a b'}
    """
    nested: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        path = key.strip().split(".")
        if not equals or not all(path):
            raise InputError(f"a setting must be key=value, got {text!r} — for example seeds=3 or grid.width=[8, 16]")
        inner = nested
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
            if not isinstance(inner, dict):
                raise InputError(f"{text!r} goes inside {name!r}, which another setting gives a value")
        inner[path[-1]] = from_yaml(value, f"the value of {_excerpt(text)}")
    return nested


def _excerpt(text: str) -> str:
    return repr(text) if len(text) <= 80 else f"{text[:80]!r}…"


def resolved(study: Study, scale: str, *changes: Mapping[str, Any]) -> Any:
    """The study's settings at a scale with changes on top, later ones winning.

    Examples:
        >>> from basinscope.runs import study as base
        >>> class Own(base.Settings):
        ...     seeds: int = 3
        >>> class Small(base.Study):
        ...     name, Settings, scales = "small", Own, {"smoke": {"seeds": 1}}
        >>> resolved(Small(), "smoke").seeds, resolved(Small(), "smoke", {"seeds": 2}).seeds
        (1, 2)
        >>> resolved(Small(), "smoke", {"seed": 2})
        Traceback (most recent call last):
        ...
        basinscope.errors.InputError: study 'small': unknown setting 'seed' — did you mean 'seeds'?
    """
    if scale not in study.scales:
        raise InputError(f"study {study.name!r} has no scale {scale!r} — choose from {', '.join(study.scales)}")
    values: dict[str, Any] = {}
    for layer in (study.scales[scale], *changes):
        values = merged(values, layer)
    return record(study.Settings, values, f"study {study.name!r}", "setting")


def merged(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the entries of `top`, mappings merged in turn.

    Examples:
        >>> merged({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}})
        {'a': {'b': 1, 'c': 3}}
    """
    result = dict(base)
    for key, value in top.items():
        both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = merged(result[key], value) if both else value
    return result
